rule figures:
    input:
        rules.collect.output,
    output:
        [picture(name) for name in figures.figure_files(CONFIG)],
    log:
        RUN / "logs/figures.log",
    conda:
        "../envs/mfsweep.yaml"
    params:
        digest=grid.figures_digest(CONFIG),
    shell:
        "mfsweep plot --log {log}"


rule report:
    input:
        rules.collect.output,
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
        "mfsweep report --log {log}"
