"""A shard's trajectories.zarr: created or grown by its job, filled by workers, one cell a file."""

import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from mfsweep._errors import StoreError
from mfsweep._types import Array
from mfsweep.dynamics.continuum import BINS
from mfsweep.dynamics.simulate import Keep, Trajectory
from mfsweep.sweep import layout
from mfsweep.sweep.blocks import Blocks, block_times
from mfsweep.sweep.config import Config
from mfsweep.sweep.folder import provenance, seal
from mfsweep.sweep.grid import NUMERICS_VERSION, Cell, Shard, cell_digest, given, times
from mfsweep.sweep.layout import COORDINATES, DONE, MISSING, Variable
from mfsweep.sweep.store.arrays import (
    create_array,
    create_coordinate,
    create_group,
    naming_damage,
    open_group,
    partial_folder,
    put_in_place,
    recover,
)
from mfsweep.sweep.store.tokens import token_file

FLOAT32_FLOOR = 6e-8
"""Distances below this are rounding where tokens are stored in float32."""


def prepare(path: Path, config: Config, shard: Shard, masses: Mapping[int, Array]) -> None:
    """Make trajectories.zarr ready for every cell of the shard; existing chunks stay as they are.

    A store made under other settings is replaced. Betas and seeds that are new are appended, in
    order of arrival.

    Parameters
    ----------
    path
        The store.
    config, shard
        What is asked for.
    masses
        Masses (token,) by seed; none for the continuum.

    Raises
    ------
    StoreError
        If the store is damaged, or its files hold not one cell each.
    """
    recover(path)
    with naming_damage(path):
        if stored_settings(path) != cell_digest(config, shard, numerics=False):
            partial = partial_folder(path)
            create_trajectories(partial, config, shard, signature(config, shard))
            put_in_place(partial, path)
        group = open_group(path, "r+")
        _check_chunks(path, group, shard)
        _check_unnamed(path, group)
        for name, wanted in (("beta", shard.betas), ("seed", shard.seeds)):
            _append(group, shard, name, wanted)
        _fill_masses(group, masses)


def signature(config: Config, shard: Shard, versions: Iterable[int] = ()) -> dict[str, Any]:
    """Return the attributes of a shard's store.

    ``numerics_versions`` lists every version that ever wrote a cell here, this one included.
    """
    attrs = {
        **provenance(config),
        "settings_digest": cell_digest(config, shard, numerics=False),
        "numerics_versions": sorted({*versions, NUMERICS_VERSION}),
        **shard.place,
        **_units(config, shard),
    }
    return attrs | ({"distance_floor": FLOAT32_FLOOR} if config.store.dtype == "float32" else {})


def _units(config: Config, shard: Shard) -> dict[str, float]:
    """Return what a file's V and B were divided by, and a trained head's own beta."""
    source = given(config, shard)
    if source is None:
        return {}
    units = {"unit_B": source.unit_B, "unit_V": source.unit_V, "own_beta": source.own_beta}
    return {name: value for name, value in units.items() if not math.isnan(value)}


def sign(path: Path, config: Config, shard: Shard) -> None:
    """Note in the store's attributes what is about to write cells."""
    with naming_damage(path):
        group = open_group(path, "r+")
        versions = group.attrs["numerics_versions"]
        group.attrs.put(seal(signature(config, shard, versions)))


def create_trajectories(
    where: Any,
    config: Config,
    shard: Shard,
    attrs: Mapping[str, Any],
    betas: Iterable[float] = (),
    seeds: Iterable[int] = (),
) -> Any:
    """Create the store from the template, its cells all missing."""
    names = {"beta": np.array([*betas], np.float64), "seed": np.array([*seeds], np.int64)}
    sizes = {
        **{name: len(values) for name, values in names.items()},
        "time": config.time.n_times,
        **({"theta": BINS} if shard.continuum else {"token": int(shard.n_tokens)}),
        "component": shard.d,
        "stat": len(layout.CELL_STATS),
    }
    group = create_group(where, attrs)
    for name, variable in layout.trajectories(shard.n_tokens).items():
        dtype = config.store.dtype if name in ("tokens", "density") else None
        file = {**sizes, "beta": 1, "seed": 1}  # one cell, or one seed's masses
        chunks, shards = _shape(variable, file), None
        if name == "tokens":
            block = block_times(config, shard)
            chunks = _shape(variable, {**file, "time": block})
            whole = math.ceil(config.time.n_times / block) * block
            shards = _shape(variable, {**file, "time": whole})
        create_array(group, name, variable, _shape(variable, sizes), chunks, dtype, shards)
    create_coordinate(group, "time", times(config.time))
    create_coordinate(group, "stat", layout.CELL_STATS)
    if shard.continuum:
        create_coordinate(group, "theta", 2 * np.pi * (np.arange(BINS) + 0.5) / BINS)
    for name, values in names.items():
        create_array(group, name, COORDINATES[name], values.shape, (1024,))[:] = values
    return group


