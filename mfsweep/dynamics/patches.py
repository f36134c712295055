"""Patches of the sphere that hold groups of tokens, and how many nodes serve each of them.

A group of tokens in a small patch is written in the tangent plane at its centre c,

    x = sqrt(1 - a^2 - b^2) c + a u + b v,    |a| <= h_1, |b| <= h_2,

where e^{<x, k>} is an analytic function of (a, b) for every k. What all members of a group share
is taken out first (see `condense`), so k stands for a difference, and a cluster that attends to
itself needs few nodes. With e^{<x, k>} analytic in the Bernstein ellipse of parameter s of the
first coordinate, where it exceeds its largest value on the patch by at most the factor

    e^{G(s)},  G(s) = slope h_1 (cosh s - 1) + |<k, c>| kappa (h_1 sinh s)^2 / 2,

interpolation at p_1 Chebyshev nodes leaves a relative error of at most
4 e^{G(s) - p_1 s} / (1 - e^{-s}) (Trefethen, Approximation Theory and Practice, theorem 8.2). Here
slope bounds the outward derivative of <x, k> at the patch's ends, and kappa the curvature of the
sphere over the ellipse. The number of nodes follows from the digits that a pair of groups still
adds to a sum, so distant groups ask for few.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from mfsweep._types import Array
from mfsweep.dynamics.tiles import Runs, Tree, cap_around

DIGITS = math.log(1e13)
"""Natural logarithm of a sum of weights over its largest error."""
SQUARE_DIGITS = math.log(64e6)
"""The same for squared weights; their sum is at least a 64th of the square of a tile's sum."""
WIDEST = 0.5
"""Largest |a| or |b| that an ellipse may reach."""
FEWEST = 24
"""Tokens worth a group."""
ROUNDOFF = 1e-15
"""Half-width that is roundoff of unit vectors, such as across the circle's plane."""
LOSS = 9.0
"""Logarithm of how far terms may exceed the sum: roundoff grows by as much."""
SMALL_BALL = 2.0
"""Spread of logits across a patch that the vectors of one ball may have."""
MOST = 64
"""Most nodes along one coordinate."""
GAIN = 1.5
"""Tokens per node from which nodes pay."""


class Field(NamedTuple):
    """Queries or keys, and a ball around those of each node of a tree, filled in when needed."""

    vectors: Array
    """Shape (n, 3), in the tree's order."""
    worth: Array
    """What to add to a vector's logit to get the digits it is worth, shape (n,)."""
    mass: Array
    """Masses of keys, shape (n,), whose sum over a node counts; empty for queries."""
    centre: Array
    """Shape (nodes, 3)."""
    radius: Array
    """Shape (nodes,); NaN until it is needed."""
    digits: Array
    """Largest worth_i + <v_i, e> in a node, e the direction of its centre, plus the logarithm of
    its mass, shape (nodes,)."""


def field_of(vectors: Array, worth: Array, mass: Array, nodes: int) -> Field:
    """Return a field whose balls, one for each node of a tree, are still to be filled in."""
    balls = np.zeros((nodes, 3)), np.full(nodes, np.nan), np.empty(nodes)
    return Field(vectors, worth, mass, *balls)


@njit(cache=True, error_model="numpy")
def _length(a: float, b: float, c: float) -> float:
    return math.sqrt(a * a + b * b + c * c)


@njit(cache=True, error_model="numpy")
def _enclose(field: Field, tree: Tree, node: int) -> None:
    """Fill in a node's ball and digits."""
    start, stop, v = tree.first[node], tree.last[node], field.vectors
    for j in range(start, stop):
        for c in range(3):
            field.centre[node, c] += v[j, c] / (stop - start)
    c0, c1, c2 = field.centre[node]
    size, radius, digits = max(_length(c0, c1, c2), 1e-300), 0.0, -np.inf
    for j in range(start, stop):
        radius = max(radius, _length(v[j, 0] - c0, v[j, 1] - c1, v[j, 2] - c2))
        along = (v[j, 0] * c0 + v[j, 1] * c1 + v[j, 2] * c2) / size
        digits = max(digits, field.worth[j] + along)
    if field.mass.size > 0:
        digits += math.log(field.mass[start:stop].sum())
    field.radius[node], field.digits[node] = radius, digits


# ---- one patch -----------------------------------------------------------------------------


class Patch(NamedTuple):
    """A group's frame: rows c, u, v, and its half-widths along u and v."""

    frame: Array
    half: tuple[float, float]


@njit(cache=True, error_model="numpy")
def _project(x: Array, start: int, stop: int, frame: Array) -> tuple[float, float, float, float]:
    """Return the least and largest a and b of a group."""
    low_a = low_b = np.inf
    high_a = high_b = -np.inf
    for j in range(start, stop):
        a = x[j, 0] * frame[1, 0] + x[j, 1] * frame[1, 1] + x[j, 2] * frame[1, 2]
        b = x[j, 0] * frame[2, 0] + x[j, 1] * frame[2, 1] + x[j, 2] * frame[2, 2]
        low_a, high_a, low_b, high_b = min(low_a, a), max(high_a, a), min(low_b, b), max(high_b, b)
    return low_a, high_a, low_b, high_b


