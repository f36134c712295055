"""Random streams keyed by coordinate values, never by position, beta or n_tokens.

Growing the grid therefore changes no old number, and cells that differ in beta only start from
the same tokens.
"""

import struct

import numpy as np

from mfsweep._errors import InputError

ROOT = 0x6D667377
"""First word of every key; another root would be another set of streams."""
_TOKENS = 1
_WEIGHTS = 2


def token_stream(seed: int, d: int, gap: float) -> np.random.SeedSequence:
    """Return the stream that draws the initial tokens.

    Parameters
    ----------
    seed
        Coordinate of the cell, 0 to 2**32 - 1.
    d
        Dimension, 2 to 2**32 - 1.
    gap
        Spectral gap; all 64 bits count.

    Returns
    -------
    numpy.random.SeedSequence
        Independent of the stream of any other (seed, d, gap) and of every weights stream.

    Raises
    ------
    InputError
        If seed or d does not fit in 32 bits.

    Examples
    --------
    >>> token_stream(0, 2, 0.25).generate_state(2)
    array([2133167929, 3671679635], dtype=uint32)
    """
    return _stream(_TOKENS, seed, d, gap)


def weights_stream(weights_seed: int, d: int, gap: float) -> np.random.SeedSequence:
    """Return the stream that draws the weight matrices; parameters as in `token_stream`.

    Examples
    --------
    >>> weights_stream(0, 2, 0.25).generate_state(2)
    array([1072178238, 4158817765], dtype=uint32)
    """
    return _stream(_WEIGHTS, weights_seed, d, gap)


def _stream(purpose: int, seed: int, d: int, gap: float) -> np.random.SeedSequence:
    """Key a stream by six words of 32 bits: a fixed length, so no two keys read alike."""
    for name, value in (("seed", seed), ("d", d)):
        if not 0 <= value < 2**32:
            message = f"{name} = {value}: must be from 0 to 2**32 - 1; choose a smaller one"
            raise InputError(message)
    low, high = struct.unpack("<II", struct.pack("<d", gap))
    return np.random.SeedSequence([ROOT, purpose, seed, d, low, high])
