"""The compiled softmax average: the hot loop, alone in its room.

For query rows q_i and keys y_j with masses w_j

    m_i = sum_j w_j e^{<q_i, y_j>} y_j / Z_i,    Z_i = sum_j w_j e^{<q_i, y_j>},

is summed over tiles of keys relative to a logit that is met, so nothing overflows and no (n, n)
array exists. A tile whose cap proves that it adds less than 1e-16 of Z_i is skipped; that saves
most of the work at low temperature when neighbouring rows hold neighbouring tokens.

Two routes: up to three dimensions one loop does it all; from four on the two products are BLAS
calls on blocks, and one loop exponentiates between them.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from mfsweep._types import Array, Basis, Masses
from mfsweep.dynamics.tiles import (
    Caps,
    Runs,
    cap_around,
    caps_of,
    equal_runs,
    reach,
    reach_of_block,
)
from mfsweep.dynamics.vectorised import REDUCTION, exponential

BLAS_FROM_DIMENSION = 4
"""From this dimension on the two products run in BLAS."""
TILE = 64
"""Keys per tile: enough to vectorise, few enough to skip often."""
NARROW = math.cos(0.5)
"""Cosine of the radius up to which a block's rows look at the same tile."""
BLOCK, LARGE_BLOCK = (64, 256), (256, 512)
"""Queries and keys per BLAS block: within the second-level cache, or large for costly products."""
LARGE_FROM_DIMENSION = 32
"""From this dimension on the products cost more than the exponentials."""

_LOWEST = -1e300


class SoftmaxAverage(NamedTuple):
    """What one pass over all pairs gives."""

    average: Array
    """m_i, shape (n, d)."""
    ess: Array
    """Effective sample size of each row's weights, Z_i^2 / sum_j (w_j e_ij)^2, shape (n,)."""
    pairs: int
    """Token pairs whose exponential was computed; the others were skipped."""


# ---- up to three dimensions: one loop --------------------------------------------------------


class Tiles(NamedTuple):
    """Keys in tiles of at most TILE, filled up with massless copies."""

    keys: Array
    """Unit vectors, shape (tiles, 3, TILE)."""
    mass: Array
    """Shape (tiles, TILE)."""
    square: Array
    """Sums of squared masses, shape (tiles, TILE)."""
    caps: Caps


class Sums(NamedTuple):
    """Sums of each row relative to e^shift, shift a logit that is met."""

    shift: Array
    """Shape (n,)."""
    zeroth: Array
    """sum_j w_j e_ij, shape (n,)."""
    square: Array
    """sum_j s_j e_ij^2, shape (n,)."""
    first: Array
    """sum_j w_j e_ij y_j, shape (n, 3)."""
    pairs: int


@njit(cache=True, fastmath=REDUCTION, error_model="numpy")
def _highest(q: Array, i: int, keys: Array, k: int) -> float:
    """Return the largest logit of row i in tile k; q (3, n), keys (tiles, 3, TILE)."""
    a, b, c = q[0, i], q[1, i], q[2, i]
    top = q.dtype.type(_LOWEST)
    for j in range(TILE):
        top = max(top, a * keys[k, 0, j] + b * keys[k, 1, j] + c * keys[k, 2, j])
    return top


@njit(cache=True, fastmath=REDUCTION, error_model="numpy", forceinline=True)
def _tile_sums(
    q: Array, i: int, keys: Array, mass: Array, square: Array, k: int, shift: float
) -> tuple[float, float, float, float, float]:
    """Return sum_j w_j e_j, sum_j s_j e_j^2, sum_j w_j e_j y_j; e_j = e^{<q_i, y_j> - shift}."""
    a, b, c = q[0, i], q[1, i], q[2, i]
    z = z2 = m0 = m1 = m2 = q.dtype.type(0)
    for j in range(TILE):
        y0, y1, y2 = keys[k, 0, j], keys[k, 1, j], keys[k, 2, j]
        e = exponential(a * y0 + b * y1 + c * y2 - shift)
        w = e * mass[k, j]
        z += w
        z2 += e * e * square[k, j]
        m0 += w * y0
        m1 += w * y1
        m2 += w * y2
    return z, z2, m0, m1, m2


@njit(cache=True, error_model="numpy")
def _opening(q: Array, start: int, stop: int, caps: Caps) -> Any:
    """Look at rows start to stop as one: cap, shortest, longest, and each tile's <unit q, c>."""
    unit, centre = np.zeros((stop - start, 3)), np.empty(3)
    shortest, longest = np.inf, 0.0
    for i in range(start, stop):
        length = math.sqrt(q[0, i] ** 2 + q[1, i] ** 2 + q[2, i] ** 2)
        shortest, longest = min(shortest, length), max(longest, length)
        if length > 0.0:
            for c in range(3):
                unit[i - start, c] = q[c, i] / length
    cap = cap_around(unit, 0, stop - start, centre)
    return cap, shortest, longest, caps.centre @ centre


