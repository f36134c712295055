"""A small real run, simulated, measured and collected in this process."""

from contextlib import contextmanager

import pytest

from mfsweep.sweep import execute
from mfsweep.sweep.collect import collect
from mfsweep.sweep.config import Config
from mfsweep.sweep.grid import shards

SETTINGS = {
    "run": "small",
    "grid": {
        "family": ["aligned", "identity"],
        "d": [2, 3],
        "gap": [0.5],
        "n_tokens": [48],
        "beta": [4.0, 8.0, 16.0, 32.0, float("inf")],
        "seed": [0, 1, 2, 3, 4, 5],
    },
    "families": {"aligned": {"kind": "aligned"}, "identity": {"kind": "identity"}},
    "overrides": [
        {"family": "identity", "d": [2], "seed": [0, 1]},
        {"family": "aligned", "d": 3, "seed": [0, 1]},
    ],
    "time": {"t_end": 16.0, "n_times": 33},
    "laws": {"ess_threshold": 4.0},
    "figures": {"dpi": 50},
}


class _Future:
    def __init__(self, task, values):
        self.call = lambda: task(*values)

    def result(self):
        return self.call()


class _Client:
    dashboard_link = None

    def nthreads(self):
        return {"here": 1}

    def map(self, task, *arguments, pure, retries):
        assert (pure, retries) == (False, 2)
        return [_Future(task, values) for values in zip(*arguments, strict=True)]


@contextmanager
def _connect(workers):
    assert workers.count >= 1
    yield _Client()


def run_here(patch):
    """Run tasks in this process instead of on Dask workers, in the order given."""
    patch.setattr(execute, "connect", _connect)
    patch.setattr(execute, "as_completed", list)


def small_run(folder):
    """Make the run; return its config and its folder."""
    config = Config.model_validate(SETTINGS)
    with pytest.MonkeyPatch.context() as patch:
        run_here(patch)
        for shard in shards(config):
            for task in (execute.simulate_shard, execute.measure_shard):
                outcome = task(config, shard, folder, execute.Workers(1), lambda *_: None)
                assert not outcome.failures, outcome.failures
    collect(config, folder)
    return config, folder
