"""Stores that are written whole beside their place and moved there."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mfsweep._types import Array
from mfsweep.sweep.layout import COORDINATES, Variable
from mfsweep.sweep.store.arrays import (
    create_array,
    create_coordinate,
    create_group,
    naming_damage,
    open_group,
    partial_folder,
    put_in_place,
)


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
    partial = partial_folder(path)
    auxiliary = [name for name in coordinates if COORDINATES[name].dims != (name,)]
    named = {"coordinates": " ".join(auxiliary)} if auxiliary else {}  # how xarray finds them
    group = create_group(partial, {**attrs, **named})
    for name, values in coordinates.items():
        create_coordinate(group, name, values)
    for name, values in dataset.items():
        create_whole(group, name, layouts[name], values.shape, chunk_dims)[...] = values
    put_in_place(partial, path)


def create_whole(
    group: Any, name: str, variable: Variable, shape: tuple[int, ...], chunk_dims: Iterable[str]
) -> Any:
    """Create one array whose chunks span all dims but `chunk_dims`."""
    single = set(chunk_dims)
    chunks = tuple(
        1 if dim in single else max(1, size) for dim, size in zip(variable.dims, shape, strict=True)
    )
    return create_array(group, name, variable, shape, chunks)


def read_whole(path: Path) -> tuple[dict[str, Array], dict[str, Any]] | None:
    """Return a store's arrays and attributes; None where there is no store."""
    if not (path / "zarr.json").exists():
        return None
    with naming_damage(path):
        group = open_group(path, "r")
        return {name: array[...] for name, array in group.arrays()}, dict(group.attrs)


def attributes(path: Path) -> dict[str, Any]:
    """Return a store's attributes."""
    with naming_damage(path):
        return dict(open_group(path, "r").attrs)
