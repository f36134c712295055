"""What a config costs: cells, bytes, memory and time, before anything runs."""

import json
import math
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from mfsweep._errors import InputError
from mfsweep.analysis.wasserstein import LARGEST_PLAN
from mfsweep.dynamics.continuum import BINS, compile_continuum, simulate_continuum
from mfsweep.dynamics.drift import softmax_drift
from mfsweep.dynamics.simulate import LONGEST_STEP
from mfsweep.sweep import layout
from mfsweep.sweep.blocks import block_times
from mfsweep.sweep.cell import start, weights_of
from mfsweep.sweep.config import Config
from mfsweep.sweep.continuum import initial_density
from mfsweep.sweep.grid import Shard, shards

BASE_BYTES = 270e6
"""A worker process with what a tiny cell needs: interpreter, libraries, compiled code; measured."""
BLOCKS = 7.8
"""Peak of a measurement in units of a block of times: decoding, the reference, differences;
measured 7.5 to 8.0. A simulation holds 4.0 to 4.8."""
TOKEN_ARRAYS = 24
"""Token arrays that a step holds, with what the sums need; measured."""
STEPS_PER_SHORTEST = 2.2
"""Accepted and rejected steps over the least number that the longest step allows: measured 1.5
to 2.4 over beta from 8 to 512 at d = 2."""
EVALUATIONS_PER_STEP = {"dopri5": 6, "bs32": 3}
MARGIN = 1.5
"""What a job asks for, memory or time, over the estimate."""
_PROBE_TOKENS = 2048
_PROBES = 3
EVALUATIONS_PER_UNIT = 80
"""Evaluations of the continuum's velocity per unit of time times |V|_2: measured 17 to 92."""
TWO_MESHES = 1.5
"""Time of the continuum at two resolutions over that at the finer one."""
VALUES_PER_CELL = 30
"""Numbers that both runs hold for a cell of the finer mesh and a saved time: 25 measured."""
SECONDS_PER_SAVED_TIME = 6e-3
"""Saving and measuring both runs of the continuum."""
_PROBE_TIME = 2.0


@dataclass(frozen=True)
class Cost:
    """What one shard asks for."""

    shard: Shard
    cells: int
    bytes_stored: float
    """Upper bound: token arrays hardly compress."""
    bytes_worker: float
    """Peak memory of one worker process."""
    seconds: float
    """Worker-seconds on this machine, from one drift of the initial tokens: an upper estimate,
    since tokens on the circle condense to fewer nodes later."""


def plan(config: Config) -> tuple[Cost, ...]:
    """Estimate every shard's cost; times one drift per (family, d, gap, n_tokens), on one thread.

    More would wait for each other on a busy machine, which counts as work; a worker has one.
    """
    with threadpool_limits(1):
        return tuple(_cost(config, shard) for shard in shards(config))


def told(costs: tuple[Cost, ...]) -> str:
    """Return as JSON what a shard's job should ask for: bytes of each worker, worker-seconds."""
    named = {
        cost.shard.id: {
            "cells": cost.cells,
            "bytes_worker": MARGIN * cost.bytes_worker,
            "seconds": MARGIN * cost.seconds,
        }
        for cost in costs
    }
    return json.dumps(named)


def _cost(config: Config, shard: Shard) -> Cost:
    if shard.continuum:
        return _continuum_cost(config, shard)
    n, cells = int(shard.n_tokens), len(shard.betas) * len(shard.seeds)
    values = config.time.n_times * n * shard.d
    itemsize = np.dtype(config.store.dtype).itemsize
    return Cost(
        shard,
        cells,
        cells * values * itemsize,
        worker_bytes(config, shard),
        cells * _evaluations(config, shard) * _seconds_per_drift(config, shard),
    )


def worker_bytes(config: Config, shard: Shard) -> float:
    """Estimate the peak memory of one worker process on any cell of the shard."""
    if shard.continuum:
        return _continuum_cost(config, shard).bytes_worker
    return BASE_BYTES + 8.0 * _peak_values(config, shard)


def job_bytes(config: Config, shard: Shard) -> float:
    """Return the memory to give a worker, so that it is neither killed nor told to pause."""
    return MARGIN * worker_bytes(config, shard)


