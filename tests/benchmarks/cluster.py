"""Print what distribution costs: two workers, a thousand tiny cells, the plan of 100 shards.

    python tests/benchmarks/cluster.py [workers] [cells] [plan]

All three if none is named. Ratios are of one run on an otherwise idle machine of two cores or more.
"""

import multiprocessing
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import yaml

from mfsweep.dynamics.simulate import compile_kernels
from mfsweep.sweep.cell import run_cell
from mfsweep.sweep.config import load_config
from mfsweep.sweep.execute import simulate_shard
from mfsweep.sweep.folder import shard_folder
from mfsweep.sweep.grid import shards
from mfsweep.sweep.store import mean_seconds
from mfsweep.sweep.workers import Workers

ROOT = Path(__file__).parents[2]
LOOPS = 300_000_000
LEAST_RATIO, MOST_OVERHEAD, MOST_MEGABYTES = 0.9, 0.030, 500


def write(folder, **changes):
    grid = {"family": ["a"], "d": [2], "gap": [0.5], "n_tokens": [8], "beta": [4.0], "seed": 1}
    config = {
        "run": "bench",
        "grid": grid | changes.pop("grid"),
        "families": {"a": {"kind": "aligned"}},
        "time": {"t_end": 1.0, "n_times": 3},
    }
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(config | changes))
    return file


def seconds(task, *arguments):
    began = time.perf_counter()
    task(*arguments)
    return time.perf_counter() - began


def simulated(config, workers):
    """When each of a shard's cells ended, a cell's mean by itself, and the processor's seconds."""
    with tempfile.TemporaryDirectory() as name:
        folder, (shard,), ends = Path(name), shards(config), []

        def advance(outcome, total):
            assert not outcome.failures, outcome.failures
            ends.append(time.perf_counter())

        began = time.process_time()
        simulate_shard(config, shard, folder, Workers(workers), advance)
        spent = time.process_time() - began
        path = shard_folder(folder, shard) / "trajectories.zarr"
        return ends, mean_seconds(path, shard), spent


def arithmetic(loops):
    value = 1.0
    for _ in range(loops // 50):
        value = value * 1.0000001 + 1e-9
    return value


def two_processes():
    """How much faster two processes do plain arithmetic than one."""
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.map(arithmetic, [1, 1])
        one = seconds(pool.map, arithmetic, [LOOPS], 1)
        two = seconds(pool.map, arithmetic, [LOOPS, LOOPS], 1)
    return 2 * one / two


def workers():
    """Hold two workers against one, on 32 equal cells, and against plain arithmetic."""
    with tempfile.TemporaryDirectory() as name:
        grids = [{"d": [3], "n_tokens": [900], "seed": 32 + count} for count in (1, 2)]
        length = {"t_end": 30.0, "n_times": 3}
        configs = [load_config(write(Path(name), grid=grid, time=length)) for grid in grids]
    compile_kernels(3)
    control = [two_processes()]
    spent = []
    for count, config in enumerate(configs, 1):  # the first cell of each worker is not counted
        ends, *_ = simulated(config, count)
        spent.append(ends[-1] - ends[count - 1])
    control.append(two_processes())
    ratio, best = spent[0] / spent[1], sum(control) / 2
    print(f"32 cells on one worker     {spent[0]:8.2f} s")
    print(f"32 cells on two workers    {spent[1]:8.2f} s   ratio {ratio:.2f}")
    print(
        f"arithmetic, two processes             ratio {best:.2f} "
        f"(before {control[0]:.2f}, after {control[1]:.2f})"
    )
    verdict("two workers over arithmetic", ratio / best, ratio / best >= LEAST_RATIO)


def cells():
    """Print what Dask and Zarr take for a cell beside its own computation."""
    with tempfile.TemporaryDirectory() as name:
        config = load_config(write(Path(name), grid={"seed": 1001}))
    compile_kernels(2)
    (shard,) = shards(config)
    began = time.process_time()
    for cell in shard.cells():
        run_cell(config, cell)
    alone = (time.process_time() - began) / 1001
    ends, own, spent = simulated(config, 1)  # in this process, scheduler and worker too
    print(f"a cell computes for {1e3 * own:.2f} ms, {1e3 * alone:.2f} ms of the processor")
    beside = (ends[-1] - ends[0]) / 1000 - own
    verdict("milliseconds beside it", 1e3 * beside, beside < MOST_OVERHEAD)
    beside = spent / 1001 - alone
    verdict("of the processor, start included", 1e3 * beside, beside < MOST_OVERHEAD)


def plan():
    """Print jobs, memory and time of 100 shards on the SLURM profile, and the planner's memory."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        gaps = [round((k + 1) / 101, 6) for k in range(100)]
        grid = {"gap": gaps, "n_tokens": [2048], "beta": {"geom": [8, 512, 6]}, "seed": 8}
        write(folder, grid=grid, time={"t_end": 40.0, "n_times": 161})
        began = time.perf_counter()
        out, peak = dry_run(folder)
        spent = time.perf_counter() - began
    jobs = re.findall(r"^(\w+) +(\d+)$", out, re.MULTILINE)
    asked = re.findall(r"threads: (\d+)\n.*mem_mb=(\d+),.* runtime=(\d+)", out)
    print("jobs:", ", ".join(f"{count} {rule}" for rule, count in jobs))
    for name, k in (("cores", 0), ("MB", 1), ("minutes", 2)):
        values = sorted(int(one[k]) for one in asked)
        print(f"{name} of a shard's job: {values[0]} to {values[-1]}")
    print(f"planned in {spent:.1f} s")
    verdict("megabytes of Snakemake at its peak", peak, peak < MOST_MEGABYTES)


def dry_run(folder):
    """Return what a dry run on the SLURM profile prints, and its peak in megabytes."""
    options = {
        "snakefile": ROOT / "Snakefile",
        "configfile": folder / "config.yaml",
        "workflow-profile": ROOT / "workflow/profiles/slurm",
    }
    words = [f"--{name}={value}" for name, value in options.items()]
    with (folder / "out").open("w+") as out:
        process = psutil.Popen(
            [sys.executable, "-m", "snakemake", "--dry-run", *words],
            cwd=folder,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        peak = 0
        while process.poll() is None:
            try:
                peak = max(peak, process.memory_info().rss)
            except psutil.NoSuchProcess:
                break
            time.sleep(0.05)
        out.seek(0)
        text = out.read()
    assert process.wait() == 0, text
    return text, peak / 1e6


def verdict(name, value, met):
    print(f"{name:36} {value:6.2f}   {'met' if met else 'NOT MET'}")


if __name__ == "__main__":
    for name in sys.argv[1:] or ("workers", "cells", "plan"):
        {"workers": workers, "cells": cells, "plan": plan}[name]()
