"""The compiled velocity of a moving mesh on the circle: the hot loop of the continuum.

With x = (cos theta, sin theta), x' = (-sin theta, cos theta) and masses w_j at angles theta_j,

    d theta / dt = <x', V m(x)>,  m(x) = sum_j w_j e^{beta <B^T x, y_j>} y_j / sum_j (the same) 1,

is summed over tiles of neighbouring masses, relative to the largest logit + log-mass so far, so a
log-mass of any size keeps its digits. A tile that adds less than e^{-40} of the sum is skipped:
on its arc the logit is largest at the direction of B^T x, or else at an end.
"""

import math
from typing import Any

import numpy as np
from numba import njit

from mfsweep._types import Array
from mfsweep.dynamics.cells import inside
from mfsweep.dynamics.vectorised import REDUCTION, exponential

TILE = 32
"""Masses per tile."""
SKIP = -40.0
"""Log of the share of a sum below which a tile is left out."""
FAR = 300.0
"""Log of the largest term that is summed without a look at its tile's own largest."""
_LOWEST = -1e308


@njit(cache=True, error_model="numpy")
def _keys(edges: Array, eta: Array, mirrored: bool, antipodal: bool) -> Array:
    """Return unit vectors of the mass points and of their images, (images, 2, points)."""
    n = eta.shape[1]
    keys = np.empty(((1 + mirrored) * (1 + antipodal), 2, 2 * n))
    for k in range(n):
        for j in range(2):
            theta = edges[k] + inside(eta[j, k]) * (edges[k + 1] - edges[k])
            keys[0, 0, 2 * k + j], keys[0, 1, 2 * k + j] = math.cos(theta), math.sin(theta)
    if mirrored:
        keys[1, 0], keys[1, 1] = keys[0, 0], -keys[0, 1]
    if antipodal:
        half = len(keys) // 2
        keys[half:] = -keys[:half]
    return keys


@njit(cache=True, error_model="numpy")
def _highest(qx: float, qy: float, keys: Array, log_mass: Array, tile: Any) -> float:
    """Return the largest <q, y> + log-mass of a tile (image, start, stop)."""
    image, start, stop = tile
    top = _LOWEST
    for j in range(start, stop):
        top = max(top, qx * keys[image, 0, j] + qy * keys[image, 1, j] + log_mass[j])
    return top


@njit(cache=True, fastmath=REDUCTION, error_model="numpy")
def _sums(qx: float, qy: float, keys: Array, log_mass: Array, tile: Any, shift: float) -> Any:
    """Sum e^{<q, y> + log-mass - shift} times 1, y_1 and y_2 over a tile (image, start, stop)."""
    image, start, stop = tile
    z = a = b = 0.0
    for j in range(start, stop):
        x, y = keys[image, 0, j], keys[image, 1, j]
        e = exponential(qx * x + qy * y + (log_mass[j] - shift))
        z += e
        a += e * x
        b += e * y
    return z, a, b


@njit(cache=True, error_model="numpy")
def _tiles(keys: Array, log_mass: Array) -> Any:
    """First and last unit vector (tiles, 4) and total log-mass (tiles,) of each tile."""
    images, _, n = keys.shape
    per_image = (n + TILE - 1) // TILE
    ends, total = np.empty((images * per_image, 4)), np.empty(images * per_image)
    for k in range(per_image):
        start, stop = k * TILE, min(n, (k + 1) * TILE)
        top = log_mass[start:stop].max()
        mass = math.log(np.exp(log_mass[start:stop] - top).sum()) + top
        for i in range(images):
            ends[i * per_image + k, :2] = keys[i, :, start]
            ends[i * per_image + k, 2:] = keys[i, :, stop - 1]
            total[i * per_image + k] = mass
    return ends, total


@njit(cache=True, fastmath=REDUCTION, error_model="numpy")
def _bounds(qx: float, qy: float, ends: Array, total: Array, out: Array) -> None:
    """Fill the largest logit on each tile's arc plus the tile's log-mass."""
    length = math.sqrt(qx * qx + qy * qy)
    for t in range(total.size):
        first = qx * ends[t, 0] + qy * ends[t, 1]
        last = qx * ends[t, 2] + qy * ends[t, 3]
        turn_first = qx * ends[t, 1] - qy * ends[t, 0]
        turn_last = qx * ends[t, 3] - qy * ends[t, 2]
        between = (turn_first * turn_last <= 0) & (first + last > 0)
        out[t] = (length if between else max(first, last)) + total[t]


