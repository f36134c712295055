"""A real SLURM: jobs and workers that are cancelled, a walltime, too little memory."""

import json
import math
import re
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import xarray as xr
from own_slurm import own_slurm, run, wait, why_not
from snake import ROOT
from tiny_run import simulate, write_config

from mfsweep.sweep.config import load_config
from mfsweep.sweep.grid import shards
from mfsweep.sweep.layout import DONE, FAILED
from mfsweep.sweep.store import cell_states

REASON = why_not()
pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
]
CELLS, OVERDUE = 30, 240
SLOW = {"d": [3], "n_tokens": [250], "beta": [4.0], "seed": CELLS}
TIME = {"t_end": 40.0, "n_times": 3}
FAMILIES = {"a": {"kind": "aligned"}, "i": {"kind": "identity"}}
DASK = ("--dask", "slurm", "--partition", "main", "--interface", "lo", "--max-workers", "2")


@pytest.fixture(scope="module")
def slurm():
    with own_slurm():
        yield


@pytest.fixture(scope="module", autouse=True)
def overdue(slurm, tmp_path_factory):
    """A job with a walltime of a minute whose cells take two: submitted first, looked at last."""
    folder = tmp_path_factory.mktemp("overdue")
    write_config(folder, grid={"beta": [4.0], "seed": OVERDUE})
    return folder, submit(folder, Path(__file__).with_name("slow.py"), "--time=1")


def submit(folder, script, *options):
    """Submit a job that simulates the folder's config on one core; return its id."""
    words = [sys.executable, script, *("simulate", "--config", "config.yaml", "--cores", "1")]
    text = f"#!/bin/sh\nexport PYTHONPATH={ROOT}\nexec {' '.join(map(str, words))}\n"
    (folder / "job.sh").write_text(text)
    out = run("sbatch", "--parsable", "--output=job-%j.log", *options, "job.sh", cwd=folder)
    return out.strip()


def environment(folder):
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin:/usr/sbin:/sbin"
    return {"PATH": path, "HOME": str(folder), "PYTHONPATH": str(ROOT)}


@pytest.fixture
def start():
    """Return a function that starts a Python module, which ends with the test at the latest."""
    started = []

    def start(folder, *words):
        with (folder / "err").open("w") as err:
            process = subprocess.Popen(
                [sys.executable, "-m", *words],
                cwd=folder,
                stdout=subprocess.DEVNULL,
                stderr=err,
                env=environment(folder),
            )
        started.append(process)
        return process

    yield start
    for process in started:
        process.terminate()
        process.wait(60)


def store(folder, shard):
    return folder / "results/tiny/shards" / shard.id / "trajectories.zarr"


def cells(folder, shard, state=DONE):
    return {cell for cell, s in cell_states(store(folder, shard), shard).items() if s == state}


def assert_as_computed_here(folder, config):
    """Hold every number of the folder's shards against a run in this process."""
    simulate(config, folder / "here")
    for shard in shards(config):
        here = folder / "here/shards" / shard.id / "trajectories.zarr"
        one, other = (
            xr.open_zarr(path, consolidated=False).load().drop_vars("stats")
            for path in (store(folder, shard), here)
        )
        xr.testing.assert_equal(one, other)


def jobs(folder, layout):
    """What squeue says of the jobs that were submitted from this folder."""
    lines = run("squeue", "-h", f"-o%Z %A {layout}").splitlines()
    return [line.split()[1:] for line in lines if line.split()[0] == str(folder)]


def test_a_cancelled_job_is_submitted_again_and_the_results_have_the_bits_of_a_local_run(
    tmp_path, start
):
    grid = {**SLOW, "family": ["a", "i"]}
    config = load_config(write_config(tmp_path, grid=grid, time=TIME, families=FAMILIES))
    first, second = shards(config)
    options = {
        "snakefile": ROOT / "Snakefile",
        "workflow-profile": ROOT / "workflow/profiles/slurm",
        "configfile": tmp_path / "config.yaml",
        "until": "simulate",
        "latency-wait": 5,
        "slurm-status-command": "squeue",
        "slurm-init-seconds-before-status-checks": 1,
    }
    words = [f"--{name}={value}" for name, value in options.items()]
    more = ["--set-threads", "simulate=1", "--default-resources", "slurm_partition=main"]
    process = start(tmp_path, "snakemake", *words, *more, "mem_mb=500", "runtime=10")
    wait(lambda: len(cells(tmp_path, first)) >= 3, 120)
    asked = {words[1].rpartition("_")[2]: words for words in jobs(tmp_path, "%k %m %l")}
    assert set(asked) == {first.id, second.id}
    plan = json.loads((tmp_path / "results/tiny/logs/plan.json").read_text())["shards"][first.id]
    megabytes = math.ceil(plan["bytes_worker"] / 1e6) + 1000
    minutes = 10 + math.ceil(plan["seconds"] / 60)
    assert asked[first.id][2:] == [f"{megabytes}M", f"{minutes}:00"]
    run("scancel", asked[first.id][0])
    assert psutil.Process(process.pid).memory_info().rss < 500e6
    assert process.wait(240) == 0, (tmp_path / "err").read_text()
    logs = {
        shard.id: (tmp_path / f"results/tiny/logs/simulate-{shard.id}.log").read_text()
        for shard in (first, second)
    }
    computed, kept = map(int, re.search(r"(\d+) computed, (\d+) al", logs[first.id]).groups())
    assert computed + kept == CELLS
    assert kept >= 3
    assert f"{CELLS} computed, 0 already done" in logs[second.id]
    assert_as_computed_here(tmp_path, config)