@njit(cache=True, error_model="numpy")
def _axes(x: Array, start: int, stop: int, frame: Array) -> None:
    """Fill u and v: principal directions of the group in the tangent plane at frame[0]."""
    c = frame[0]
    axis = np.argmin(np.abs(c))
    u = -c[axis] * c
    u[axis] += 1.0
    u /= math.sqrt((u * u).sum())
    v = np.array([c[1] * u[2] - c[2] * u[1], c[2] * u[0] - c[0] * u[2], c[0] * u[1] - c[1] * u[0]])
    uu = uv = vv = 0.0
    for j in range(start, stop):
        a = x[j, 0] * u[0] + x[j, 1] * u[1] + x[j, 2] * u[2]
        b = x[j, 0] * v[0] + x[j, 1] * v[1] + x[j, 2] * v[2]
        uu, uv, vv = uu + a * a, uv + a * b, vv + b * b
    turn = 0.5 * math.atan2(2 * uv, uu - vv)
    frame[1] = math.cos(turn) * u + math.sin(turn) * v
    frame[2] = math.cos(turn) * v - math.sin(turn) * u


@njit(cache=True, error_model="numpy")
def _patch(x: Array, start: int, stop: int) -> Any:
    """Fit a patch around rows start to stop; half-widths of infinity where they span too much."""
    frame = np.empty((3, 3))
    cosine, _ = cap_around(x, start, stop, frame[0])
    if cosine < math.cos(WIDEST):
        return Patch(frame, (np.inf, np.inf))
    _axes(x, start, stop, frame)
    low_a, high_a, low_b, high_b = _project(x, start, stop, frame)
    a, b = (low_a + high_a) / 2, (low_b + high_b) / 2
    c = math.sqrt(1 - a * a - b * b) * frame[0] + a * frame[1] + b * frame[2]
    frame[0] = c / math.sqrt((c * c).sum())
    _axes(x, start, stop, frame)
    low_a, high_a, low_b, high_b = _project(x, start, stop, frame)
    one, two = max(high_a, -low_a), max(high_b, -low_b)
    return Patch(frame, (one if one > ROUNDOFF else 0.0, two if two > ROUNDOFF else 0.0))


@njit(cache=True, error_model="numpy")
def nodes_needed(
    digits: float, across: float, inward: float, along: float, half: float, other: float
) -> float:
    """Return the nodes that leave an error of e^-digits, along the coordinate of half-width half.

    Parameters
    ----------
    digits
        Natural logarithm of the wanted accuracy.
    across, along
        Largest tangential part of the vectors k at the patch's centre c, and largest |<k, c>|.
    inward
        Least <k, c>, or 0 if one is negative.
    half, other
        Half-widths of the patch along this coordinate and the other.

    Returns
    -------
    float
        Infinity where the patch is too wide for the chart.
    """
    if 1.05 * half > WIDEST:
        return np.inf
    slope = max(0.0, across - inward * half)
    s = math.asinh(math.sqrt(2 * digits / max(slope * half + along * half * half, 1e-300)))
    s = min(s, math.acosh(WIDEST / max(half, 1e-30)))
    span = (half * math.cosh(s)) ** 2 + other * other
    if span > 0.5:
        return np.inf
    rise = slope * half * (math.cosh(s) - 1)
    rise += along * (1 - span) ** -1.5 * (half * math.sinh(s)) ** 2 / 2
    return float((digits + rise + math.log(4 / (1 - math.exp(-s)))) / s)


@njit(cache=True, error_model="numpy")
def _nodes_for_both(
    digits: float, across: float, inward: float, along: float, half: float, other: float
) -> float:
    """Return nodes_needed for e^{<x, k>}, and for its square where that asks for more."""
    p = nodes_needed(digits, across, inward, along, half, other)
    digits = SQUARE_DIGITS + 2 * (digits - DIGITS)
    if digits <= 0:
        return p
    return max(p, nodes_needed(digits, 2 * across, 2 * inward, 2 * along, half, other))


@njit(cache=True, error_model="numpy")
def _parts(v: Array, c: Array) -> tuple[float, float]:
    """Return <v, c> and the length of the rest of v."""
    up = v[0] * c[0] + v[1] * c[1] + v[2] * c[2]
    return up, _length(v[0] - up * c[0], v[1] - up * c[1], v[2] - up * c[2])


