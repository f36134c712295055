"""Zarr groups and arrays as every store of a run has them."""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from mfsweep._errors import MfsweepError, StoreError
from mfsweep.sweep.folder import seal
from mfsweep.sweep.layout import COORDINATES, Variable


@contextmanager
def naming_damage(path: Path) -> Iterator[None]:
    """Turn what Zarr raises on bytes that it cannot read into one line that names the store."""
    try:
        yield
    except (MfsweepError, OSError):
        raise
    except Exception as error:  # checksums, JSON, shapes: each codec raises its own
        message = (
            f"{path} is damaged ({type(error).__name__}: {error}): mfsweep verify names the cells, "
            "mfsweep verify --repair marks them to be computed again"
        )
        raise StoreError(message) from error


def open_group(path: Path, mode: Literal["r", "r+"]) -> Any:
    """Open a store as its own metadata describe it."""
    return zarr.open_group(path, mode=mode, use_consolidated=False)


def create_group(where: Any, attrs: Mapping[str, Any]) -> Any:
    """Create a group whose attributes carry their seal."""
    return zarr.create_group(where, zarr_format=3, attributes=seal(attrs))


def _old(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")


def recover(path: Path) -> None:
    """Give a store its name back if a kill fell between the two moves of `put_in_place`."""
    if not path.exists() and _old(path).exists():
        _old(path).rename(path)


def put_in_place(partial: Path, path: Path) -> None:
    """Move a finished folder to its name, replacing what is there."""
    old = _old(path)
    shutil.rmtree(old, ignore_errors=True)
    if path.exists():
        path.rename(old)
    partial.rename(path)
    shutil.rmtree(old, ignore_errors=True)


def partial_folder(path: Path) -> Path:
    """Return an empty name beside a store, in which its successor is made."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    return partial


def create_array(
    group: Any,
    name: str,
    variable: Variable,
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    dtype: str | None = None,
    shards: tuple[int, ...] | None = None,
) -> Any:
    """Create one array with explicit fill value, codecs, dims and attributes.

    A file holds one chunk, or one shard of several chunks.
    """
    text = variable.dtype == "str"
    return group.create_array(
        name,
        shape=shape,
        chunks=chunks,
        shards=shards,
        dtype=str if text else dtype or variable.dtype,
        fill_value="" if text else variable.fill,
        dimension_names=variable.dims,
        compressors=[ZstdCodec(level=1), Crc32cCodec()],
        attributes=variable.attrs(),
    )


def create_coordinate(group: Any, name: str, values: Any) -> None:
    """Create a coordinate in one chunk and fill it."""
    values = np.asarray(values)
    array = create_array(group, name, COORDINATES[name], values.shape, (max(1, len(values)),))
    array[:] = values.astype(object) if COORDINATES[name].dtype == "str" else values
