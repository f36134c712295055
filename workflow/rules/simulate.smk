rule simulate:
    output:
        RUN / "shards/{shard}/simulate.done",
    log:
        RUN / "logs/simulate-{shard}.log",
    conda:
        "../envs/mfsweep.yaml"
    threads: share_of_cores
    resources:
        mem_mb=job_memory,
        runtime=job_minutes,
        workers=where_cells_run,
    params:
        digest=lambda wildcards: simulate_mark(RUN, CONFIG, SHARDS[wildcards.shard]),
        stale=stale_option,
    shell:
        "mfsweep simulate --shard {wildcards.shard} {resources.workers} --log {log} {params.stale}"
