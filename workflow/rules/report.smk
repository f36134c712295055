rule figures:
    input:
        rules.collect.output,
    output:
        report(
            expand(RUN / "figures/{name}", name=figures.figure_files(CONFIG)),
            caption="../report/figures.rst",
            category="Figures",
        ),
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
        report(RUN / "report.html", caption="../report/page.rst", category="Report"),
    log:
        RUN / "logs/report.log",
    conda:
        "../envs/mfsweep.yaml"
    shell:
        "{PYTHON} -m mfsweep report --config {CONFIG_FILE:q} --log {log}"
