"""A trajectory in blocks of time: what is held at once, and what is stored as a chunk."""

import math
from collections.abc import Callable

import numpy as np

from mfsweep._types import Array, Tokens
from mfsweep.sweep.config import Config
from mfsweep.sweep.grid import Shard

BLOCK_BYTES = 8e6
"""Most bytes of a block in float64, unless the tokens at one time are more."""


def block_times(config: Config, shard: Shard) -> int:
    """Return how many times a block of the shard's tokens holds; the blocks are nearly equal."""
    most = max(1, int(BLOCK_BYTES / (8 * shard.n_tokens * shard.d)))
    return math.ceil(config.time.n_times / math.ceil(config.time.n_times / most))


class Blocks:
    """Takes tokens one time after the other and hands on whole blocks.

    Parameters
    ----------
    n_times
        Times that will come; the last block ends with them.
    length
        Times of a block.
    take
        Called with the times' slice and the tokens (time, n, d), which are overwritten afterwards.
    """

    def __init__(self, n_times: int, length: int, take: Callable[[slice, Array], None]) -> None:
        self.n_times, self.length, self.take = n_times, length, take
        self.first, self.block = 0, np.empty((0, 0, 0))

    def add(self, tokens: Tokens) -> None:
        """Take the tokens (n, d) at the next time."""
        if not self.block.size:
            self.block, self.filled = np.empty((self.length, *tokens.shape)), 0
        self.block[self.filled] = tokens
        self.filled += 1
        after = self.first + self.filled
        if self.filled == self.length or after == self.n_times:
            self.take(slice(self.first, after), self.block[: self.filled])
            self.first, self.filled = after, 0
