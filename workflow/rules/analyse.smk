rule measure:
    input:
        rules.simulate.output,
    output:
        RUN / "shards/{shard}/measure.done",
    params:
        digest=lambda wildcards: grid.simulate_digest(CONFIG, SHARDS[wildcards.shard]),
    log:
        RUN / "logs/measure-{shard}.log",
    conda:
        "../envs/mfsweep.yaml"
    shell:
        "{PYTHON} -m mfsweep measure --config {CONFIG_FILE:q} --shard {wildcards.shard}"
        " --cores {threads} --log {log}"


rule collect:
    input:
        expand(rules.measure.output, shard=SHARDS),
    output:
        expand(RUN / "{store}.zarr/zarr.json", store=STORES),
    params:
        digest=grid.collect_digest(CONFIG),
    log:
        RUN / "logs/collect.log",
    conda:
        "../envs/mfsweep.yaml"
    shell:
        "{PYTHON} -m mfsweep collect --config {CONFIG_FILE:q} --log {log}"
