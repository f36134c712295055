# The config goes through the loader that the command line uses, never through Snakemake's own
# merging of config files.
import os
import shlex
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

from mfsweep._errors import MfsweepError
from mfsweep.progress import say
from mfsweep.sweep import figures, grid
from mfsweep.sweep.config import load_config
from mfsweep.sweep.folder import COLLECTED, check_claim, holds_stale, simulate_mark
from mfsweep.sweep.lock import WORKFLOW, Lock, held


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


def take_lock():
    """Hold the run for this Snakemake, whose jobs each hold their shard."""
    try:
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
