"""The compiled softmax average: the hot loop, alone in its room.

For query rows q_i and keys y_j with masses w_j

    m_i = sum_j w_j e^{<q_i, y_j>} y_j / Z_i,    Z_i = sum_j w_j e^{<q_i, y_j>},

is summed over tiles of keys with a running maximum, so nothing overflows and no (n, n) array
exists. A tile whose bounding ball proves that it adds less than 2^-56 of Z_i is skipped; that
saves most of the work at low temperature when neighbouring rows hold neighbouring tokens.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from mfsweep._types import Array, Masses
from mfsweep.dynamics.condense import GAP_LOSS, REDUCTION, condense, dot

TILE = 256
"""Keys per tile: long enough to vectorise, short enough to skip often."""
BLAS_FROM_DIMENSION = 16
"""From this dimension on the two products run in BLAS."""
_ROWS, _COLUMNS = 256, 1024  # block of logits of the BLAS route: 2 MB

_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_ROUND = 6755399441055744.0  # 1.5 * 2^52: adding it leaves the nearest integer in the low bits
_EXP_FLOOR = -708.0  # e^x is a normal number down to here
_SKIP = math.log(2.0**-56)
_LOWEST = -1e300

# Interpolation of e^r at the Chebyshev nodes of |r| <= 1.0005 ln(2) / 2: relative error 3e-16.
_P = (
    2.7626426376580335e-07,
    2.7640263790318923e-06,
    2.4801504180837137e-05,
    1.9841170070971308e-04,
    1.3888888932619635e-03,
    8.3333333858250850e-03,
    4.1666666666572770e-02,
    1.6666666666553953e-01,
    5.0000000000000060e-01,
    1.0000000000000069e00,
    1.0,
)

_ELEMENTWISE = REDUCTION - {"reassoc"}


class SoftmaxAverage(NamedTuple):
    """What one pass over all pairs gives."""

    average: Array
    """m_i, shape (n, d)."""
    ess: Array
    """Effective sample size of each row's weights, Z_i^2 / sum_j (w_j e_ij)^2, shape (n,)."""
    pairs: int
    """Token pairs whose exponential was computed; the others were skipped."""