@njit(cache=True, nogil=True, error_model="numpy")
def floors(q: Array, starts: Runs, tiles: Tiles) -> Array:
    """Bound log Z_i from below by the row's sum over the tile that it looks at.

    Rows of a narrow block look at one tile.

    Parameters
    ----------
    q, starts
        Queries, shape (3, n), and where their blocks start.
    tiles
        Keys with positive masses.

    Returns
    -------
    Array
        Shape (n,), float64.
    """
    floor = np.empty(q.shape[1])
    for b in range(starts.size - 1):
        start, stop = starts[b], starts[b + 1]
        cap, _, longest, along = _opening(q, start, stop, tiles.caps)
        k = int(np.argmax(longest * along + tiles.caps.log_mass))
        for i in range(start, stop):
            if cap[0] < NARROW:
                along = tiles.caps.centre @ q[:, i].astype(np.float64)
                k = int(np.argmax(along + tiles.caps.log_mass))
            shift = _highest(q, i, tiles.keys, k)
            z = _tile_sums(q, i, tiles.keys, tiles.mass, tiles.square, k, shift)[0]
            floor[i] = shift + math.log(z)
    return floor


@njit(cache=True, error_model="numpy")
def _candidates(block: Any, caps: Caps, limit: Array, room: float, found: Runs) -> tuple[int, int]:
    """Put tiles that every row of a block needs first, then those at which each row has to look.

    Return how many are certain, and how many there are.

    A row needs a tile whose largest logit plus log-mass reaches its limit. Logits of certain tiles
    stay below room, where no sum overflows.
    """
    cap, shortest, longest, along = block
    lowest, highest = limit.min(), limit.max()
    sure = maybe = 0
    for k in range(along.size):
        two = (caps.cosine[k], caps.sine[k])
        most = reach_of_block(along[k], shortest, longest, cap, two)
        least = -reach_of_block(-along[k], shortest, longest, cap, two)
        if most <= room and least + caps.log_mass[k] >= highest:
            found[sure + maybe] = found[sure]
            found[sure] = k
            sure += 1
        elif most + caps.log_mass[k] >= lowest:
            found[sure + maybe] = k
            maybe += 1
    return sure, sure + maybe


@njit(cache=True, nogil=True, error_model="numpy")
def fused_sums(q: Array, starts: Runs, tiles: Tiles, limit: Array, headroom: float) -> Sums:
    """Sum over all tiles but those that stay below e^limit.

    Parameters
    ----------
    q, starts
        Queries, shape (3, n), of the keys' type, and where their blocks start.
    tiles
        Keys; masses of either sign.
    limit
        Logarithm of what a tile may leave out of the row's sum, shape (n,), float64.
    headroom
        How far a row's shift may lie below its largest logit: a quarter of the largest exponent.

    Returns
    -------
    Sums
        Of the type of q.
    """
    n, caps = q.shape[1], tiles.caps
    shifts, zeroth, square = np.empty(n, q.dtype), np.empty(n, q.dtype), np.empty(n, q.dtype)
    first = np.empty((n, 3), q.dtype)
    found = np.empty(caps.log_mass.size, np.int64)
    pairs = 0
    for b in range(starts.size - 1):
        start, stop = starts[b], starts[b + 1]
        block = _opening(q, start, stop, caps)
        opening = int(np.argmax(block[3]))
        for i in range(start, stop):
            shifts[i] = _highest(q, i, tiles.keys, opening)
        room = shifts[start:stop].min() + headroom
        sure, count = _candidates(block, caps, limit[start:stop], room, found)
        for i in range(start, stop):
            shift = shifts[i]
            z = z2 = m0 = m1 = m2 = q.dtype.type(0)
            length = math.sqrt(q[0, i] ** 2 + q[1, i] ** 2 + q[2, i] ** 2)
            for turn in range(count):
                k = found[turn]
                if turn >= sure:
                    along = q[0, i] * caps.centre[k, 0] + q[1, i] * caps.centre[k, 1]
                    along += q[2, i] * caps.centre[k, 2]
                    bound = reach(along, length, caps.cosine[k], caps.sine[k])
                    if bound + caps.log_mass[k] < limit[i]:
                        continue
                    if bound > shift + headroom:
                        highest = _highest(q, i, tiles.keys, k)
                        if highest > shift:
                            shrink = exponential(shift - highest)
                            z, z2 = z * shrink, z2 * shrink * shrink
                            m0, m1, m2 = m0 * shrink, m1 * shrink, m2 * shrink
                            shift = highest
                more = _tile_sums(q, i, tiles.keys, tiles.mass, tiles.square, k, shift)
                z, z2 = z + more[0], z2 + more[1]
                m0, m1, m2 = m0 + more[2], m1 + more[3], m2 + more[4]
                pairs += TILE
            shifts[i], zeroth[i], square[i] = shift, z, z2
            first[i, 0], first[i, 1], first[i, 2] = m0, m1, m2
    return Sums(shifts, zeroth, square, first, pairs)


