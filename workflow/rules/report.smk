def picture(name):
    """Return one figure as an output with its caption in Snakemake's report."""
    stem, form = name.split(".")
    return report(
        RUN / "figures" / name,
        caption=f"../report/{stem.replace('_circle', '').replace('_sphere', '')}.rst",
        category="Figures",
        labels={"figure": stem.replace("_", " "), "format": form},
    )


rule figures:
    input:
        rules.collect.output,
    output:
        [picture(name) for name in figures.figure_files(CONFIG)],
    params:
        digest=grid.figures_digest(CONFIG),
    log:
        RUN / "logs/figures.log",
    conda:
        "../envs/mfsweep.yaml"
    shell:
        "{PYTHON} -m mfsweep plot --config {CONFIG_FILE:q} --log {log}"


rule report:
    input:
        rules.collect.output,
        rules.figures.output,
    output:
        report(
            RUN / "report.html",
            caption="../report/page.rst",
            category="Page",
            labels={"figure": "report page", "format": "html"},
        ),
    log:
        RUN / "logs/report.log",
    conda:
        "../envs/mfsweep.yaml"
    shell:
        "{PYTHON} -m mfsweep report --config {CONFIG_FILE:q} --log {log}"
