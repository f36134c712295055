"""What is damaged: every byte of a store is read and held against checksum, seal or template.

Chunks carry crc32c; the group's attributes carry a seal; an array's metadata must equal what the
template makes for the coordinates found; a done cell has every chunk.
"""

import json
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.core.buffer import default_buffer_prototype

from mfsweep.sweep.config import Config
from mfsweep.sweep.folder import intact
from mfsweep.sweep.grid import Shard, cell_digest, times
from mfsweep.sweep.layout import (
    CELL_DIMS,
    CELL_STATS,
    COORDINATES,
    DONE,
    MISSING,
    Variable,
    trajectories,
)
from mfsweep.sweep.store.arrays import create_coordinate, create_group, open_group
from mfsweep.sweep.store.trajectories import create_trajectories, unnamed_done
from mfsweep.sweep.store.whole import create_whole


@dataclass(frozen=True)
class Damage:
    """One thing that does not read as it was written."""

    path: Path
    """The store or file."""
    variable: str
    """The array, or the metadata file."""
    why: str
    beta: float | None = None
    seed: int | None = None


def trajectories_damage(
    path: Path, config: Config, shard: Shard, *, finished: bool
) -> Iterator[Damage]:
    """Yield what is damaged in a shard's trajectories.zarr.

    Of a store of other settings, what cannot be read.

    Parameters
    ----------
    path
        The store.
    config, shard
        What it was made for.
    finished
        Whether simulate.done says that every cell of the shard is done.
    """
    root = list(_root_damage(path))
    if root:
        yield from root
        return
    group = open_group(path, "r")
    if group.attrs["settings_digest"] != cell_digest(config, shard, numerics=False):
        yield from unreadable(path)
        return
    found = list(_axes_damage(path, group))
    if not found:
        betas, seeds = group["beta"][:], group["seed"][:]
        expected = create_trajectories(_memory(), config, shard, {}, betas, seeds)
        found = list(_metadata_damage(path, expected, growing=not finished))
        found = found or list(_unnamed_damage(path, group))
        values = {"time": times(config.time), "stat": np.array(CELL_STATS, object)}
        found += _values_damage(path, group, values) if not found else ()
    yield from found
    if not found:
        if not shard.continuum:
            yield from _mass_damage(path, group)
        counted = {(cell.beta, cell.seed) for cell in shard.cells()} if finished else set()
        names = [name for name in trajectories(shard.n_tokens) if name != "mass"]
        yield from _cells_damage(path, group, names, counted)


def unreadable(path: Path) -> Iterator[Damage]:
    """Yield what cannot be read of a store, whatever it was made for.

    A store with cells is read cell by cell, so that each is named; a done one has every chunk.
    """
    root = list(_root_damage(path))
    yield from root
    if root:
        return
    group = open_group(path, "r")
    of_cells = []
    for name in sorted(entry.name for entry in path.iterdir() if entry.is_dir()):
        try:
            by_cell = "status" in group and group[name].metadata.dimension_names[:2] == CELL_DIMS
            if by_cell:
                of_cells.append(name)
            else:
                group[name][...]
        except Exception as error:  # whatever damaged metadata or a codec raise
            yield Damage(path, name, _said(error))
    if of_cells and not list(_axes_damage(path, group)):
        yield from _cells_damage(path, group, of_cells, set())


def _memory() -> Any:
    return zarr.storage.MemoryStore()


def _root_damage(path: Path) -> Iterator[Damage]:
    try:
        document = json.loads((path / "zarr.json").read_bytes())
        sound = intact(document.pop("attributes"))
        sound &= document == {"zarr_format": 3, "node_type": "group"}
        why = "does not match its seal"
    except (ValueError, KeyError, AttributeError, TypeError, OSError) as error:
        sound, why = False, f"cannot be read ({type(error).__name__}: {error})"
    if not sound:
        yield Damage(path, "zarr.json", why)


def _axes_damage(path: Path, group: Any) -> Iterator[Damage]:
    """Yield a beta or seed coordinate that cannot be read or names no cells."""
    for name in ("beta", "seed"):
        try:
            values = group[name][:]
            sound = len(np.unique(values)) == len(values) and bool((values >= 0).all())
            if not sound:
                yield Damage(path, name, "repeats a value or lacks one")
        except Exception as error:  # whatever a codec raises on damaged bytes
            yield Damage(path, name, _said(error))


def _metadata_damage(path: Path, expected: Any, *, growing: bool = False) -> Iterator[Damage]:
    """Yield arrays whose metadata are not the template's; unnamed entries may exist in growth."""
    for name, array in expected.arrays():
        try:
            found = json.loads((path / name / "zarr.json").read_bytes())
            wanted = _document(array)
            if growing and all(a >= b for a, b in zip(found["shape"], array.shape, strict=True)):
                found["shape"] = wanted["shape"]
            why = "" if found == wanted else "differs from the template"
        except (ValueError, KeyError, TypeError, OSError) as error:
            why = f"cannot be read ({type(error).__name__}: {error})"
        if why:
            yield Damage(path, f"{name}/zarr.json", why)