@njit(cache=True, error_model="numpy")
def _average(qx: float, qy: float, keys: Array, log_mass: Array, tiles: Any, bound: Array) -> Any:
    """Softmax average of one query, and the number of masses summed."""
    ends, total = tiles
    n = log_mass.size
    per_image = (n + TILE - 1) // TILE
    _bounds(qx, qy, ends, total, bound)
    opening = int(np.argmax(bound))
    top, z, a, b = _LOWEST, 0.0, 0.0, 0.0
    pairs = 0
    for turn in range(-1, total.size):
        t = opening if turn < 0 else turn
        if turn == opening or bound[t] < top + SKIP:
            continue
        start = (t % per_image) * TILE
        tile = t // per_image, start, min(start + TILE, n)
        if bound[t] > top + FAR:
            highest = _highest(qx, qy, keys, log_mass, tile)
            if highest > top:
                shrink = exponential(top - highest)
                z, a, b, top = z * shrink, a * shrink, b * shrink, highest
        more, more_a, more_b = _sums(qx, qy, keys, log_mass, tile, top)
        z, a, b = z + more, a + more_a, b + more_b
        pairs += tile[2] - start
    return a / z, b / z, pairs


@njit(cache=True, nogil=True, error_model="numpy")
def edge_velocity(
    edges: Array,
    eta: Array,
    log_mass: Array,
    V: Array,
    B: Array,
    beta: float,
    mirrored: bool,
    antipodal: bool,
) -> Any:
    """Velocity d theta / dt of every edge, and the number of masses summed.

    At beta = inf, m(x) = B^T x / |B^T x|. A mirror pins the first and the last edge.
    """
    velocity = np.zeros(edges.size)
    pairs = 0
    cold = math.isinf(beta)
    masses = log_mass.T.copy().ravel()
    keys = _keys(edges, eta, mirrored, antipodal)
    tiles = _tiles(keys, masses)
    bound = np.empty(tiles[1].size)
    first, stop = (1, edges.size - 1) if mirrored else (0, edges.size - 1)
    for k in range(first, stop):
        c, s = math.cos(edges[k]), math.sin(edges[k])
        qx, qy = B[0, 0] * c + B[1, 0] * s, B[0, 1] * c + B[1, 1] * s
        if cold:
            length = math.hypot(qx, qy)
            mx, my = qx / length, qy / length
        else:
            mx, my, more = _average(beta * qx, beta * qy, keys, masses, tiles, bound)
            pairs += more
        velocity[k] = c * (V[1, 0] * mx + V[1, 1] * my) - s * (V[0, 0] * mx + V[0, 1] * my)
    if not mirrored:
        velocity[-1] = velocity[0]
    return velocity, pairs


@njit(cache=True, nogil=True, error_model="numpy")
def point_velocity(edges: Array, velocity: Array, eta: Array, mirrored: bool) -> Array:
    r"""Velocity of eta = log(xi / (1 - xi)) from the edges' velocities, by cubic interpolation.

    In cell k of width h the velocity is its linear interpolant minus h^2 xi (1 - xi) D(xi), with D
    the second divided difference over the edges k - 1..k + 2, and therefore d eta / dt = -h D.
    """
    n = eta.shape[1]
    x, a = np.empty(n + 3), np.empty(n + 3)
    x[1:-1], a[1:-1] = edges, velocity
    if mirrored:
        x[0], a[0] = 2 * edges[0] - edges[1], -velocity[1]
        x[-1], a[-1] = 2 * edges[n] - edges[n - 1], -velocity[n - 1]
    else:
        period = edges[n] - edges[0]
        x[0], a[0] = edges[n - 1] - period, velocity[n - 1]
        x[-1], a[-1] = edges[1] + period, velocity[1]
    slope = np.diff(a) / np.diff(x)
    out = np.empty_like(eta)
    for k in range(n):
        h = x[k + 2] - x[k + 1]
        left = (slope[k + 1] - slope[k]) / (x[k + 2] - x[k])
        right = (slope[k + 2] - slope[k + 1]) / (x[k + 3] - x[k + 1])
        for j in range(2):
            at = x[k + 1] + inside(eta[j, k]) * h
            blend = (at - x[k]) / (x[k + 3] - x[k])
            out[j, k] = -h * (left + (right - left) * blend)
    return out
