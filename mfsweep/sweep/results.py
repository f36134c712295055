"""Read a run's results with xarray: lazily, floats by tolerance."""

from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from mfsweep._errors import InputError
from mfsweep.sweep.folder import COLLECTED
from mfsweep.sweep.layout import CELL_DIMS, COORDINATES, SHARD_DIMS


def open_store(path: Path) -> xr.Dataset:
    """Open one store lazily."""
    dataset: xr.Dataset = xr.open_zarr(path, consolidated=False, chunks=None)
    return dataset


def open_results(folder: str | Path) -> xr.DataTree:
    """Open a run's results as a lazy tree.

    Parameters
    ----------
    folder
        The run's folder, such as "results/demo".

    Returns
    -------
    xarray.DataTree
        Nodes /curves, /switch_times, /laws, /bound (those that exist), and /shards/{shard} with the
        trajectories (`density` in place of `tokens` for the continuum), whose family, d, gap and
        n_tokens are scalar coordinates; nothing is read but coordinates. Once the run is collected,
        shards, betas and seeds that it did not ask for are left out.

    Raises
    ------
    InputError
        If the folder holds no run.
    """
    folder = Path(folder)
    nodes = {name: folder / f"{name}.zarr" for name in COLLECTED}
    for path in sorted(folder.glob("shards/*/trajectories.zarr")):
        nodes[f"shards/{path.parent.name}"] = path
    there = {name: path for name, path in nodes.items() if (path / "zarr.json").exists()}
    if not there:
        message = f"{folder} holds no stores: give a run's folder, such as results/demo"
        raise InputError(message)
    opened = {name: open_store(path) for name, path in there.items()}
    collected = opened.get("curves")
    found = {}
    for name, dataset in opened.items():
        named = _named(dataset)
        if not name.startswith("shards/"):
            found[name] = named
        elif collected is None or _is_asked(named, collected):
            found[name] = named if collected is None else _asked_cells(named, collected)
    return xr.DataTree.from_dict(found)


def _named(dataset: xr.Dataset) -> xr.Dataset:
    """Add the coordinates that a shard holds as attributes, and log_beta beside beta."""
    added = {name: dataset.attrs[name] for name in SHARD_DIMS if name in dataset.attrs}
    added |= {"n_tokens": float(added["n_tokens"])} if "n_tokens" in added else {}
    if "beta" in dataset.coords and "log_beta" not in dataset.coords:
        added["log_beta"] = np.log(dataset.beta)
    dataset = dataset.assign_coords(added)
    for name in added:
        dataset[name].attrs |= COORDINATES[name].attrs()
    return dataset


def _is_asked(shard: xr.Dataset, collected: xr.Dataset) -> bool:
    """Tell whether a shard is among those last collected."""
    return all(shard[name].item() in collected[name].values for name in SHARD_DIMS)


def _asked_cells(shard: xr.Dataset, collected: xr.Dataset) -> xr.Dataset:
    """Leave out betas and seeds that were not asked for when last collected."""
    kept = {name: np.isin(shard[name].values, collected[name].values) for name in CELL_DIMS}
    extra = {name: np.flatnonzero(mask) for name, mask in kept.items() if not mask.all()}
    return shard.isel(extra) if extra else shard


def select(
    tree: xr.DataTree | xr.Dataset, *, tolerance: float = 1e-9, **wanted: Any
) -> xr.DataTree | xr.Dataset:
    """Select coordinate values, floats within a relative tolerance.

    Parameters
    ----------
    tree
        What `open_results` returns, or one Dataset of it.
    tolerance
        Largest |value - wanted| / max(1, |wanted|) that counts as found.
    **wanted
        A value or a list of values by coordinate name; a list keeps the dimension.

    Returns
    -------
    DataTree or Dataset
        The selection. Of a tree, nodes without one of the coordinates stay as they are, and a
        shard goes if its own d, gap, n_tokens or family is none of the wanted values.

    Raises
    ------
    InputError
        If nothing matches; the line lists what exists.
    """
    if not isinstance(tree, xr.DataTree):
        _refuse_unknown(wanted, tree.coords)
        return _select(tree, wanted, tolerance)
    nodes = {node.path: node.to_dataset(inherit=False) for node in tree.subtree}
    _refuse_unknown(wanted, {name for node in nodes.values() for name in node.coords})
    return xr.DataTree.from_dict(
        {
            path: _select(node, {k: v for k, v in wanted.items() if k in node.dims}, tolerance)
            for path, node in nodes.items()
            if _matches(node, wanted, tolerance)
        }
    )


def _refuse_unknown(wanted: Iterable[str], existing: Iterable[Hashable]) -> None:
    for name in wanted:
        if name not in existing:
            message = f"{name}: no such coordinate; there are {sorted(map(str, existing))}"
            raise InputError(message)


def _listed(values: Any) -> Any:
    return values if isinstance(values, list | tuple | np.ndarray) else [values]


def _matches(node: xr.Dataset, wanted: Mapping[str, Any], tolerance: float) -> bool:
    """Tell whether a node's scalar coordinates are among the wanted values."""
    return all(
        any(_same(node[name].values, value, tolerance) for value in _listed(values))
        for name, values in wanted.items()
        if name in node.coords and name not in node.dims
    )


def _select(dataset: xr.Dataset, wanted: Mapping[str, Any], tolerance: float) -> xr.Dataset:
    for name, values in wanted.items():
        existing = dataset[name].values
        at = [_index(name, existing, value, tolerance) for value in _listed(values)]
        dataset = dataset.isel({name: at if _listed(values) is values else at[0]})
    return dataset


def _same(existing: Any, value: Any, tolerance: float) -> Any:
    """Compare with one value: text and infinity exactly, other numbers within the tolerance."""
    match = existing == value
    if not isinstance(value, str) and np.isfinite(value):
        match |= np.abs(existing - value) <= tolerance * max(1.0, abs(value))
    return match


def _index(name: str, existing: Any, value: Any, tolerance: float) -> int:
    """Find the place of one value among the existing ones."""
    match = _same(existing, value, tolerance)
    if not match.any():
        shown = ", ".join(map(str, existing[:12])) + (", ..." if len(existing) > 12 else "")
        message = f"{name} = {value}: not in these results; there are {shown}"
        raise InputError(message)
    return int(np.flatnonzero(match)[0])