def _shape(variable: Variable, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(sizes[dim] for dim in variable.dims)


def _append(group: Any, shard: Shard, name: str, wanted: Iterable[float]) -> None:
    """Append the wanted coordinate values that are not there yet.

    The data arrays grow first and the coordinate last, so that a crash in between leaves unnamed
    entries, which hold nothing and which the next call names or cuts off.
    """
    known = group[name][:]
    new = [value for value in wanted if value not in known]
    size = len(known) + len(new)
    for variable_name, variable in layout.trajectories(shard.n_tokens).items():
        array = group[variable_name]
        axes = zip(variable.dims, array.shape, strict=True)
        shape = tuple(size if dim == name else old for dim, old in axes)
        if shape != array.shape:
            array.resize(shape)
    if new:
        coordinate = group[name]
        coordinate.resize((size,))
        coordinate[len(known) :] = new


def _fill_masses(group: Any, masses: Mapping[int, Array]) -> None:
    """Write the masses of the seeds that have none yet."""
    column = {seed: k for k, seed in enumerate(group["seed"][:].tolist())}
    columns = np.array([column[seed] for seed in masses], dtype=np.intp)
    if columns.size:
        lacking = np.isnan(group["mass"].oindex[columns]).any(axis=1)
        if lacking.any():
            group["mass"].oindex[columns[lacking]] = np.stack([*masses.values()])[lacking]


def _check_chunks(path: Path, group: Any, shard: Shard) -> None:
    """Refuse a store in which two cells share a file."""
    for name, variable in layout.trajectories(shard.n_tokens).items():
        array = group[name]
        file = array.shards if name == "tokens" else array.chunks
        sizes = zip(variable.dims, file or (), array.shape, strict=bool(file))
        if not file or any(
            part != 1 if dim in layout.CELL_DIMS else part < size for dim, part, size in sizes
        ):
            message = f"{path}/{name} has files {file}: expected one cell a file; move it away"
            raise StoreError(message)


def _check_unnamed(path: Path, group: Any) -> None:
    """Refuse a store whose coordinates name fewer cells than were computed."""
    if unnamed_done(group):
        message = f"{path}: computed cells have no beta or seed; run mfsweep verify --repair"
        raise StoreError(message)


def unnamed_done(group: Any) -> bool:
    """Tell whether a cell beyond the named betas and seeds was ever written."""
    rows, columns = (group[name].shape[0] for name in layout.CELL_DIMS)
    status = group["status"]
    if status.shape == (rows, columns):
        return False
    found = status[:]
    return bool((found[rows:] != MISSING).any() or (found[:, columns:] != MISSING).any())


def stored_settings(path: Path) -> str | None:
    """Return the settings' digest that a shard's store was made under; None without a store."""
    if not (path / "zarr.json").exists():
        return None
    with naming_damage(path):
        digest: str | None = open_group(path, "r").attrs.get("settings_digest")
        return digest


def axes(path: Path) -> tuple[list[float], list[int]]:
    """Return the betas and the seeds that a shard's store holds, in order of arrival."""
    if not (path / "zarr.json").exists():
        return [], []
    with naming_damage(path):
        group = open_group(path, "r")
        return group["beta"][:].tolist(), group["seed"][:].tolist()


def _position(group: Any, beta: float, seed: int) -> tuple[int, int]:
    row = np.flatnonzero(group["beta"][:] == beta)
    column = np.flatnonzero(group["seed"][:] == seed)
    return int(row[0]), int(column[0])


@lru_cache(maxsize=4)
def _opened(path: Path, _written: int) -> tuple[dict[str, Any], list[float], list[int]]:
    """Return a store's arrays, betas and seeds: opening them takes longer than a small cell."""
    group = open_group(path, "r+")
    arrays: dict[str, Any] = dict(group.arrays())
    return arrays, arrays["beta"][:].tolist(), arrays["seed"][:].tolist()


def _to_fill(path: Path, cell: Cell) -> tuple[dict[str, Any], tuple[int, int]]:
    """Return the arrays of a store as it was signed, and a cell's place in them."""
    arrays, betas, seeds = _opened(path, (path / "zarr.json").stat().st_mtime_ns)
    return arrays, (betas.index(cell.beta), seeds.index(cell.seed))


def _unset(path: Path, arrays: Mapping[str, Any], at: tuple[int, int]) -> None:
    """Mark a cell as missing, as it is if it has no status yet."""
    if path.joinpath("status", "c", *map(str, at)).exists():
        arrays["status"][at] = MISSING


def write_cell(path: Path, cell: Cell, run: Callable[[Keep], tuple[Trajectory, Array]]) -> Array:
    """Run a cell into its file, fill its other chunks, and set its status byte last.

    Parameters
    ----------
    path
        The store.
    cell
        Which cell; if it is done or stale, it stays so until its run has ended.
    run
        Called with what takes the tokens at each saved time; returns the trajectory, whose tokens
        are not looked at, and its stats.

    Returns
    -------
    ndarray
        The stats.
    """
    arrays, at = _to_fill(path, cell)
    tokens = arrays["tokens"]
    file = path.joinpath("tokens", "c", *map(str, at), "0", "0", "0")
    with token_file(tokens, file) as fill:
        trajectory, stats = run(Blocks(tokens.shape[2], tokens.chunks[2], fill).add)
        _unset(path, arrays, at)
    arrays["ess_median"][at] = trajectory.ess_median
    arrays["ess_min"][at] = trajectory.ess_min
    arrays["stats"][at] = [*stats, NUMERICS_VERSION]
    arrays["status"][at] = DONE
    return stats


def write_continuum(path: Path, cell: Cell, found: Mapping[str, Array]) -> None:
    """Like `write_cell`, for what `run_continuum` returns."""
    arrays, at = _to_fill(path, cell)
    _unset(path, arrays, at)
    for name, values in found.items():
        arrays[name][at] = [*values, NUMERICS_VERSION] if name == "stats" else values
    arrays["status"][at] = DONE


def mark_cell(path: Path, beta: float, seed: int, state: int) -> None:
    """Set one cell's status byte."""
    group = open_group(path, "r+")
    group["status"][_position(group, beta, seed)] = state


def erase_mass(path: Path, seed: int) -> None:
    """Forget one seed's masses, which the next simulation writes again."""
    group = open_group(path, "r+")
    group["mass"][int(np.flatnonzero(group["seed"][:] == seed)[0])] = np.nan


def read_cell(
    path: Path, beta: float, seed: int, when: slice = slice(None)
) -> dict[str, Array] | None:
    """Return a done cell at a slice of its times; None if it is not done.

    Returns
    -------
    dict of str to Array
        tokens (unit length, float64), mass, ess_median, ess_min, and numerics_version ().
    """
    with naming_damage(path):
        group = open_group(path, "r")
        at = _position(group, beta, seed)
        if group["status"][at] != DONE:
            return None
        tokens = np.asarray(group["tokens"][*at, when], dtype=np.float64)
        if group["tokens"].dtype != np.float64:
            tokens /= np.linalg.norm(tokens, axis=-1, keepdims=True)
        return {
            "tokens": tokens,
            "mass": group["mass"][at[1]],
            "ess_median": group["ess_median"][*at, when],
            "ess_min": group["ess_min"][*at, when],
            "numerics_version": group["stats"][at][layout.CELL_STATS.index("numerics_version")],
        }


def read_continuum(path: Path, beta: float, seed: int) -> dict[str, Array] | None:
    """Return the curves of a done cell of the continuum, and numerics_version (); else None."""
    with naming_damage(path):
        group = open_group(path, "r")
        at = _position(group, beta, seed)
        if group["status"][at] != DONE:
            return None
        version = group["stats"][at][layout.CELL_STATS.index("numerics_version")]
        curves = {name: group[name][at] for name in layout.shard_curves(np.inf)}
        return curves | {"numerics_version": version}