def test_a_cancelled_worker_is_replaced_and_the_results_have_the_bits_of_a_local_run(
    tmp_path, start
):
    config = load_config(write_config(tmp_path, grid={**SLOW, "seed": 2 * CELLS}, time=TIME))
    (shard,) = shards(config)
    words = ("mfsweep", "simulate", "--config", "config.yaml", *DASK, "--walltime", "10")
    process = start(tmp_path, *words)
    wait(lambda: len(cells(tmp_path, shard)) >= 3, 120)
    (job, *_), *_ = jobs(tmp_path, "")
    run("scancel", job)
    assert process.wait(240) == 0, (tmp_path / "err").read_text()
    assert_as_computed_here(tmp_path, config)
    wait(lambda: not jobs(tmp_path, ""), 30)
    logs = tmp_path / "results/tiny/logs"
    told = "".join(path.read_text() for path in logs.glob("dask-worker-*.err"))
    assert "tls://127.0.0.1" in told
    assert "tcp://" not in told
    assert not [*logs.glob(".dask*")], "certificates were left behind"


def test_a_cell_without_enough_memory_is_named_with_its_estimate_and_the_remedy(tmp_path, start):
    config = load_config(write_config(tmp_path, grid={"beta": [4.0], "seed": 1}))
    (shard,) = shards(config)
    words = ("mfsweep", "simulate", "--config", "config.yaml", *DASK, "--memory", "200MB")
    process = start(tmp_path, *words)
    assert process.wait(120) == 1
    told = (tmp_path / "err").read_text()
    assert f"mfsweep: {shard.id} beta = 4 seed = 0: its worker died 3 times, most likely" in told
    assert re.search(r"an estimated 0\.27 GB of the 0\.20 GB .*; give more --memory", told)
    assert "KilledWorker" not in told
    assert cells(tmp_path, shard, FAILED) == {(4.0, 0)}


PROFILE = ("snakemake", f"--snakefile={ROOT / 'Snakefile'}", "--configfile=config.yaml")
PLACES = {
    "--dask slurm": ("mfsweep", "simulate", "--config", "config.yaml", *DASK, "--partition"),
    "--workflow-profile": (
        *(*PROFILE, f"--workflow-profile={ROOT / 'workflow/profiles/slurm'}"),
        "--default-resources",
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_an_unknown_partition_is_one_line_within_half_a_minute(tmp_path, start, place):
    write_config(tmp_path)
    began = time.monotonic()
    named = "slurm_partition=nowhere" if "profile" in place else "nowhere"
    process = start(tmp_path, *PLACES[place], named)
    assert process.wait(60) == (1 if "profile" in place else 2)
    assert time.monotonic() - began < 30
    told = (tmp_path / "err").read_text().splitlines()
    (line,) = (line for line in told if line.startswith("mfsweep: "))
    assert line.startswith(f"mfsweep: {place}: SLURM refuses a job (-p nowhere")
    assert re.search("correct (--partition|slurm_partition)", line)
    assert not (tmp_path / "results/tiny/shards").exists()


def test_what_a_walltime_cut_off_is_all_that_the_next_submission_computes(overdue):
    folder, job = overdue
    config = load_config(folder / "config.yaml")
    (shard,) = shards(config)
    wait(lambda: not run("squeue", "-h", "-j", job), 150)
    assert "TIMEOUT" in run("squeue", "-h", "--states=all", "-j", job, "-o%T")
    assert "mfsweep: stopped by SIGTERM" in (folder / f"job-{job}.log").read_text()
    kept = cells(folder, shard)
    assert 50 < len(kept) < OVERDUE
    assert not cells(folder, shard, FAILED)
    assert not [*folder.glob("results/tiny/locks/*.json")]
    assert not store(folder, shard).with_name("simulate.done").exists()
    job = submit(folder, "-m mfsweep")
    wait(lambda: not run("squeue", "-h", "-j", job), 60)
    told = (folder / f"job-{job}.log").read_text()
    assert f"{OVERDUE - len(kept)} computed, {len(kept)} already done, 0 failed" in told
    assert_as_computed_here(folder, config)
