"""The file that holds a cell's tokens, written block by block as time goes on.

It is a shard as Zarr's sharding codec defines it: the blocks (Zstandard, then their crc32c), then
where each begins and how many bytes it has, then the crc32c of those numbers. Zarr itself would
hold all blocks to write it.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from numcodecs import Zstd

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
    chunk = np.full(array.chunks[2:], array.fill_value, array.dtype.newbyteorder("<"))
    chunk[: len(block)] = block  # the last may be shorter
    zstd, _ = array.compressors
    return _checked(Zstd(zstd.level).encode(chunk))


def _index(lengths: list[int]) -> bytes:
    starts = np.cumsum([0, *lengths[:-1]])
    return _checked(np.column_stack([starts, lengths]).astype("<u8").tobytes())


def _checked(data: bytes) -> bytes:
    checksum: int = google_crc32c.value(data)
    return data + checksum.to_bytes(4, "little")