def in_three(x: Array) -> Array:
    """Append zeros to two components, (n, d) -> (n, 3)."""
    padded = np.zeros((len(x), 3), x.dtype)
    padded[:, : x.shape[1]] = x
    return padded


@njit(cache=True, error_model="numpy")
def tiles_of(y: Array, mass: Array, square: Array, starts: Runs) -> Tiles:
    """Copy keys (n, 3), masses and sums of squared masses (n,) into a tile for each run."""
    tiles = starts.size - 1
    keys = np.empty((tiles, 3, TILE), y.dtype)
    masses, squares = np.zeros((tiles, TILE), y.dtype), np.zeros((tiles, TILE), y.dtype)
    for k in range(tiles):
        start, count = starts[k], starts[k + 1] - starts[k]
        masses[k, :count], squares[k, :count] = (
            mass[start : start + count],
            square[start : start + count],
        )
        for j in range(TILE):
            keys[k, :, j] = y[start + min(j, count - 1)]
    return Tiles(keys, masses, squares, caps_of(y, mass, starts))


def headroom_of(dtype: Any) -> float:
    """Return a quarter of the largest exponent, so that e^{2 headroom} and its sums are finite."""
    return math.log(np.finfo(dtype).max) / 4


def negligible(dtype: Any) -> float:
    """Return the log of the part of a sum that a tile may leave out: 1e-16, 3e-8 in float32."""
    return math.log(np.finfo(dtype).eps / 4)


def _fused(q: Array, y: Array, mass: Array, square: Array) -> SoftmaxAverage:
    n, d = q.shape
    rows, starts = np.ascontiguousarray(in_three(q).T), equal_runs(n, TILE)
    tiles = tiles_of(in_three(y), mass, square, equal_runs(len(y), TILE))
    limit = floors(rows, starts, tiles) + negligible(q.dtype)
    sums = fused_sums(rows, starts, tiles, limit, headroom_of(q.dtype))
    average = sums.first[:, :d] / sums.zeroth[:, None]
    ess = sums.zeroth**2 / sums.square
    return SoftmaxAverage(average, ess, min(sums.pairs, n * len(y)))


# ---- from four dimensions on: BLAS blocks ----------------------------------------------------


@njit(cache=True, fastmath=REDUCTION, error_model="numpy")
def _exponentiate(logit: Array, mass: Array, square: Array, shift: float) -> tuple[float, float]:
    """Replace logits by w_j e_j, e_j = e^{l_j - shift}; return sum_j w_j e_j, sum_j s_j e_j^2."""
    z = z2 = logit.dtype.type(0)
    for j in range(mass.size):
        e = exponential(logit[j] - shift)
        w = e * mass[j]
        logit[j] = w
        z += w
        z2 += e * e * square[j]
    return z, z2


@njit(cache=True, fastmath=REDUCTION, error_model="numpy")
def _largest(values: Array, least: float) -> float:
    top = least
    for j in range(values.size):
        top = max(top, values[j])
    return top


@njit(cache=True, error_model="numpy")
def _row_cap(block: Array, centre: Array) -> Any:
    """Fill the unit centre of the rows' directions; return their cap and shortest, longest row."""
    unit = np.zeros(block.shape)
    shortest, longest = np.inf, 0.0
    for i in range(len(block)):
        square = 0.0
        for c in range(block.shape[1]):
            square += block[i, c] ** 2
        length = math.sqrt(square)
        shortest, longest = min(shortest, length), max(longest, length)
        if length > 0.0:
            unit[i] = block[i] / length
    return cap_around(unit, 0, len(block), centre), shortest, longest