@intrinsic
def _power_of_two(_: Any, t: types.Float) -> Any:
    """Read the integer k from t = k + 1.5 * 2^52 and return 2^k."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        exponent = builder.shl(builder.bitcast(arguments[0], word), ir.Constant(word, 52))
        biased = builder.add(exponent, ir.Constant(word, 1023 << 52))
        return builder.bitcast(biased, ir.DoubleType())

    return types.float64(t), generate


@njit(cache=True, fastmath=_ELEMENTWISE, error_model="numpy")
def _exp(x: float) -> float:
    """Return e^x for x <= 0: x = k ln 2 + r, e^x = 2^k p(r), relative error under 1e-15."""
    x = max(x, _EXP_FLOOR)
    t = x * _LOG2_E + _ROUND
    k = t - _ROUND
    r = x - k * _LN2_HIGH
    r = r - k * _LN2_LOW
    p = _P[0]
    for c in _P[1:]:
        p = p * r + c
    return p * _power_of_two(t)  # type: ignore[call-arg]


@njit(cache=True, fastmath=REDUCTION, error_model="numpy")
def _logits(q: Array, i: int, y: Array, start: int, stop: int, logit: Array) -> float:
    """Fill logit[j] = <q_i, y_{start+j}> from (d, n) arrays; return their maximum."""
    q0, q1 = q[0, i], q[1, i]
    y0, y1 = y[0, start:stop], y[1, start:stop]
    if q.shape[0] == 2:
        for j in range(stop - start):
            logit[j] = q0 * y0[j] + q1 * y1[j]
    else:
        q2, y2 = q[2, i], y[2, start:stop]
        for j in range(stop - start):
            logit[j] = q0 * y0[j] + q1 * y1[j] + q2 * y2[j]
    for c in range(3, q.shape[0]):
        qc, yc = q[c, i], y[c, start:stop]
        for j in range(stop - start):
            logit[j] += qc * yc[j]
    top = _LOWEST
    for j in range(stop - start):
        top = max(top, logit[j])
    return top


@njit(cache=True, fastmath=REDUCTION, error_model="numpy")
def _exponentiate(logit: Array, mass: Array, square: Array, shift: float) -> tuple[float, float]:
    """Replace logits by e_j = e^{l_j - shift}; return sum_j w_j e_j and sum_j s_j e_j^2."""
    z = z2 = 0.0
    for j in range(mass.size):
        e = _exp(logit[j] - shift)
        logit[j] = e
        z += e * mass[j]
        z2 += e * e * square[j]
    return z, z2


@njit(cache=True, error_model="numpy")
def _bounding_balls(y: Array, mass: Array, tile: int) -> tuple[Array, Array, Array]:
    """Centre (tiles, d), radius and log-mass (tiles,) of consecutive runs of keys."""
    d, n = y.shape
    tiles = (n + tile - 1) // tile
    centre, radius, log_mass = np.zeros((tiles, d)), np.zeros(tiles), np.empty(tiles)
    for k in range(tiles):
        start, stop = k * tile, min(n, (k + 1) * tile)
        for c in range(d):
            centre[k, c] = y[c, start:stop].mean()
        for j in range(start, stop):
            square = 0.0
            for c in range(d):
                square += (y[c, j] - centre[k, c]) ** 2
            radius[k] = max(radius[k], math.sqrt(square))
        log_mass[k] = math.log(np.abs(mass[start:stop]).sum())
    return centre, radius, log_mass


@njit(cache=True, nogil=True, error_model="numpy")
def _average_fused(q: Array, y: Array, mass: Array, least: float, tile: int) -> Any:
    """Average, ess and pairs for small d; q (d, n), y (d, keys), mass and squares (2, keys).

    `least` bounds the log of Z_i from below, relative to the largest logit.
    """
    d, n = q.shape
    keys = y.shape[1]
    centre, radius, log_mass = _bounding_balls(y, mass[0], tile)
    heavy = mass[0] * y
    average, ess = np.empty((n, d)), np.empty(n)
    weight, total = np.empty(tile), np.empty(d)
    pairs = 0
    first = 0  # the tile that held the previous row's maximum goes first
    for i in range(n):
        length = math.sqrt(np.sum(q[:, i] * q[:, i]))
        top, z, z2, negligible = _LOWEST, 0.0, 0.0, _LOWEST
        total[:] = 0.0
        opening = first
        for turn in range(-1, log_mass.size):
            k = opening if turn < 0 else turn
            if turn == opening:
                continue
            bound = length * radius[k]
            for c in range(d):
                bound += q[c, i] * centre[k, c]
            if bound + log_mass[k] < negligible:
                continue
            start, stop = k * tile, min(keys, (k + 1) * tile)
            highest = _logits(q, i, y, start, stop, weight)
            if highest + log_mass[k] < negligible:
                continue
            if highest > top:
                shrink = math.exp(max(top - highest, _EXP_FLOOR))
                z, z2, total[:] = z * shrink, z2 * shrink * shrink, total * shrink
                top, first, negligible = highest, k, highest + least + _SKIP
            more, more2 = _exponentiate(weight, mass[0, start:stop], mass[1, start:stop], top)
            z, z2 = z + more, z2 + more2
            for c in range(d):
                total[c] += dot(weight, heavy[c, start:stop])
            pairs += stop - start
        average[i] = total / z
        ess[i] = z * z / z2
    return average, ess, pairs


@njit(cache=True, nogil=True, error_model="numpy")
def _exponentiate_block(
    logit: Array, mass: Array, top: Array, z: Array, z2: Array, total: Array
) -> None:
    """Exponentiate a block of logits (rows, columns); rescale and extend the running sums."""
    for i in range(logit.shape[0]):
        highest = max(top[i], logit[i].max())
        shrink = math.exp(max(top[i] - highest, _EXP_FLOOR))
        top[i] = highest
        total[i] *= shrink
        more, more2 = _exponentiate(logit[i], mass[0], mass[1], highest)
        z[i] = z[i] * shrink + more
        z2[i] = z2[i] * shrink * shrink + more2


def _average_blas(q: Array, y: Array, mass: Array) -> SoftmaxAverage:
    """Average, ess and pairs for large d; arrays (n, d), mass and squares (2, keys)."""
    n, keys = len(q), len(y)
    average, ess, heavy = np.empty_like(q), np.empty(n), mass[0][:, None] * y
    for rows in (slice(i, i + _ROWS) for i in range(0, n, _ROWS)):
        block = q[rows]
        top, z, z2 = np.full(len(block), _LOWEST), np.zeros(len(block)), np.zeros(len(block))
        total = np.zeros_like(block)
        for columns in (slice(j, j + _COLUMNS) for j in range(0, keys, _COLUMNS)):
            logit = block @ y[columns].T
            _exponentiate_block(logit, mass[:, columns], top, z, z2, total)
            total += logit @ heavy[columns]
        average[rows] = total / z[:, None]
        ess[rows] = z * z / z2
    return SoftmaxAverage(average, ess, n * keys)


def softmax_average(
    q: Array, y: Array, mass: Masses, square_mass: Masses | None = None
) -> SoftmaxAverage:
    """Average the keys with softmax weights, row by row.

    m_i = sum_j w_j e^{<q_i, y_j>} y_j / sum_j w_j e^{<q_i, y_j>}

    Parameters
    ----------
    q
        Queries times the inverse temperature, shape (n, d); any finite size.
    y
        Keys, unit vectors, shape (keys, d); neighbours in the array should be neighbours in
        space.
    mass
        Mass w_j of each key, shape (keys,), positive.
    square_mass
        Sum of the squared masses of the tokens that a key stands for, shape (keys,); w_j^2 (the
        default) for one token. Only ess depends on it.

    Returns
    -------
    SoftmaxAverage
        Averages (n, d), effective sample sizes (n,) and the number of pairs computed.

    Notes
    -----
    Relative error of a weight under 1e-15 plus that of its logit, |q| 2^-53. Cost O(n keys d) at
    most, memory O((n + keys) d). On the circle (d = 2) the keys are condensed to nodes first.

    >>> x = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> softmax_average(0.0 * x, x, np.array([0.75, 0.25])).average
    array([[0.75, 0.25], [0.75, 0.25]])
    """
    masses = np.stack([mass, mass**2 if square_mass is None else square_mass])
    if q.shape[1] >= BLAS_FROM_DIMENSION:
        return _average_blas(q, y, masses)
    points, least = y.T, math.log(mass.min())
    if q.shape[1] == 2:
        order = np.argsort(np.arctan2(y[:, 1], y[:, 0]), kind="stable")
        reach = float(np.sqrt(np.max(np.sum(q * q, axis=1))))
        points, masses = condense(np.ascontiguousarray(points[:, order]), masses[:, order], reach)
        least -= GAP_LOSS
    columns = np.ascontiguousarray(q.T), np.ascontiguousarray(points)
    return SoftmaxAverage(*_average_fused(*columns, masses, least, TILE))


def neighbour_order(x: Array) -> NDArray[np.intp]:
    """Order rows so that neighbours in space lie in the same tile.

    Halves the rows at the median of their widest coordinate until a part fits in a tile.

    >>> neighbour_order(np.array([[0.0], [2.0], [1.0]]))
    array([0, 1, 2])
    """
    parts, done = [np.arange(len(x))], []
    while parts:
        part = parts.pop()
        if len(part) <= TILE:
            done.append(np.sort(part))
            continue
        axis = int(np.argmax(np.ptp(x[part], axis=0)))
        middle = TILE * ((len(part) // 2 + TILE - 1) // TILE)  # whole tiles on the left
        ranked = part[np.argpartition(x[part, axis], middle - 1)]
        parts += [ranked[middle:], ranked[:middle]]
    return np.concatenate(done)


def compile_kernels(d: int) -> None:
    """Compile the route for dimension d, or load it from the cache beside this file."""
    x = np.eye(max(d, 2))[:2]
    softmax_average(x, x, np.full(2, 0.5))
