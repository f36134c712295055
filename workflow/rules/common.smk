# The config goes through the loader that the command line uses, never through Snakemake's own
# merging of config files.
import os
import sys
from pathlib import Path

from mfsweep._errors import MfsweepError
from mfsweep.sweep import figures, grid
from mfsweep.sweep.config import load_config
from mfsweep.sweep.folder import check_claim

STORES = ("curves", "switch_times", "laws")
PYTHON = sys.executable  # rules need no activated environment


def refuse(error):
    print(f"mfsweep: {error}", file=sys.stderr, flush=True)
    os._exit(2)


def only_config_file():
    """Return the one config file that `snakemake --configfile` names, or the default."""
    settings = workflow.config_settings
    if settings.config or len(settings.configfiles) > 1:
        refuse(
            "--config and several --configfile are not taken: put every key in one file "
            "and give it by --configfile"
        )
    return Path(settings.configfiles[0] if settings.configfiles else "config/config.yaml")


CONFIG_FILE = only_config_file()
try:
    CONFIG = load_config(CONFIG_FILE)
    SHARDS = {shard.id: shard for shard in grid.shards(CONFIG)}
    RUN = Path("results") / CONFIG.run
    check_claim(RUN, CONFIG_FILE, CONFIG)
except MfsweepError as error:
    refuse(error)


wildcard_constraints:
    shard="[A-Za-z0-9_-]+",