@njit(cache=True, nogil=True, error_model="numpy")
def _average_blas(
    q: Array,
    queries: Array,
    keys: Array,
    values: Array,
    mass: Array,
    square: Array,
    caps: Caps,
    depth: float,
    headroom: float,
    block: tuple[int, int],
) -> Any:
    """Average of the values, ess and pairs; logits are <queries_i, keys_j> = <q_i, y_j>.

    q (n, d), queries (n, r), keys (keys, r), values (keys, v), masses (keys,), caps of each block
    of y.
    """
    height, width = block
    n, count, wide, blocks = len(q), len(keys), values.shape[1], caps.log_mass.size
    average, ess = np.empty((n, wide), q.dtype), np.empty(n, q.dtype)
    logits, sums = np.empty(height * width, q.dtype), np.empty(height * wide, q.dtype)
    top, z, z2 = np.empty(height, q.dtype), np.empty(height, q.dtype), np.empty(height, q.dtype)
    centre = np.empty(q.shape[1])
    pairs = 0
    for start in range(0, n, height):
        seeking, total = queries[start : start + height], average[start : start + height]
        rows = len(seeking)
        cap, shortest, longest = _row_cap(q[start : start + height], centre)
        along = caps.centre @ centre
        opening = int(np.argmax(along))
        top[:], z[:], z2[:], total[:] = _LOWEST, 0, 0, 0
        for turn in range(-1, blocks):
            k = opening if turn < 0 else turn
            if turn == opening:
                continue
            two = (caps.cosine[k], caps.sine[k])
            bound = reach_of_block(along[k], shortest, longest, cap, two)
            if bound + caps.log_mass[k] < top[:rows].min() + depth:
                continue
            at = slice(k * width, min(count, (k + 1) * width))
            columns = at.stop - at.start
            logit = logits[: rows * columns].reshape(rows, columns)
            np.dot(seeking, keys[at].T, logit)
            if bound > top[:rows].min() + headroom:
                for i in range(rows):
                    highest = _largest(logit[i], top[i])
                    shrink = exponential(top[i] - highest)
                    z[i], z2[i] = z[i] * shrink, z2[i] * shrink * shrink
                    total[i] *= shrink
                    top[i] = highest
            for i in range(rows):
                more, more2 = _exponentiate(logit[i], mass[at], square[at], top[i])
                z[i], z2[i] = z[i] + more, z2[i] + more2
            sum_ = sums[: rows * wide].reshape(rows, wide)
            np.dot(logit, values[at], sum_)
            total += sum_
            pairs += rows * columns
        for i in range(rows):
            total[i] /= z[i]
            ess[start + i] = z[i] * z[i] / z2[i]
    return average, ess, pairs


# ---- both ------------------------------------------------------------------------------------


def softmax_average(
    q: Array,
    y: Array,
    mass: Masses,
    square_mass: Masses | None = None,
    *,
    spans: tuple[Basis, Basis] | None = None,
) -> SoftmaxAverage:
    """Average the keys with softmax weights, row by row.

    m_i = sum_j w_j e^{<q_i, y_j>} y_j / sum_j w_j e^{<q_i, y_j>}

    Parameters
    ----------
    q
        Queries times the inverse temperature, shape (n, d); any finite size. Float32 or float64:
        the result and every sum have the type of q and y.
    y
        Keys, unit vectors, shape (keys, d); neighbours in the array should be neighbours in
        space.
    mass
        Mass w_j of each key, shape (keys,), positive.
    square_mass
        Sum of the squared masses of the tokens that a key stands for, shape (keys,); w_j^2 (the
        default) for one token. Only ess depends on it.
    spans
        From four dimensions on: orthonormal columns K (d, r) of a span that holds every query, and
        R (d, v) of what is wanted of the averages, which then are R^T m_i.

    Returns
    -------
    SoftmaxAverage
        Averages (n, d), or (n, v) of `spans`, effective sample sizes (n,) and the number of pairs
        computed.

    Notes
    -----
    Relative error of a weight under 1e-15 plus that of its logit, |q| 2^-53 (2e-7 and |q| 2^-24 in
    float32). Cost O(n keys d) at most, O(n keys (r + v)) with spans; memory O((n + keys) d).

    >>> x = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> softmax_average(0.0 * x, x, np.array([0.75, 0.25])).average
    array([[0.75, 0.25], [0.75, 0.25]])
    """
    dtype = np.result_type(q, y)
    q, y = np.ascontiguousarray(q, dtype), np.ascontiguousarray(y, dtype)
    mass = np.asarray(mass, dtype)
    square = mass**2 if square_mass is None else np.asarray(square_mass, dtype)
    if q.shape[1] < BLAS_FROM_DIMENSION:
        return _fused(q, y, mass, square)
    parts = (q, y, y) if spans is None else (q @ spans[0], y @ spans[0], y @ spans[1])
    block = LARGE_BLOCK if parts[0].shape[1] >= LARGE_FROM_DIMENSION else BLOCK
    depth = math.log(mass.min()) + negligible(dtype)
    caps = caps_of(y, mass, equal_runs(len(y), block[1]))
    return SoftmaxAverage(
        *_average_blas(q, *parts, mass, square, caps, depth, headroom_of(dtype), block)
    )