@njit(cache=True, error_model="numpy")
def _nodes_for(
    patch: Patch, shared: Array, worth: float, field: Field, tree: Tree, most: float
) -> tuple[float, float]:
    """Return nodes along u and v that serve every vector of a field to the digits it is worth.

    A vector is worth its digits plus worth, less what its logits with the patch lack to those with
    its own direction; shared is what the group takes out, so that the largest value of shared and
    of the rest count, wherever on the patch they are. The search goes down the tree, nearer
    parts first, until a ball is small or worth nothing, and gives up once the product passes most.
    """
    c, p1, p2 = patch.frame[0], 1.0, 1.0
    if patch.half[0] == np.inf:
        return np.inf, np.inf
    width = math.hypot(patch.half[0], patch.half[1])
    up, aside = _parts(shared, c)
    rise = aside * width + max(0.0, -up) * width * width
    pending = [0]
    while len(pending) > 0:
        k = pending.pop()
        if np.isnan(field.radius[k]):
            _enclose(field, tree, k)
        b, r = field.centre[k], field.radius[k]
        inner = b[0] * c[0] + b[1] * c[1] + b[2] * c[2]
        size = max(_length(b[0], b[1], b[2]), 1e-300)
        apart = math.sqrt(max(0.0, 2 - 2 * inner / size)) + 1.05 * width
        digits = field.digits[k] + worth + rise + inner - size + r * apart
        up, across = _parts(b - shared, c)
        digits += across * width + max(0.0, -up) * width * width
        if digits <= 0.0 and 2 * (digits - DIGITS) + SQUARE_DIGITS <= 0.0:
            continue
        digits = max(digits, 0.1)
        child = tree.child[k]
        if r * max(width, 0.1 * apart) > SMALL_BALL and child > 0:
            middle = tree.last[child]
            left, right = field.vectors[tree.first[k]], field.vectors[middle]
            nearer = (left * c).sum() >= (right * c).sum()
            pending.append(child + 1 if nearer else child)
            pending.append(child if nearer else child + 1)
            continue
        if digits - DIGITS > LOSS:
            return np.inf, np.inf
        across, inward, along = across + r, max(0.0, up - r), abs(up) + r
        p1 = max(p1, _nodes_for_both(digits, across, inward, along, patch.half[0], patch.half[1]))
        p2 = max(p2, _nodes_for_both(digits, across, inward, along, patch.half[1], patch.half[0]))
        if not math.ceil(p1) * math.ceil(p2) <= most or max(p1, p2) > MOST:
            return np.inf, np.inf
    return math.ceil(p1), math.ceil(p2)


@njit(cache=True, error_model="numpy")
def _nodes_with(
    patch: Patch, shared: Array, worth: float, field: Field, tree: Tree, most: float
) -> tuple[float, float]:
    """Return _nodes_for, or what serves without taking out shared, which it then sets to zero.

    Narrow groups that attend to one place do better with it, wide ones without.
    """
    p1, p2 = _nodes_for(patch, shared, worth, field, tree, most)
    if p1 * p2 <= most:
        return p1, p2
    shared[:] = 0.0
    return _nodes_for(patch, shared, worth, field, tree, most)


# ---- all groups ----------------------------------------------------------------------------


class Groups(NamedTuple):
    """Runs of tokens that nodes stand for, in order."""

    runs: Runs
    """First token, one past the last, nodes along u and along v; shape (groups, 4), integers."""
    frames: Array
    """Shape (groups, 3, 3)."""
    halves: Array
    """Shape (groups, 2)."""
    shared: Array
    """The query and the key whose logits are taken out, shape (groups, 2, 3)."""


@njit(cache=True, nogil=True, error_model="numpy")
def find_groups(
    x: Array, tree: Tree, form: Array, mass: Array, floor: Array, fields: Any, places: Array
) -> Groups:
    """Walk down the tree until nodes pay.

    Parameters
    ----------
    x, tree
        Tokens in the tree's order, unit vectors, shape (n, 3).
    form
        The inverse temperature times B, shape (3, 3).
    mass
        Shape (n,).
    floor
        Lower bound of each token's log Z, shape (n,).
    fields
        Queries, whose logits a token as a key must reproduce, and keys, for it as a query.
    places
        Where keys are: unit vectors, shape (tiles, 3).
    """
    n = len(x)
    runs, frames, halves = np.empty((n, 4), np.int64), np.empty((n, 3, 3)), np.empty((n, 2))
    shared = np.empty((n, 2, 3))
    size = 0
    pending = [0]
    while len(pending) > 0:
        at = pending.pop()
        start, stop = tree.first[at], tree.last[at]
        if stop - start < FEWEST:
            continue
        patch, most = _patch(x, start, stop), (stop - start) / GAIN
        query = patch.frame[0] @ form
        key = form @ places[np.argmax(places @ query)]  # what the group looks at
        worth = math.log(mass[start:stop].sum())
        p1, p2 = _nodes_with(patch, query, worth, fields[0], tree, most)
        if p1 * p2 <= most:
            worth = -floor[start:stop].min()
            r1, r2 = _nodes_with(patch, key, worth, fields[1], tree, most)
            p1, p2 = max(p1, r1), max(p2, r2)
        if p1 * p2 <= most:
            runs[size] = start, stop, int(p1), int(p2)
            frames[size] = patch.frame
            halves[size, 0], halves[size, 1] = patch.half
            shared[size, 0], shared[size, 1] = query, key
            size += 1
        elif tree.child[at] > 0:
            pending.append(tree.child[at] + 1)
            pending.append(tree.child[at])
    return Groups(runs[:size], frames[:size], halves[:size], shared[:size])
