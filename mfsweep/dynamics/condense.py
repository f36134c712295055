"""Few nodes that attend, and are attended to, like many tokens: on the circle and the sphere.

On a group's patch e^{<x, k>} is interpolated at p_1 x p_2 Chebyshev nodes x_k with Lagrange
polynomials L_k, in both roles of a token. As a key, it turns masses of tokens into masses of nodes;
as a query, it takes sums at nodes to sums at tokens:

    sum_j w_j f(x_j) = sum_k W_k f(x_k),  W_k = sum_j w_j L_k(x_j),
    g(x_i) = sum_k L_k(x_i) g(x_k).

What all members of a group share is taken out first: with c the patch's centre, keys are
interpolated relative to e^{<q, x>}, q = beta B^T c the query that c has, and sums relative to
e^{<x, k>} of the key k = beta B y that c looks at. `patches` finds the groups and their nodes.
While tokens are spread over the circle, nodes stand for them as keys alone (see `circle`).
"""

import math
from typing import Any

import numpy as np
from numba import njit

from mfsweep._types import Array, Basis, Masses, Tokens
from mfsweep.dynamics.circle import condense
from mfsweep.dynamics.kernels import (
    TILE,
    SoftmaxAverage,
    Tiles,
    floors,
    fused_sums,
    headroom_of,
    in_three,
    negligible,
    softmax_average,
    tiles_of,
)
from mfsweep.dynamics.patches import DIGITS, Groups, field_of, find_groups
from mfsweep.dynamics.tiles import Runs, Tree, equal_runs, neighbour_tree

MOSTLY = 0.75
"""On the circle, groups that leave out fewer tokens than this part give way to nodes as keys."""
_LEBESGUE = math.log(4.0)  # growth of an interpolation's error in the other coordinate


@njit(cache=True, error_model="numpy")
def _lagrange(x: Array, start: int, stop: int, axis: Array, half: float, p: int) -> Array:
    """Evaluate the p Lagrange polynomials at a group's coordinates along an axis; (count, p)."""
    values = np.empty((stop - start, p))
    node, weight = np.empty(p), np.empty(p)
    for k in range(p):
        turn = math.pi * (2 * k + 1) / (2 * p)
        node[k], weight[k] = math.cos(turn), math.sin(turn) * (1 - 2 * (k % 2))
    for j in range(stop - start):
        t = x[start + j, 0] * axis[0] + x[start + j, 1] * axis[1] + x[start + j, 2] * axis[2]
        t = max(-1.0, min(1.0, t / half)) if half > 0 else 0.0
        total, hit = 0.0, -1
        for k in range(p):
            if t == node[k]:
                hit = k
                break
            values[j, k] = weight[k] / (t - node[k])
            total += values[j, k]
        if hit >= 0:
            values[j] = 0.0
            values[j, hit] = 1.0
        else:
            values[j] /= total
    return values


@njit(cache=True, error_model="numpy")
def _grid(frame: Array, half: Array, p1: int, p2: int, nodes: Array) -> None:
    """Fill the nodes (p1 p2, 3) of a patch."""
    for k in range(p1):
        a = half[0] * math.cos(math.pi * (2 * k + 1) / (2 * p1))
        for m in range(p2):
            b = half[1] * math.cos(math.pi * (2 * m + 1) / (2 * p2))
            for c in range(3):
                up = math.sqrt(1 - a * a - b * b) * frame[0, c]
                nodes[k * p2 + m, c] = up + a * frame[1, c] + b * frame[2, c]


@njit(cache=True, error_model="numpy")
def _logits(x: Array, k: Array) -> Array:
    """Return <x_i, k> of each row."""
    logits: Array = x[:, 0] * k[0] + x[:, 1] * k[1] + x[:, 2] * k[2]
    return logits


@njit(cache=True, error_model="numpy")
def _node_masses(mass: Array, taken: Array, back: Array, one: Array, two: Array) -> Array:
    """Return W_k = e^{-back_k} sum_j w_j e^{taken_j} L_k(x_j), shape (p1 p2,).

    `taken` and `back` are the shared query's logits at the tokens and at the nodes, `one` and `two`
    the Lagrange values along both axes.
    """
    heavy = one * (mass * np.exp(taken - taken[0])).reshape(mass.size, 1)
    shares: Array = np.dot(heavy.T, two).ravel() * np.exp(taken[0] - back)
    return shares


