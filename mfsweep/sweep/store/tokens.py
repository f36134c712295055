"""The file that holds a cell's tokens, written block by block as time goes on.

It is a shard as Zarr's sharding codec defines it: the encoded blocks, then where each begins and
how many bytes it has, then the crc32c of those numbers. Zarr itself would hold all blocks to write
it.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec

from mfsweep._types import Array

FillBlock = Callable[[slice, Array], None]
"""Takes a slice of times and the tokens (time, n, d) there; slices come in order."""


@contextmanager
def token_file(array: Any, file: Path) -> Iterator[FillBlock]:
    """Write a cell's file beside its place and move it there when every block is in.

    Parameters
    ----------
    array
        The array of all tokens, whose codecs encode the blocks.
    file
        Place of the cell's file.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    for left in file.parent.glob("*.partial"):  # by a process that was killed
        left.unlink(missing_ok=True)
    partial = file.with_name(f"{file.name}.{os.getpid()}.partial")
    lengths: list[int] = []
    try:
        with partial.open("wb") as stream:

            def fill(_: slice, block: Array) -> None:
                data = _encoded(array, block)
                stream.write(data)
                lengths.append(len(data))

            yield fill
            stream.write(_index(lengths))
        partial.replace(file)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _encoded(array: Any, block: Array) -> bytes:
    """Encode one block as the array's inner chunk."""
    chunk = array.chunks[2:]
    return _only_chunk(block, chunk, array.dtype, array.compressors, array.fill_value)


def _index(lengths: list[int]) -> bytes:
    starts = np.cumsum([0, *lengths[:-1]])
    index = np.column_stack([starts, lengths])
    return _only_chunk(index, index.shape, "<u8", [Crc32cCodec()], 0)


def _only_chunk(values: Any, chunk: Any, dtype: Any, compressors: Any, fill: Any) -> bytes:
    """Let Zarr encode what fits into one chunk."""
    stored: dict[str, Any] = {}
    array = zarr.create_array(
        zarr.storage.MemoryStore(stored),
        shape=values.shape,
        chunks=chunk,
        dtype=dtype,
        compressors=compressors,
        fill_value=fill,
    )
    array[...] = values
    data: bytes = next(buffer for key, buffer in stored.items() if key.startswith("c/")).to_bytes()
    return data
