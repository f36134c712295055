"""Kills at random moments: nothing finished is lost or computed twice, no bit differs."""

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import xarray as xr
from tiny_run import simulate, write_config

from mfsweep.sweep import execute
from mfsweep.sweep.config import load_config
from mfsweep.sweep.grid import shards
from mfsweep.sweep.layout import DONE
from mfsweep.sweep.store import cell_states

KILLS = 20
GRID = {"beta": [2.0, 4.0, 8.0, 16.0, 32.0], "seed": 8}


@pytest.fixture
def sweep(tmp_path):
    """The config file of forty cells, and a function that runs them until a kill."""
    file = write_config(tmp_path, grid=GRID)
    folder, journal = tmp_path / "results/tiny", tmp_path / "journal"
    command = [sys.executable, Path(__file__).with_name("killing.py"), file, folder, journal]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def run(seconds=-1.0):
            process.stdin.write(f"{seconds}\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield file, folder, run
        process.stdin.close()


def done(file, folder):
    shard = shards(load_config(file))[0]
    path = folder / "shards" / shard.id / "trajectories.zarr"
    return [cell for cell, state in cell_states(path, shard).items() if state == DONE]


def data(file, folder):
    path = folder / "shards" / shards(load_config(file))[0].id / "trajectories.zarr"
    return xr.open_zarr(path, consolidated=False).load().drop_vars("stats")


def test_twenty_kills_at_random_moments_lose_at_most_the_cell_in_flight(sweep, tmp_path):
    file, folder, run = sweep
    fresh = tmp_path / "fresh"
    simulate(load_config(file), fresh)
    unbroken = data(file, fresh)
    mark = folder / "shards" / shards(load_config(file))[0].id / "simulate.done"
    rng = random.Random(0)
    killed, in_flight, finished = 0, 0, []
    while killed < KILLS:
        told = run(rng.uniform(0.1, 1.2))
        assert told["killed"] or told["code"] == 0
        now = done(file, folder)
        began = {tuple(map(float, line.split())) for line in told["began"]}
        assert set(finished) <= set(now)
        assert not began & set(finished), "a finished cell was computed again"
        assert len(began - set(now)) <= 1, "more cells were lost than there are workers"
        assert mark.exists() <= (len(now) == 40)
        killed, in_flight, finished = (
            killed + told["killed"],
            in_flight + len(began - set(now)),
            now,
        )
        if len(now) == 40:
            xr.testing.assert_identical(data(file, folder), unbroken)
            shutil.rmtree(folder)
            finished = []
    assert run()["code"] == 0
    assert in_flight >= 3, "hardly a kill fell into a cell"
    xr.testing.assert_identical(data(file, folder), unbroken)


def test_local_workers_are_kept_through_a_suspension():
    with execute.connect(execute.Workers(1)) as client:
        assert client.cluster.scheduler.worker_ttl is None