@njit(cache=True, nogil=True, error_model="numpy")
def place(x: Array, starts: Runs, mass: Array, square: Array, floor: Array, groups: Groups) -> Any:
    """Replace groups by nodes: points (N, 3), their runs, columns (3, N), and Lagrange values.

    Columns are masses, sums of squared masses and floors; a run has at most TILE points.

    The values of group g, (count, p1) and then (count, p2), follow those of group g - 1.
    """
    n = len(x)
    size = values = 0
    for start, stop, p1, p2 in groups.runs:
        size += p1 * p2 - (stop - start)
        values += (p1 + p2) * (stop - start)
    points, columns = np.empty((n + size, 3)), np.empty((3, n + size))
    lagrange = np.empty(values)
    cuts = [0]
    at = done = offset = 0
    for g in range(len(groups.runs) + 1):
        start = groups.runs[g, 0] if g < len(groups.runs) else n
        loose = at + start - done
        points[at:loose] = x[done:start]
        columns[0, at:loose] = mass[done:start]
        columns[1, at:loose], columns[2, at:loose] = square[done:start], floor[done:start]
        for cut in starts[np.searchsorted(starts, done, "right") : np.searchsorted(starts, start)]:
            cuts.append(at + cut - done)
        if start > done:
            cuts.append(loose)
        at, done = loose, start
        if g == len(groups.runs):
            break
        stop, p1, p2 = groups.runs[g, 1], groups.runs[g, 2], groups.runs[g, 3]
        frame, half = groups.frames[g], groups.halves[g]
        one = _lagrange(x, start, stop, frame[1], half[0], p1)
        two = _lagrange(x, start, stop, frame[2], half[1], p2)
        nodes = points[at : at + p1 * p2]
        _grid(frame, half, p1, p2, nodes)
        query = groups.shared[g, 0]
        taken, back = _logits(x[start:stop], query), _logits(nodes, query)
        for row, weight in enumerate((mass, square)):
            shares = _node_masses(weight[start:stop], (row + 1) * taken, (row + 1) * back, one, two)
            columns[row, at : at + p1 * p2] = shares
        columns[2, at : at + p1 * p2] = floor[start:stop].min() - 2 * _LEBESGUE
        lagrange[offset : offset + one.size] = one.ravel()
        offset += one.size
        lagrange[offset : offset + two.size] = two.ravel()
        offset += two.size
        for cut in range(at, at + p1 * p2, TILE):
            cuts.append(min(cut + TILE, at + p1 * p2))
        at, done = at + p1 * p2, stop
    return points, np.array(cuts), columns, lagrange


@njit(cache=True, nogil=True, error_model="numpy")
def gather(
    x: Array, points: Array, groups: Groups, lagrange: Array, shift: Array, sums: Array
) -> Array:
    """Take sums at points, (N, 5) relative to e^shift, back to tokens, each to its own scale.

    Columns: sum_j s_j e_ij^2, sum_j w_j e_ij, sum_j w_j e_ij y_j.
    """
    n = len(x)
    result = np.empty((n, 5))
    at = done = offset = 0
    for g in range(len(groups.runs) + 1):
        start = groups.runs[g, 0] if g < len(groups.runs) else n
        result[done:start] = sums[at : at + start - done]
        at, done = at + start - done, start
        if g == len(groups.runs):
            break
        stop, p1, p2 = groups.runs[g, 1], groups.runs[g, 2], groups.runs[g, 3]
        count, nodes = stop - start, p1 * p2
        scale = shift[at : at + nodes] - _logits(points[at : at + nodes], groups.shared[g, 1])
        scale = np.exp(scale - scale.max())
        table = np.empty((p2, p1, 5))
        for k in range(p1):
            for m in range(p2):
                node = k * p2 + m
                table[m, k] = sums[at + node] * scale[node]
                table[m, k, 0] *= scale[node]
        one = lagrange[offset : offset + count * p1].reshape(count, p1)
        offset += count * p1
        two = lagrange[offset : offset + count * p2].reshape(count, p2)
        offset += count * p2
        halfway = np.dot(two, table.reshape(p2, p1 * 5))
        for j in range(count):
            for c in range(5):
                total = 0.0
                for k in range(p1):
                    total += one[j, k] * halfway[j, k * 5 + c]
                result[start + j, c] = total
        at, done = at + nodes, stop
    return result


