from hypothesis import settings

settings.register_profile("mfsweep", deadline=None, derandomize=True)
settings.load_profile("mfsweep")