def _peak_values(config: Config, shard: Shard) -> float:
    """Count the numbers that a worker holds at its peak, which is in measuring.

    Exact transport to more than two atoms holds 6 numbers a pair, as long as it holds the matrix of
    costs.
    """
    n = int(shard.n_tokens)
    pairs = n**2 if n <= LARGEST_PLAN else 0
    transport = 6 * pairs if weights_of(config, shard).assumptions().multiplicity > 1 else 0
    arrays = BLOCKS * block_times(config, shard) + TOKEN_ARRAYS
    return arrays * n * shard.d + transport


def _evaluations(config: Config, shard: Shard) -> float:
    """Drift evaluations of one cell, from the least number of steps."""
    shortest = (
        config.time.t_end / LONGEST_STEP * float(np.linalg.norm(weights_of(config, shard).V, 2))
    )
    return STEPS_PER_SHORTEST * shortest * EVALUATIONS_PER_STEP[config.solver.method]


def _seconds_per_drift(config: Config, shard: Shard) -> float:
    """Time one drift at the shard's middle beta on at most 2048 tokens; scale by n^2.

    Processor time, and the least of three: other work on the machine counts for little.
    """
    finite = [beta for beta in shard.betas if math.isfinite(beta)] or [1.0]
    beta = finite[len(finite) // 2]
    tokens, _ = start(config, shard, shard.seeds[0])
    probe = tokens[:_PROBE_TOKENS]
    weights = weights_of(config, shard)
    softmax_drift(probe[:2], weights, beta)  # compiles or loads the kernel
    seconds = []
    for _ in range(_PROBES):
        began = time.process_time()
        softmax_drift(probe, weights, beta)
        seconds.append(time.process_time() - began)
    return min(seconds) * (len(tokens) / len(probe)) ** 2


def _continuum_cost(config: Config, shard: Shard) -> Cost:
    """Estimate the continuum's cost by a short run at the largest finite beta."""
    cells, saved = len(shard.betas) * len(shard.seeds), config.time.n_times
    weights, law = weights_of(config, shard), initial_density(config, shard)
    beta = max((b for b in shard.betas if np.isfinite(b)), default=math.inf)
    probe = np.array([0.0, min(_PROBE_TIME, config.time.t_end)])
    compile_continuum()
    began = time.process_time()
    run = simulate_continuum(
        law, weights, beta, times=probe, resolution=config.solver.resolution, grid=1
    )
    evaluation = (time.process_time() - began) / run.stats.drift_evaluations
    unit = float(np.linalg.norm(weights.V, 2)) * config.time.t_end
    values = saved * (BINS + len(layout.shard_curves(shard.n_tokens)))
    return Cost(
        shard,
        cells,
        cells * values * np.dtype(config.store.dtype).itemsize,
        BASE_BYTES + 8.0 * saved * (BINS + VALUES_PER_CELL * len(run.edges[-1])),
        cells
        * (TWO_MESHES * EVALUATIONS_PER_UNIT * unit * evaluation + SECONDS_PER_SAVED_TIME * saved),
    )


def refuse_what_cannot_fit(costs: tuple[Cost, ...], results: Path, workers: int) -> None:
    """Refuse a plan that needs more disk or memory than there is.

    Raises
    ------
    InputError
        One line that names the key to change.
    """
    existing = next(p for p in (results.absolute(), *results.absolute().parents) if p.exists())
    free = shutil.disk_usage(existing).free
    stored = sum(cost.bytes_stored for cost in costs)
    if stored > free:
        message = (
            f"time.n_times and grid ask for {stored / 1e9:.3g} GB on disk, {free / 1e9:.3g} GB are "
            "free: lower time.n_times, set store.dtype to float32, or narrow the grid"
        )
        raise InputError(message)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    worst = max(costs, key=lambda cost: cost.bytes_worker)
    if workers * worst.bytes_worker > memory:
        message = (
            f"grid.n_tokens = {worst.shard.n_tokens:g} at d = {worst.shard.d} needs "
            f"{worst.bytes_worker / 1e9:.3g} GB a worker, {workers} workers have "
            f"{memory / 1e9:.3g} GB: lower time.n_times or n_tokens, or use fewer workers"
        )
        raise InputError(message)