def condensed_average(
    x: Tokens,
    form: Array,
    mass: Masses,
    square_mass: Masses | None = None,
    *,
    tree: Tree | None = None,
    spans: tuple[Basis, Basis] | None = None,
) -> SoftmaxAverage:
    """Average the tokens as each sees them: softmax_average with queries x_i form and keys x_j.

    Parameters
    ----------
    x
        Tokens, unit vectors, shape (n, d), in any order.
    form
        The inverse temperature times B, shape (d, d).
    mass, square_mass, spans
        As in softmax_average.
    tree
        A neighbour tree of these tokens, or of earlier ones while neighbours stay neighbours.

    Returns
    -------
    SoftmaxAverage
        The same numbers as softmax_average to 1e-12 (ess to 1e-5); pairs counts nodes as tokens.

    Notes
    -----
    From four dimensions on it is softmax_average. Below, a cluster costs as much as its nodes do,
    however many tokens it has.

    >>> x = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> condensed_average(x, 0.0 * np.eye(2), np.array([0.75, 0.25])).average
    array([[0.75, 0.25], [0.75, 0.25]])
    """
    n, d = x.shape
    tree = tree or neighbour_tree(x, TILE)
    order = tree.order
    square = mass**2 if square_mass is None else square_mass
    tokens, mass, square = x[order], mass[order], square[order]
    back = np.argsort(order)
    if d > 3:
        sums = softmax_average(tokens @ form, tokens, mass, square, spans=spans)
        return SoftmaxAverage(sums.average[back], sums.ess[back], sums.pairs)
    table, pairs = _table(in_three(tokens), in_three(in_three(form).T).T, mass, square, tree)
    table = table[back]
    average, ess = table[:, 2 : 2 + d] / table[:, 1:2], table[:, 1] ** 2 / table[:, 0]
    return SoftmaxAverage(average, ess, min(pairs, n * n))


def _tiles_on_circle(x: Array, mass: Array, square: Array, q: Array) -> Tiles:
    """Condense the keys alone, for queries as long as the longest."""
    order = np.argsort(np.arctan2(x[:, 1], x[:, 0]), kind="stable")
    points = np.ascontiguousarray(x[order, :2].T)
    longest = float(np.sqrt(np.max(np.sum(q * q, axis=1))))
    nodes, weights = condense(points, np.stack([mass, square])[:, order], longest)
    starts = equal_runs(nodes.shape[1], TILE)
    return tiles_of(in_three(nodes.T), weights[0], weights[1], starts)


def _table(x: Array, form: Array, mass: Array, square: Array, tree: Tree) -> tuple[Array, int]:
    """Return sums of every token, (n, 5) as in gather, and the pairs; x in the tree's order."""
    starts = tree.starts
    q = x @ form
    tiles = tiles_of(x, mass, square, starts)
    floor = floors(np.ascontiguousarray(q.T), starts, tiles)
    queries = field_of(q, DIGITS - floor, np.empty(0), len(tree.child))
    keys = field_of(x @ form.T, np.full(len(x), DIGITS), mass, len(tree.child))
    groups = find_groups(x, tree, form, mass, floor, (queries, keys), tiles.caps.centre)
    saved = np.sum(groups.runs[:, 1] - groups.runs[:, 0] - groups.runs[:, 2] * groups.runs[:, 3])
    spread = saved < MOSTLY * len(x) and not x[:, 2].any()
    grouped = len(groups.runs) > 0 and not spread
    if spread:  # on the circle, where nodes serve every query
        tiles = _tiles_on_circle(x, mass, square, q)
    if grouped:
        points, starts, columns, lagrange = place(x, starts, mass, square, floor, groups)
        q, floor = points @ form, columns[2]
        tiles = tiles_of(points, columns[0], columns[1], starts)
    limit = floor + negligible(np.float64)
    rows, headroom = np.ascontiguousarray(q.T), headroom_of(np.float64)
    sums = fused_sums(rows, starts, tiles, limit, headroom)
    table = np.column_stack([sums.square, sums.zeroth, sums.first])
    if grouped:
        table = gather(x, points, groups, lagrange, sums.shift, table)
    return table, sums.pairs
