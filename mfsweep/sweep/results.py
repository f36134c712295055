"""Read a run's results with xarray: lazily, floats by tolerance."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from mfsweep._errors import InputError
from mfsweep.sweep.layout import COORDINATES


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
        Nodes /curves, /switch_times, /laws (those that exist), and /shards/{shard} with the
        trajectories; nothing is read but coordinates.

    Raises
    ------
    InputError
        If the folder holds no run.
    """
    folder = Path(folder)
    nodes = {name: folder / f"{name}.zarr" for name in ("curves", "switch_times", "laws")}
    for path in sorted(folder.glob("shards/*/trajectories.zarr")):
        nodes[f"shards/{path.parent.name}"] = path
    found = {
        name: open_store(path) for name, path in nodes.items() if (path / "zarr.json").exists()
    }
    if not found:
        message = f"{folder} holds no stores: give a run's folder, such as results/demo"
        raise InputError(message)
    for dataset in found.values():
        if "beta" in dataset.coords and "log_beta" not in dataset.coords:
            dataset.coords["log_beta"] = np.log(dataset.beta)
            dataset.log_beta.attrs |= COORDINATES["log_beta"].attrs()
    return xr.DataTree.from_dict(found)


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
        The selection; nodes without one of the coordinates stay as they are.

    Raises
    ------
    InputError
        If nothing matches; the line lists what exists.
    """
    if isinstance(tree, xr.DataTree):
        return xr.DataTree.from_dict(
            {
                node.path: _select(node.to_dataset(), wanted, tolerance, missing_ok=True)
                for node in tree.subtree
            }
        )
    return _select(tree, wanted, tolerance, missing_ok=False)


def _select(
    dataset: xr.Dataset, wanted: Mapping[str, Any], tolerance: float, *, missing_ok: bool
) -> xr.Dataset:
    for name, values in wanted.items():
        if name not in dataset.dims and missing_ok:
            continue
        if name not in dataset.coords:
            message = f"{name}: no such coordinate; there are {sorted(map(str, dataset.coords))}"
            raise InputError(message)
        existing = dataset[name].values
        listed = isinstance(values, list | tuple | np.ndarray)
        at = [
            _index(name, existing, value, tolerance) for value in (values if listed else [values])
        ]
        dataset = dataset.isel({name: at if listed else at[0]})
    return dataset


def _index(name: str, existing: Any, value: Any, tolerance: float) -> int:
    """Find the place of one value among the existing ones."""
    if isinstance(value, str):
        match = existing == value
    else:
        match = existing == value
        if np.isfinite(value):
            match |= np.abs(existing - value) <= tolerance * max(1.0, abs(value))
    if not match.any():
        shown = ", ".join(map(str, existing[:12])) + (", ..." if len(existing) > 12 else "")
        message = f"{name} = {value}: not in these results; there are {shown}"
        raise InputError(message)
    return int(np.flatnonzero(match)[0])
