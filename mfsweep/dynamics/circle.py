"""Few keys that are attended to like many tokens, on the circle, whatever the queries.

On a short arc the weight e^{<q, y>} is a smooth function of the angle, whatever the query q. It
is interpolated at p Chebyshev nodes, so that a group of tokens y_j with masses w_j acts like
masses at the nodes,

    sum_j w_j f(theta_j) = sum_k W_k f(phi_k),   W_k = sum_j w_j L_k(theta_j),

for f = e^{<q, y>}, its products with y, and its square. Here p follows from the arc's half-width
a and the largest |q| alone: the more tokens on the arc, the more is saved. With
f analytic in the Bernstein ellipse of parameter e^s the error relative to max f is at most

    2 e^{|q| (a (cosh s - 1) + cosh(a sinh s) - 1) - p s} / (1 - e^{-s})

(Trefethen, Approximation Theory and Practice, theorem 8.2), minimised over s. The sum itself is
no smaller than max f times the mass of one token, up to a factor e^{GAP_LOSS}, because groups
are split where neighbours lie far apart on the scale |q|^{-1/2} of the peak.
"""

import math
from typing import Any

import numpy as np
from numba import njit

from mfsweep._types import Array
from mfsweep.dynamics.vectorised import REDUCTION, dot

ERROR = 1e-15
"""Error of a group's sum relative to the sum."""
GAP_LOSS = 2.0
WIDEST = 0.5  # half-width of an arc, radians
FEWEST = 24  # tokens worth a group
GAIN = 1.25  # tokens per node from which nodes pay


@njit(cache=True, error_model="numpy")
def _turn(y: Array, i: int, j: int) -> float:
    """Angle from y_i to y_j, in (-pi, pi]."""
    cross = y[0, i] * y[1, j] - y[1, i] * y[0, j]
    return math.atan2(cross, y[0, i] * y[0, j] + y[1, i] * y[1, j])


@njit(cache=True, error_model="numpy")
def nodes_needed(reach: float, half: float, count: int) -> int:
    """Nodes for an arc of the given half-width, queries of length up to reach, count tokens."""
    digits = math.log(2 * count / ERROR) + GAP_LOSS
    least = 1e9
    for k in range(1, 33):
        s = 0.1 * k
        growth = half * (math.cosh(s) - 1) + math.cosh(half * math.sinh(s)) - 1
        least = min(least, (digits - math.log1p(-math.exp(-s)) + reach * growth) / s)
    return int(least) + 1


@njit(cache=True, fastmath=REDUCTION, error_model="numpy")
def _next_polynomial(x: Array, now: Array, before: Array) -> None:
    """Step T_m, T_{m-1} to T_{m+1}, T_m: T_{m+1} = 2 x T_m - T_{m-1}."""
    for j in range(x.size):
        after = 2 * x[j] * now[j] - before[j]
        before[j] = now[j]
        now[j] = after


@njit(cache=True, error_model="numpy")
def _place_nodes(
    y: Array, mass: Array, start: int, stop: int, half: float, nodes: Array, weights: Array
) -> None:
    """Fill the nodes (2, p) of one group and their weights (2, p) for both rows of masses (2, n).

    With Chebyshev moments M_m = sum_j w_j T_m(x_j): W_k = (M_0 + 2 sum_m M_m T_m(x_k)) / p.
    """
    p, count = nodes.shape[1], stop - start
    x, before, now = np.empty(count), np.ones(count), np.empty(count)
    for j in range(count):
        x[j] = _turn(y, start, start + j) / half - 1 if half > 0 else 0.0
        x[j] = max(-1.0, min(1.0, x[j]))  # off by the roundoff of an angle
    at, at_before, at_now = np.empty(p), np.ones(p), np.empty(p)
    for k in range(p):
        at[k] = math.cos(math.pi * (2 * k + 1) / (2 * p))
        c, s = math.cos(half * (1 + at[k])), math.sin(half * (1 + at[k]))
        nodes[0, k] = c * y[0, start] - s * y[1, start]
        nodes[1, k] = s * y[0, start] + c * y[1, start]
    now[:], at_now[:] = x, at
    for row in range(2):
        weights[row] = mass[row, start:stop].sum() / p
    for _ in range(1, p):
        for row in range(2):
            weights[row] += 2 / p * dot(now, mass[row, start:stop]) * at_now
        _next_polynomial(x, now, before)
        _next_polynomial(at, at_now, at_before)


@njit(cache=True, nogil=True, error_model="numpy")
def condense(y: Array, mass: Array, reach: float) -> Any:
    """Replace groups of tokens on the circle by nodes where that leaves fewer.

    Parameters
    ----------
    y
        Tokens in the order of their angle, shape (2, n).
    mass
        Masses w_j and sums of squared masses, shape (2, n).
    reach
        Largest |q| over the queries.

    Returns
    -------
    tuple of Array
        Points (2, N) and their weights (2, N), N <= n; weights of nodes may be negative.
    """
    n = y.shape[1]
    points, weights = np.empty((2, n)), np.empty((2, n))
    step = np.zeros(n)
    for j in range(1, n):
        turn = _turn(y, j - 1, j)
        step[j] = turn + 2 * math.pi if turn < -1e-9 else max(0.0, turn)
    pending = [(0, n)]
    size = 0
    while len(pending) > 0:
        start, stop = pending.pop()
        count = stop - start
        steps = step[start + 1 : stop]
        half = steps.sum() / 2
        widest = int(np.argmax(steps)) if count > 1 else 0
        torn = count > 1 and 2 * reach * steps[widest] ** 2 > 8 * GAP_LOSS
        needed = count
        if count >= FEWEST and half <= WIDEST and not torn:
            needed = nodes_needed(2 * reach, half, count)
        if GAIN * needed < count:
            nodes = points[:, size : size + needed]
            _place_nodes(y, mass, start, stop, half, nodes, weights[:, size : size + needed])
            size += needed
        elif count < 2 * FEWEST:
            points[:, size : size + count] = y[:, start:stop]
            weights[:, size : size + count] = mass[:, start:stop]
            size += count
        else:
            middle = start + 1 + widest if torn else (start + stop) // 2
            pending.append((middle, stop))
            pending.append((start, middle))
    return points[:, :size].copy(), weights[:, :size].copy()
