"""The only module that touches Zarr: create, grow, fill and read the stores of a run.

Protocol of a shard's trajectories.zarr: the shard's job creates the store from the template (or
grows it) and alone writes metadata; workers fill disjoint whole chunks, one cell a chunk, and the
cell's status byte last. Every other store is written whole beside its place and moved there.
"""

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from mfsweep._errors import StoreError
from mfsweep._types import Array
from mfsweep.dynamics.simulate import Trajectory
from mfsweep.sweep import layout
from mfsweep.sweep.config import Config
from mfsweep.sweep.folder import provenance
from mfsweep.sweep.grid import Cell, Shard, cell_digest, times
from mfsweep.sweep.layout import COORDINATES, DONE, MISSING, TRAJECTORIES, Variable

FLOAT32_FLOOR = 6e-8
"""Distances below this are rounding where tokens are stored in float32."""


def _put_in_place(partial: Path, path: Path) -> None:
    """Move a finished folder to its name, replacing what is there."""
    old = path.with_name(f".{path.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if path.exists():
        path.rename(old)
    partial.rename(path)
    shutil.rmtree(old, ignore_errors=True)


# ---- arrays --------------------------------------------------------------------------------


def _open(path: Path, mode: Literal["r", "r+"]) -> Any:
    return zarr.open_group(path, mode=mode, use_consolidated=False)


def _codecs() -> list[Any]:
    return [ZstdCodec(level=1), Crc32cCodec()]


def _create(
    group: Any,
    name: str,
    variable: Variable,
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    dtype: str | None = None,
) -> Any:
    """Create one array with explicit fill value, codecs, dims and attributes."""
    text = variable.dtype == "str"
    return group.create_array(
        name,
        shape=shape,
        chunks=chunks,
        dtype=str if text else dtype or variable.dtype,
        fill_value="" if text else variable.fill,
        dimension_names=variable.dims,
        compressors=_codecs(),
        attributes=variable.attrs(),
    )


def _create_coordinate(group: Any, name: str, values: Any) -> None:
    values = np.asarray(values)
    array = _create(group, name, COORDINATES[name], values.shape, (max(1, len(values)),))
    array[:] = values.astype(object) if COORDINATES[name].dtype == "str" else values


def write_whole(
    path: Path,
    dataset: Mapping[str, Array],
    layouts: Mapping[str, Variable],
    coordinates: Mapping[str, Any],
    attrs: Mapping[str, Any],
    chunk_dims: Iterable[str] = (),
) -> None:
    """Write a store beside its place and move it there.

    Parameters
    ----------
    path
        Where the store shall be.
    dataset
        Arrays by name.
    layouts
        Their descriptions.
    coordinates
        Coordinate values by name.
    attrs
        Attributes of the store.
    chunk_dims
        Dims along which a chunk holds one entry; a chunk spans the others.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    auxiliary = [name for name in coordinates if COORDINATES[name].dims != (name,)]
    named = {"coordinates": " ".join(auxiliary)} if auxiliary else {}  # how xarray finds them
    group = zarr.create_group(partial, zarr_format=3, attributes={**attrs, **named})
    single = set(chunk_dims)
    for name, values in coordinates.items():
        _create_coordinate(group, name, values)
    for name, values in dataset.items():
        variable = layouts[name]
        chunks = tuple(
            1 if dim in single else max(1, size)
            for dim, size in zip(variable.dims, values.shape, strict=True)
        )
        _create(group, name, variable, values.shape, chunks)[...] = values
    _put_in_place(partial, path)


# ---- trajectories --------------------------------------------------------------------------


def _shape(variable: Variable, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(sizes[dim] for dim in variable.dims)


def _cell_chunks(variable: Variable, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """One cell, and one seed's masses, a chunk."""
    return _shape(variable, {**sizes, "beta": 1, "seed": 1})


def _sizes(config: Config, shard: Shard) -> dict[str, int]:
    return {
        "beta": len(shard.betas),
        "seed": len(shard.seeds),
        "time": config.time.n_times,
        "token": int(shard.n_tokens),
        "component": shard.d,
        "stat": len(layout.STAT_NAMES),
    }


def prepare(path: Path, config: Config, shard: Shard, masses: Mapping[int, Array]) -> None:
    """Make trajectories.zarr ready for every cell of the shard; existing chunks stay as they are.

    A store made under another cell digest is replaced. Betas and seeds that are new are appended,
    in order of arrival.

    Parameters
    ----------
    path
        The store.
    config, shard
        What is asked for.
    masses
        Masses (token,) by seed.

    Raises
    ------
    StoreError
        If the store's arrays are not chunked one cell a chunk.
    """
    digest = cell_digest(config, shard)
    if stored_digest(path) != digest:
        _create_trajectories(path, config, shard, digest)
    group = _open(path, "r+")
    group.attrs.update(provenance(config))
    for name, wanted in (("beta", shard.betas), ("seed", shard.seeds)):
        _append(group, name, wanted)
    _check_chunks(path, group)
    seeds = group["seed"][:]
    for seed, mass in masses.items():
        group["mass"][int(np.flatnonzero(seeds == seed)[0])] = mass


def _create_trajectories(path: Path, config: Config, shard: Shard, digest: str) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    attrs = {
        **provenance(config),
        "cell_digest": digest,
        "family": shard.family,
        "d": shard.d,
        "gap": shard.gap,
        "n_tokens": shard.n_tokens,
    }
    if config.store.dtype == "float32":
        attrs["distance_floor"] = FLOAT32_FLOOR
    group = zarr.create_group(partial, zarr_format=3, attributes=attrs)
    sizes = {**_sizes(config, shard), "beta": 0, "seed": 0}
    for name, variable in TRAJECTORIES.items():
        dtype = config.store.dtype if name == "tokens" else None
        chunks = _cell_chunks(variable, sizes)
        _create(group, name, variable, _shape(variable, sizes), chunks, dtype)
    _create_coordinate(group, "time", times(config.time))
    _create_coordinate(group, "stat", layout.STAT_NAMES)
    for name in layout.CELL_DIMS:
        _create(group, name, COORDINATES[name], (0,), (1024,))
    _put_in_place(partial, path)


def _append(group: Any, name: str, wanted: Iterable[float]) -> None:
    """Append the wanted coordinate values that are not there yet.

    The data arrays grow first and the coordinate last, so that a crash in between leaves unnamed
    entries, which the next call names.
    """
    known = group[name][:]
    new = [value for value in wanted if value not in known]
    size = len(known) + len(new)
    for variable_name, variable in TRAJECTORIES.items():
        array = group[variable_name]
        axes = zip(variable.dims, array.shape, strict=True)
        shape = tuple(max(old, size) if dim == name else old for dim, old in axes)
        if shape != array.shape:
            array.resize(shape)
    if new:
        coordinate = group[name]
        coordinate.resize((size,))
        coordinate[len(known) :] = new


def _check_chunks(path: Path, group: Any) -> None:
    """Refuse a store in which two cells share a chunk."""
    for name, variable in TRAJECTORIES.items():
        array = group[name]
        wide = {
            dim: chunk
            for dim, chunk, size in zip(variable.dims, array.chunks, array.shape, strict=True)
            if chunk != (1 if dim in layout.CELL_DIMS else size)
        }
        if wide:
            message = f"{path}/{name} has chunks {wide}: expected one cell a chunk; move it away"
            raise StoreError(message)


def stored_digest(path: Path) -> str | None:
    """Return the cell digest that a shard's trajectories were made under; None without a store."""
    if not (path / "zarr.json").exists():
        return None
    digest: str | None = _open(path, "r").attrs.get("cell_digest")
    return digest


def mean_seconds(path: Path) -> float:
    """Return the mean worker-seconds of the cells that are done."""
    group = _open(path, "r")
    seconds = group["stats"][:, :, layout.STAT_NAMES.index("seconds")]
    return float(seconds[group["status"][:] == DONE].mean())


def _position(group: Any, beta: float, seed: int) -> tuple[int, int]:
    row = np.flatnonzero(group["beta"][:] == beta)
    column = np.flatnonzero(group["seed"][:] == seed)
    return int(row[0]), int(column[0])


def cell_states(path: Path, shard: Shard) -> dict[tuple[float, int], int]:
    """Return the state of every cell of the shard: MISSING, DONE or FAILED."""
    states = dict.fromkeys(((cell.beta, cell.seed) for cell in shard.cells()), MISSING)
    if not (path / "zarr.json").exists():
        return states
    group = _open(path, "r")
    betas, seeds, status = group["beta"][:], group["seed"][:], group["status"][:]
    for i, beta in enumerate(betas):
        for j, seed in enumerate(seeds):
            if (beta, seed) in states:
                states[float(beta), int(seed)] = int(status[i, j])
    return states


def write_cell(path: Path, cell: Cell, run: Trajectory, stats: Array) -> None:
    """Fill one cell's chunks and set its status byte last."""
    group = _open(path, "r+")
    at = _position(group, cell.beta, cell.seed)
    group["tokens"][at] = run.tokens
    group["ess_median"][at] = run.ess_median
    group["ess_min"][at] = run.ess_min
    group["stats"][at] = stats
    group["status"][at] = DONE


def mark_cell(path: Path, cell: Cell, state: int) -> None:
    """Set one cell's status byte."""
    group = _open(path, "r+")
    group["status"][_position(group, cell.beta, cell.seed)] = state


def read_cell(path: Path, beta: float, seed: int) -> dict[str, Array] | None:
    """Return tokens (unit length, float64), mass, ess_median and ess_min; None if not done."""
    group = _open(path, "r")
    at = _position(group, beta, seed)
    if group["status"][at] != DONE:
        return None
    tokens = np.asarray(group["tokens"][at], dtype=np.float64)
    if group["tokens"].dtype != np.float64:
        tokens /= np.linalg.norm(tokens, axis=-1, keepdims=True)
    return {
        "tokens": tokens,
        "mass": group["mass"][at[1]],
        "ess_median": group["ess_median"][at],
        "ess_min": group["ess_min"][at],
    }


def read_whole(path: Path) -> tuple[dict[str, Array], dict[str, Any]] | None:
    """Return a store's arrays and attributes; None where there is no store."""
    if not (path / "zarr.json").exists():
        return None
    group = _open(path, "r")
    return {name: array[...] for name, array in group.arrays()}, dict(group.attrs)
