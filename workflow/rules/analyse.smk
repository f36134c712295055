rule measure:
    input:
        rules.simulate.output,
    output:
        RUN / "shards/{shard}/measure.done",
    log:
        RUN / "logs/measure-{shard}.log",
    conda:
        "../envs/mfsweep.yaml"
    resources:
        mem_mb=job_memory,
        runtime=job_minutes,
        workers=where_cells_run,
    params:
        digest=lambda wildcards: grid.measure_digest(CONFIG, SHARDS[wildcards.shard]),
    shell:
        "mfsweep measure --shard {wildcards.shard} {resources.workers} --log {log}"


rule collect:
    input:
        expand(rules.measure.output, shard=SHARDS),
    output:
        expand(RUN / "{store}.zarr/zarr.json", store=COLLECTED),
    log:
        RUN / "logs/collect.log",
    conda:
        "../envs/mfsweep.yaml"
    params:
        digest=grid.collect_digest(CONFIG),
    shell:
        "mfsweep collect --log {log}"
