"""The smallest run worth breaking: one shard of four cells, beta = inf among them."""

import copy
import sys

import pytest
import yaml
from small_run import _connect

from mfsweep.sweep import execute
from mfsweep.sweep.collect import collect
from mfsweep.sweep.config import load_config
from mfsweep.sweep.folder import claim
from mfsweep.sweep.grid import shards

SETTINGS = {
    "run": "tiny",
    "grid": {
        "family": ["a"],
        "d": [2],
        "gap": [0.5],
        "n_tokens": [8],
        "beta": [4.0, float("inf")],
        "seed": [0, 1],
    },
    "families": {"a": {"kind": "aligned"}},
    "time": {"t_end": 2.0, "n_times": 5},
}


def changed(**changes):
    """The settings with some keys of grid, or whole sections, changed."""
    document = copy.deepcopy(SETTINGS)
    document["grid"] |= changes.pop("grid", {})
    return document | changes


def write_config(folder, **changes):
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(changed(**changes)))
    return path


def simulate(config, folder, **options):
    """Simulate every shard in this process; return its outcomes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execute, "connect", _connect)
        patch.setattr(execute, "as_completed", list)
        return [
            execute.simulate_shard(
                config, shard, folder, execute.Workers(1), lambda *_: None, **options
            )
            for shard in shards(config)
        ]


def run_all(config_file, folder, **options):
    """Simulate, measure and collect in this process; return the number of cells computed."""
    config = load_config(config_file)
    claim(folder, config_file, config)
    outcomes = simulate(config, folder, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execute, "connect", _connect)
        patch.setattr(execute, "as_completed", list)
        for shard in shards(config):
            execute.measure_shard(config, shard, folder, execute.Workers(1), lambda *_: None)
    collect(config, folder)
    return sum(outcome.computed for outcome in outcomes)


def mfsweep(*arguments):
    """Run the command line in this process; return its exit code."""
    from mfsweep.cli import main

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["mfsweep", *map(str, arguments)])
        try:
            main()
        except SystemExit as end:
            return end.code or 0
    return 0