def _unnamed_damage(path: Path, group: Any) -> Iterator[Damage]:
    try:
        if unnamed_done(group):
            yield Damage(path, "beta", "beta or seed names fewer cells than were computed")
    except Exception as error:  # whatever a codec raises on damaged bytes
        yield Damage(path, "status", _said(error))


def _document(array: Any) -> Any:
    buffers = array.metadata.to_buffer_dict(default_buffer_prototype())
    return json.loads(buffers["zarr.json"].to_bytes())


def _values_damage(path: Path, group: Any, wanted: Mapping[str, Any]) -> Iterator[Damage]:
    for name, values in wanted.items():
        found, why = _read(group[name], ...)
        if why or not np.array_equal(found, values):
            yield Damage(path, name, why or "differs from the config")


def _mass_damage(path: Path, group: Any) -> Iterator[Damage]:
    mass = group["mass"]
    for column, seed in enumerate(group["seed"][:].tolist()):
        found, why = _read(mass, column)
        if why or np.isnan(found).any():
            yield Damage(path, "mass", why or "a chunk is missing", None, seed)


def _cells_damage(
    path: Path, group: Any, names: Iterable[str], counted: Container[tuple[float, int]]
) -> Iterator[Damage]:
    """Yield damaged cells, and those that simulate.done counts and that are missing."""
    arrays = {name: group[name] for name in names}
    betas, seeds = group["beta"][:].tolist(), group["seed"][:].tolist()
    for at in np.ndindex(len(betas), len(seeds)):
        beta, seed = betas[at[0]], seeds[at[1]]
        state, why = _read(arrays["status"], at)
        if why:
            yield Damage(path, "status", why, beta, seed)
        elif state == DONE:
            for name, said in _chunks_damage(arrays, at, warm=bool(np.isfinite(beta))):
                yield Damage(path, name, said, beta, seed)
        elif state == MISSING and (beta, seed) in counted:
            yield Damage(path, "status", "missing, though simulate.done counts it", beta, seed)


def _chunks_damage(
    arrays: Mapping[str, Any], at: tuple[int, ...], *, warm: bool
) -> Iterator[tuple[str, str]]:
    """Yield variables of a done cell that cannot be read or lack their chunk.

    At infinite beta no average is taken and the effective sample sizes are NaN; the continuum has
    no log_energy.
    """
    for name in sorted(arrays.keys() - {"status"}):
        empty = name == "log_energy" or (name.startswith("ess") and not warm)
        for when in _parts(arrays[name]):
            found, why = _read(arrays[name], (*at, when))
            if not why and np.isnan(found).all() and not empty:
                why = "the chunk is missing"
            if why:
                yield name, why
                break


def _parts(array: Any) -> Iterator[slice]:
    """Yield a cell's parts that are decoded one at a time."""
    size, step = array.shape[2], array.chunks[2]
    yield from (slice(first, first + step) for first in range(0, size, step))


def _read(array: Any, at: Any) -> tuple[Any, str]:
    """Return what an array holds there, or why it cannot be read."""
    try:
        return array[at], ""
    except Exception as error:  # whatever a codec raises on damaged bytes
        return None, _said(error)


def _said(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:120]


def whole_damage(
    path: Path, layouts: Mapping[str, Variable], dims: Iterable[str], chunk_dims: Iterable[str] = ()
) -> Iterator[Damage]:
    """Yield what is damaged in a store that `write_whole` wrote.

    Parameters
    ----------
    path
        The store.
    layouts
        Descriptions of its arrays.
    dims
        Names of its dims; each has a coordinate.
    chunk_dims
        As it was written.
    """
    root = list(_root_damage(path))
    if root:
        yield from root
        return
    group = open_group(path, "r")
    names = [*dims, *str(group.attrs.get("coordinates", "")).split()]
    found, values = [], {}
    for name in names:
        try:
            values[name] = group[name][...]
        except Exception as error:  # whatever damaged metadata or a codec raise
            found.append(Damage(path, name, _said(error)))
    if not found:
        expected = create_group(_memory(), {})
        for name in names:
            create_coordinate(expected, name, values[name])
        sizes = {dim: len(values[dim]) for name in names for dim in COORDINATES[name].dims}
        for name, variable in layouts.items():
            shape = tuple(sizes[dim] for dim in variable.dims)
            create_whole(expected, name, variable, shape, chunk_dims)
        found = list(_metadata_damage(path, expected))
    yield from found
    if not found:
        for name in layouts:
            why = _read(group[name], ...)[1]
            if why:
                yield Damage(path, name, why)
