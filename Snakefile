include: "workflow/Snakefile"


workflow.default_target = "all"  # an include leaves the default target as it was
