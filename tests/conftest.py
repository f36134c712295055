import pytest
from hypothesis import settings

settings.register_profile("mfsweep", deadline=None, derandomize=True)
settings.load_profile("mfsweep")


def pytest_collection_modifyitems(items):
    """Begin with what takes minutes, so that no worker is left alone with it at the end."""
    items.sort(key=lambda item: item.path.parent.name != "workflow")


SMALL = {
    "run": "small",
    "grid": {
        "family": ["aligned", "identity"],
        "d": [2],
        "gap": [0.5],
        "n_tokens": [40],
        "beta": [4.0, 16.0],
        "seed": [0, 1],
    },
    "families": {"aligned": {"kind": "aligned"}, "identity": {"kind": "identity"}},
    "time": {"t_end": 8.0, "n_times": 17},
}


@pytest.fixture
def make_config():
    """Return a function that builds a small config with some sections changed."""
    from mfsweep.sweep.config import Config

    def make(**changes):
        values = {key: changes.get(key, value) for key, value in SMALL.items()}
        values |= {key: value for key, value in changes.items() if key not in SMALL}
        if "grid" in changes:
            values["grid"] = {**SMALL["grid"], **changes["grid"]}
        return Config.model_validate(values)

    return make


@pytest.fixture
def in_process(monkeypatch):
    """Run tasks in this process instead of on Dask workers, in the order given."""
    from small_run import run_here

    run_here(monkeypatch)


@pytest.fixture
def ignore():
    """Progress that nobody watches."""

    def advance(outcome, total):
        assert outcome.computed + len(outcome.failures) <= total

    return advance


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """Return the config and the folder of one small finished run."""
    from small_run import small_run

    return small_run(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="session")
def report(run):
    """Return the path of that run's page."""
    from mfsweep.report import write_report

    return write_report(*run)


@pytest.fixture(scope="session")
def panels(run):
    """Return what the figures of that run are drawn from."""
    from mfsweep.plotting.panels import read_panels

    return read_panels(*run)
