"""Runs of neighbouring keys, each inside a spherical cap that bounds its logits.

For a unit key y within the angle a of the cap's centre c, and a query q at the angle t from c,

    <q, y> <= |q| cos(max(0, t - a)),

so one look at a cap tells whether a whole tile can matter to a query.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from mfsweep._types import Array

Runs = NDArray[np.int64]
"""Places in an array where runs of rows start."""


class Caps(NamedTuple):
    """Spherical caps around consecutive runs of unit vectors."""

    centre: Array
    """Unit vectors, shape (tiles, d)."""
    cosine: Array
    """Cosine of each cap's angular radius, shape (tiles,)."""
    sine: Array
    """Its sine, shape (tiles,)."""
    log_mass: Array
    """Logarithm of the sum of the masses' sizes, shape (tiles,)."""


@njit(cache=True, error_model="numpy")
def cap_around(points: Array, start: int, stop: int, centre: Array) -> tuple[float, float]:
    """Fill the unit centre (d,) of rows start to stop; return cosine and sine of their radius."""
    d = centre.size
    length = 0.0
    for c in range(d):
        total = 0.0
        for j in range(start, stop):
            total += points[j, c]
        centre[c] = total
        length += total * total
    if length == 0.0:
        return -1.0, 0.0  # opposite points: the whole sphere
    centre /= math.sqrt(length)
    square = 0.0  # of the longest chord from the centre, exact for points that nearly coincide
    for j in range(start, stop):
        chord = 0.0
        for c in range(d):
            chord += (points[j, c] - centre[c]) ** 2
        square = max(square, chord)
    square = min(4.0, square)
    return 1.0 - square / 2, math.sqrt(square * (1.0 - square / 4))


@njit(cache=True, error_model="numpy")
def caps_of(points: Array, mass: Array, starts: Runs) -> Caps:
    """Enclose runs of unit vectors (n, d) with masses (n,) of either sign.

    Run k goes from starts[k] to starts[k + 1]; shape (tiles + 1,), the last entry n.
    """
    tiles, d = starts.size - 1, points.shape[1]
    centre, cosine, sine = np.empty((tiles, d)), np.empty(tiles), np.empty(tiles)
    log_mass = np.empty(tiles)
    for k in range(tiles):
        cosine[k], sine[k] = cap_around(points, starts[k], starts[k + 1], centre[k])
        log_mass[k] = math.log(np.abs(mass[starts[k] : starts[k + 1]]).sum())
    return Caps(centre, cosine, sine, log_mass)


@njit(cache=True, error_model="numpy")
def reach(along: float, length: float, cosine: float, sine: float) -> float:
    """Return the largest <q, y> over a cap, from along = <q, c> and length = |q|."""
    if along >= length * cosine:
        return length
    return along * cosine + math.sqrt(max(0.0, length * length - along * along)) * sine


@njit(cache=True, error_model="numpy")
def reach_of_block(
    along: float,
    shortest: float,
    longest: float,
    one: tuple[float, float],
    two: tuple[float, float],
) -> float:
    """Return the largest <q, y> over queries in one cap and keys in another.

    With -along it is minus the least.

    `along` is the product of the two unit centres, shortest <= |q| <= longest, and a cap is given
    by the cosine and sine of its radius.
    """
    if one[0] + two[0] <= 0.0:
        return longest  # the radii add up to half a turn or more
    cosine, sine = one[0] * two[0] - one[1] * two[1], one[1] * two[0] + one[0] * two[1]
    nearest = reach(along, 1.0, cosine, sine)
    return nearest * (longest if nearest > 0.0 else shortest)


def equal_runs(n: int, size: int) -> Runs:
    """Return starts of runs of `size` rows, the last one shorter.

    >>> equal_runs(5, 2)
    array([0, 2, 4, 5])
    """
    return np.append(np.arange(0, n, size), n)


class Tree(NamedTuple):
    """Rows halved again and again down to one, so that neighbours in space stay together."""

    order: NDArray[np.intp]
    """Permutation of the rows, shape (n,)."""
    first: Runs
    """First place in that order of each node, shape (nodes,); the root is node 0."""
    last: Runs
    """One past its last place."""
    child: Runs
    """The first of its two children, which follow each other; 0 for a single row."""
    starts: Runs
    """Starts of the tiles, the largest nodes of at most a given size, and n."""


@njit(cache=True, nogil=True, error_model="numpy")
def halve(x: Array, order: Runs, start: int, stop: int, size: int) -> int:
    """Sort places start to stop by their widest coordinate; return where to part them.

    That is the middle, in whole runs of size, or a gap that takes up a quarter of the width.
    """
    rows = order[start:stop].copy()
    width, axis = -1.0, 0
    for c in range(x.shape[1]):
        low = high = x[rows[0], c]
        for row in rows:
            low, high = min(low, x[row, c]), max(high, x[row, c])
        if high - low > width:
            width, axis = high - low, c
    values = np.empty(stop - start)
    for j in range(stop - start):
        values[j] = x[rows[j], axis]
    rank = np.argsort(values)
    order[start:stop] = rows[rank]
    widest, at = width / 4, 0
    for j in range(1, stop - start):
        gap = values[rank[j]] - values[rank[j - 1]]
        if gap > widest:
            widest, at = gap, j
    return start + (at if at > 0 else size * (((stop - start) // 2 + size - 1) // size))


@njit(cache=True, nogil=True, error_model="numpy")
def neighbour_tree(x: Array, size: int) -> Tree:
    """Halve rows (n, d) down to single ones, into tiles of at most `size` on the way."""
    n = len(x)
    order, starts = np.arange(n), np.full(n + 1, n)
    first, last, child = np.zeros((3, 2 * n), np.int64)
    last[0], nodes, tiles = n, 1, 0
    if n <= size:
        starts[0], tiles = 0, 1
    for node in range(2 * n - 1):
        start, stop = first[node], last[node]
        if stop - start == 1:
            continue
        run = size if stop - start > size else 1
        middle = halve(x, order, start, stop, run)
        child[node] = nodes
        for begin, end in ((start, middle), (middle, stop)):
            first[nodes], last[nodes] = begin, end
            nodes += 1
            if stop - start > size >= end - begin:
                starts[tiles] = begin
                tiles += 1
    return Tree(order, first[:nodes], last[:nodes], child[:nodes], np.sort(starts[: tiles + 1]))
