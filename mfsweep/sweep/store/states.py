"""Which cells of a shard are done: read straight from the status chunks, since there are many."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from mfsweep.sweep.grid import NUMERICS_VERSION, Shard
from mfsweep.sweep.layout import CELL_STATS, DONE, FAILED, MISSING, STALE, TRAJECTORIES
from mfsweep.sweep.store.arrays import create_array, naming_damage, open_group

_SAMPLE = 16


@cache
def _encoded() -> dict[bytes, int]:
    """Return the bytes of a status chunk by the state that they hold."""
    found = {}
    for state in (DONE, FAILED):
        chunks: dict[str, Any] = {}
        group = zarr.create_group(zarr.storage.MemoryStore(chunks))
        create_array(group, "status", TRAJECTORIES["status"], (1, 1), (1, 1))[0, 0] = state
        found[chunks["status/c/0/0"].to_bytes()] = state
    return found


def cell_states(path: Path, shard: Shard) -> dict[tuple[float, int], int]:
    """Return the state of every cell of the shard: MISSING, DONE, FAILED or STALE.

    A chunk whose bytes are not those that this Zarr writes is decoded the long way.

    Raises
    ------
    StoreError
        If the store cannot be read.
    """
    states = dict.fromkeys(((cell.beta, cell.seed) for cell in shard.cells()), MISSING)
    if not (path / "zarr.json").exists():
        return states
    with naming_damage(path):
        group = open_group(path, "r")
        rows = {beta: i for i, beta in enumerate(group["beta"][:].tolist())}
        columns = {seed: j for j, seed in enumerate(group["seed"][:].tolist())}
        mixed = group.attrs["numerics_versions"] != [NUMERICS_VERSION]
        for beta, seed in states:
            if beta in rows and seed in columns:
                at = rows[beta], columns[seed]
                state = _state(path, group, at)
                stale = mixed and state == DONE and _numerics(group, at) != NUMERICS_VERSION
                states[beta, seed] = STALE if stale else state
    return states


def _state(path: Path, group: Any, at: tuple[int, int]) -> int:
    try:
        data = (path / f"status/c/{at[0]}/{at[1]}").read_bytes()
    except FileNotFoundError:
        return MISSING
    state = _encoded().get(data)
    return int(group["status"][at]) if state is None else state


def _numerics(group: Any, at: tuple[int, int]) -> int:
    return int(group["stats"][at][CELL_STATS.index("numerics_version")])


def mean_seconds(path: Path, shard: Shard) -> float:
    """Return the mean worker-seconds of up to 16 of the shard's cells that are done."""
    done = [cell for cell, state in cell_states(path, shard).items() if state in (DONE, STALE)]
    with naming_damage(path):
        group = open_group(path, "r")
        betas, seeds = group["beta"][:].tolist(), group["seed"][:].tolist()
        places = [(betas.index(beta), seeds.index(seed)) for beta, seed in done]
        sample = places[:: max(1, len(places) // _SAMPLE)]
        seconds = [group["stats"][at][CELL_STATS.index("seconds")] for at in sample]
    return float(np.mean(seconds))
