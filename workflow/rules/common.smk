# The config goes through the loader that the command line uses, never through Snakemake's own
# merging of config files.
import json
import math
import os
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

from snakemake.exceptions import WorkflowError

from mfsweep._errors import MfsweepError
from mfsweep.progress import say
from mfsweep.sweep import figures, grid
from mfsweep.sweep.config import load_config
from mfsweep.sweep.folder import (
    COLLECTED,
    check_claim,
    holds_stale,
    simulate_mark,
    write_json,
)
from mfsweep.sweep.lock import WORKFLOW, Lock, held
from mfsweep.sweep.sbatch import check_job


def refuse(error):
    print(f"mfsweep: {error}", file=sys.stderr, flush=True)
    os._exit(2)


def only_config_file():
    """Return the one config file that `snakemake --configfile` names, or the default."""
    settings = workflow.config_settings
    if settings.config or len(settings.configfiles) > 1:
        refuse(
            "--config and several --configfile are not taken: put every key in one file"
        )
    return Path(
        settings.configfiles[0] if settings.configfiles else "config/config.yaml"
    )


def picture(name):
    """Return one figure as an output with its caption in Snakemake's report."""
    stem, form = name.split(".")
    return report(
        RUN / "figures" / name,
        caption=f"../report/{figures.caption_file(name)}",
        category="Figures",
        labels={"figure": stem.replace("_", " "), "format": form},
    )


CONFIG_FILE = only_config_file()
try:
    CONFIG = load_config(CONFIG_FILE)
    SHARDS = {shard.id: shard for shard in grid.shards(CONFIG)}
    RUN = Path("results") / CONFIG.run
    check_claim(RUN, CONFIG_FILE, CONFIG)
    for _, holder in held(RUN) if workflow.is_main_process else ():
        state = "gone: run snakemake --unlock" if holder.gone else "at work here"
        say(f"mfsweep: {holder}, is {state}")
except MfsweepError as error:
    refuse(error)

# Snakemake has its own lock on the working directory, which names nobody; this one says who.
LOCK = Lock(RUN, [WORKFLOW], "snakemake")


def ask_slurm():
    """Refuse what SLURM would refuse of the profile, once and before any job is submitted."""
    if workflow.executor_plugin.name != "slurm":
        return
    asked = workflow.resource_settings.default_resources or {}
    options = {"slurm_partition": "-p", "slurm_account": "-A"}
    words = {key: shlex.split(str(asked[key].raw)) for key in options if key in asked}
    lines = [f"#SBATCH {options[key]} {' '.join(words[key])}" for key in words]
    script = "\n".join(["#!/bin/sh", *lines, "true"])
    check_job("--workflow-profile", script, " or ".join(options))


def take_lock():
    """Hold the run for this Snakemake, whose jobs each hold their shard."""
    try:
        ask_slurm()
        LOCK.take()
    except MfsweepError as error:
        raise WorkflowError(f"mfsweep: {error}")


KEEP_STALE = os.environ.get("MFSWEEP_KEEP_STALE", "0")
if KEEP_STALE not in ("0", "1"):
    refuse(f"MFSWEEP_KEEP_STALE = {KEEP_STALE!r}: must be 1 to keep stale cells, or 0")


def stale_option(wildcards):
    """Return --keep-stale where it is asked for and the shard may hold such cells."""
    keeps = KEEP_STALE == "1" and holds_stale(RUN, SHARDS[wildcards.shard])
    return "--keep-stale" if keeps else ""


# ---- what a job asks for ---------------------------------------------------------------------

SCHEDULER_FILE = os.environ.get("MFSWEEP_SCHEDULER_FILE")
MEGABYTES_BESIDE_WORKERS = 1000
"""Snakemake, twice, and the process that hands out the cells."""
MINUTES_BESIDE_CELLS = 10


def on_cluster():
    """Tell whether jobs go to other machines; a dry run knows by the profile's number of jobs."""
    if workflow.dryrun:
        return workflow.resource_settings.nodes is not None
    return workflow.remote_exec or workflow.non_local_exec


@cache
def planned():
    """Return what `mfsweep plan` says to ask for, found once and kept beside the logs for the jobs."""
    file, digest = RUN / "logs/plan.json", grid.config_digest(CONFIG)
    try:
        found = json.loads(file.read_text())
        if found["digest"] == digest:
            return found["shards"]
    except (OSError, ValueError, KeyError):
        pass  # there is none, or not a whole one
    command = ["plan", "--json", "--config", str(CONFIG_FILE)]
    run = subprocess.run(
        [sys.executable, "-m", "mfsweep", *command], stdout=-1, text=True
    )
    if run.returncode:
        os._exit(run.returncode)
    found = {"digest": digest, "shards": json.loads(run.stdout)}
    if not workflow.dryrun:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, found)
    return found["shards"]


def workers_memory(wildcards, threads, attempt):
    """Return the megabytes that a job's workers share; every further attempt asks for more."""
    each = planned()[wildcards.shard]["bytes_worker"]
    return math.ceil(threads * attempt * each / 1e6)


def job_memory(wildcards, threads, attempt):
    """Return the megabytes that a shard's job asks a cluster for."""
    if not on_cluster():
        return 0
    return workers_memory(wildcards, threads, attempt) + MEGABYTES_BESIDE_WORKERS


def job_minutes(wildcards, threads, attempt):
    """Return the minutes that a shard's job asks a cluster for."""
    if not on_cluster():
        return 0
    cost = planned()[wildcards.shard]
    rounds = math.ceil(cost["cells"] / threads)
    minutes = rounds * cost["seconds"] / cost["cells"] / 60
    return attempt * (MINUTES_BESIDE_CELLS + math.ceil(minutes))


def where_cells_run(wildcards, threads, attempt):
    """Return the options that say where a shard's cells run."""
    if SCHEDULER_FILE is not None:
        return shlex.join(["--scheduler-file", SCHEDULER_FILE])
    if not on_cluster():
        return f"--cores {threads}"
    return f"--cores {threads} --memory {workers_memory(wildcards, threads, attempt)}MB"


def report_without_failed_cells():
    """Measure what did not fail and draw the page, which names the cells that did."""
    failed = [
        shard for shard in SHARDS if (RUN / f"shards/{shard}/failures.json").exists()
    ]
    options = [word for shard in failed for word in ("--shard", shard)]
    for verb in (["measure", *options], ["collect"], ["report"]) if failed else ():
        command = [sys.executable, "-m", "mfsweep", *verb, "--config", str(CONFIG_FILE)]
        subprocess.run(command, stdout=subprocess.DEVNULL)


PAIRS = sum(shard.pairs for shard in SHARDS.values())


def share_of_cores(wildcards):
    """Return a shard's workers: cores in proportion to its work, so that all shards end together."""
    cores = workflow.resource_settings.cores or 1
    return max(1, round(cores * SHARDS[wildcards.shard].pairs / PAIRS))


# Rules call the package by the interpreter that runs Snakemake: no activated environment needed.
PYTHON = (
    "python"
    if workflow.deployment_settings.deployment_method
    else shlex.quote(sys.executable)
)
CONFIG_OPTION = shlex.join(["--config", str(CONFIG_FILE)])
shell.prefix(f'mfsweep() {{{{ {PYTHON} -m mfsweep "$@" {CONFIG_OPTION}; }}}}; ')


wildcard_constraints:
    shard="[A-Za-z0-9_-]+",
