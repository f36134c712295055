"""SIGKILL to one Dask worker, to the shard's process, to Snakemake, to all of them."""

import os
import re
import subprocess
import sys
import time

import psutil
import pytest
import xarray as xr
from snake import ROOT, planned, snakemake
from tiny_run import simulate, write_config

from mfsweep.sweep.config import load_config
from mfsweep.sweep.grid import shards
from mfsweep.sweep.layout import DONE
from mfsweep.sweep.store import cell_states

pytestmark = pytest.mark.workflow
CELLS = 45


@pytest.fixture
def sweep(tmp_path):
    """A folder whose config asks for one shard of cells that take about a fifth of a second."""
    grid = {"d": [3], "n_tokens": [250], "beta": [4.0], "seed": CELLS}
    file = write_config(tmp_path, grid=grid, time={"t_end": 40.0, "n_times": 3})
    yield tmp_path, load_config(file)
    for process in psutil.process_iter(["cmdline"]):
        if str(tmp_path) in " ".join(process.info["cmdline"] or ()):
            process.kill()


def start(folder, *arguments):
    command = [sys.executable, "-m", "snakemake", "--cores", "2", "--snakefile", ROOT / "Snakefile"]
    with (folder / "snakemake.err").open("w") as err:
        return subprocess.Popen(
            [*command, "--configfile", folder / "config.yaml", *arguments],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=err,
            env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": str(ROOT)},
        )


def store(folder, config):
    return folder / "results/tiny/shards" / shards(config)[0].id / "trajectories.zarr"


def done(folder, config):
    states = cell_states(store(folder, config), shards(config)[0])
    return {cell for cell, state in states.items() if state == DONE}


def wait_for(count, folder, config):
    end = time.monotonic() + 300
    while len(done(folder, config)) < count:
        assert time.monotonic() < end, (folder / "snakemake.err").read_text()
        time.sleep(0.02)


def simulating(process):
    """The shard's process below Snakemake, and its Dask workers."""
    below = psutil.Process(process.pid).children(recursive=True)
    (shard,) = [
        p for p in below if "-m mfsweep" in " ".join(p.cmdline()) and "bash" not in p.name()
    ]
    workers = [p for p in shard.children(recursive=True) if "spawn_main" in " ".join(p.cmdline())]
    return shard, workers


def log(folder):
    (path,) = folder.glob("results/tiny/logs/simulate-*.log")
    return path.read_text()


def test_kills_of_worker_shard_process_snakemake_and_all_lose_only_cells_in_flight(sweep):
    folder, config = sweep
    run = start(folder)
    wait_for(3, folder, config)
    shard, workers = simulating(run)
    assert len(workers) == 2
    workers[0].kill()  # its nanny starts another one and the cell is tried again
    wait_for(len(done(folder, config)) + 6, folder, config)
    shard.kill()
    assert run.wait(300) == 1
    kept = done(folder, config)
    assert "simulate" in planned(folder)

    run = start(folder)
    wait_for(len(kept) + 4, folder, config)
    assert kept <= done(folder, config)
    shard, workers = simulating(run)
    run.kill()
    run.wait()
    for process in (shard, *workers):  # left at work by Snakemake; held up, or it would finish
        process.suspend()
    second = snakemake(folder, check=False)
    assert second.returncode != 0
    assert re.search(
        rf"mfsweep: snakemake on host .*, process {run.pid}, .* is gone", second.stderr
    )
    assert f"process {shard.pid}, since" in second.stderr
    snakemake(folder, "--unlock")
    refused = snakemake(folder, "--rerun-incomplete", check=False)
    assert refused.returncode != 0
    assert f"is in use: mfsweep simulate on host {os.uname().nodename}, process {shard.pid}" in (
        refused.stderr
    )

    for process in (shard, *workers):
        process.kill()
    gone = psutil.wait_procs([shard, *workers], timeout=120)[1]
    assert not gone
    kept = done(folder, config)
    run = start(folder, "--rerun-incomplete")
    wait_for(len(kept) + 3, folder, config)
    shard, workers = simulating(run)
    for process in (run, shard, *workers):
        process.kill()
    run.wait()
    psutil.wait_procs([shard, *workers], timeout=120)
    kept = done(folder, config)
    assert len(kept) < CELLS
    snakemake(folder, "--unlock")
    assert "simulate" in planned(folder)
    snakemake(folder, "--until", "simulate", "--rerun-incomplete")
    told = re.search(r": (\d+) computed, (\d+) already done, 0 failed", log(folder))
    assert tuple(map(int, told.groups())) == (CELLS - len(kept), len(kept))
    assert planned(folder) == {"measure", "collect", "figures", "report", "all"}

    simulate(config, folder / "fresh")
    fresh = folder / "fresh/shards" / shards(config)[0].id / "trajectories.zarr"
    one, other = (
        xr.open_zarr(path, consolidated=False).load().drop_vars("stats")
        for path in (store(folder, config), fresh)
    )
    xr.testing.assert_identical(one, other)
