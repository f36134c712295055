rule simulate:
    output:
        RUN / "shards/{shard}/simulate.done",
    params:
        digest=lambda wildcards: grid.simulate_digest(CONFIG, SHARDS[wildcards.shard]),
    log:
        RUN / "logs/simulate-{shard}.log",
    threads: workflow.resource_settings.cores or 1
    conda:
        "../envs/mfsweep.yaml"
    shell:
        "{PYTHON} -m mfsweep simulate --config {CONFIG_FILE:q} --shard {wildcards.shard}"
        " --cores {threads} --log {log}"
