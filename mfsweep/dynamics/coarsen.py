"""Tokens that have come together move as one.

Tokens within a radius r of their mean that approach it are replaced by that mean, with the sum of
their masses:

    x = sum_j w_j x_j / |sum_j w_j x_j|,  w = sum_j w_j,  s = sum_j w_j^2.

The mean is kept because the metastable cluster's offset from E, tiny and unstable, decides when
it leaves. What is lost is of second order: a softmax weight changes by (beta |B| r)^2 / 2 at most,
and only while the tokens would still be apart. s keeps the effective sample size of the tokens.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from mfsweep._types import Array, Indices, Masses, Tokens
from mfsweep.dynamics.sphere import normalise
from mfsweep.dynamics.tiles import halve

WORTHWHILE = 0.9
"""Clusters are made only if they leave at most this part of the tokens."""


class Clusters(NamedTuple):
    """Which tokens move as one."""

    member: Indices
    """Cluster of each token, shape (n,)."""
    mass: Masses
    """Shape (clusters,)."""
    square: Array
    """Sum of the tokens' squared masses, shape (clusters,)."""
    extent: Array
    """How far a token may lie from its cluster, shape (clusters,)."""


def single_tokens(mass: Masses) -> Clusters:
    """Return a cluster for each token.

    >>> single_tokens(np.array([0.5, 0.5])).square
    array([0.25, 0.25])
    """
    return Clusters(np.arange(len(mass)), mass, mass**2, np.zeros(len(mass)))


@njit(cache=True, error_model="numpy")
def _extent(
    x: Array, velocity: Array, mass: Array, extent: Array, rows: Indices, mean: Array
) -> float:
    """Fill the mean of rows; return the extent around it, or infinity if one recedes from it."""
    d = x.shape[1]
    drift, total = np.zeros(d), 0.0
    mean[:] = 0.0
    for row in rows:
        total += mass[row]
        for c in range(d):
            mean[c] += mass[row] * x[row, c]
            drift[c] += mass[row] * velocity[row, c]
    length = math.sqrt((mean * mean).sum())
    if length == 0.0:
        return np.inf
    mean /= length
    drift /= total
    widest = 0.0
    for row in rows:
        square = approach = 0.0
        for c in range(d):
            apart = x[row, c] - mean[c]
            square += apart * apart
            approach += apart * (velocity[row, c] - drift[c])
        if approach > 0.0:
            return np.inf
        widest = max(widest, math.sqrt(square) + extent[row])
    return widest


@njit(cache=True, nogil=True, error_model="numpy")
def _gather(x: Array, velocity: Array, mass: Array, extent: Array, radius: float) -> Indices:
    """Label rows that may move as one, by halving until a part fits; labels (n,) from 0 on."""
    n = len(x)
    order, label, mean = np.arange(n), np.empty(n, np.int64), np.empty(x.shape[1])
    count = 0
    pending = [(0, n)]
    while len(pending) > 0:
        start, stop = pending.pop()
        rows = order[start:stop]
        if stop - start == 1 or _extent(x, velocity, mass, extent, rows, mean) <= radius:
            label[rows] = count
            count += 1
            continue
        middle = halve(x, order, start, stop, 1)
        pending.append((middle, stop))
        pending.append((start, middle))
    return label


def coarsen(
    x: Tokens, velocity: Array, clusters: Clusters, radius: float
) -> tuple[Tokens, Clusters]:
    """Merge clusters that have come together.

    Parameters
    ----------
    x, velocity
        Of each cluster, shape (clusters, d).
    clusters
        Which tokens they stand for.
    radius
        Chordal distance that no token may lie from its cluster, >= 0.

    Returns
    -------
    tuple
        Positions and clusters; the same objects where merging is not worth it.

    >>> x = np.array([[1.0, 0.0], [1.0, 1e-9], [0.0, 1.0]])
    >>> _, merged = coarsen(normalise(x), 0 * x, single_tokens(np.full(3, 1 / 3)), 1e-6)
    >>> merged.member
    array([1, 1, 0])
    """
    label = _gather(x, velocity, clusters.mass, clusters.extent, radius)
    count = int(label.max()) + 1
    if count > WORTHWHILE * len(x):
        return x, clusters
    sums = np.zeros((count, x.shape[1] + 2))
    columns = (clusters.mass[:, None] * x, clusters.mass, clusters.square)
    np.add.at(sums, label, np.column_stack(columns))
    alone = np.bincount(label, minlength=count)[label] == 1
    merged: Tokens = normalise(sums[:, :-2])
    merged[label[alone]] = x[alone]
    reached = np.linalg.norm(x - merged[label], axis=1) + clusters.extent
    extent = np.zeros(count)
    np.maximum.at(extent, label, reached)
    mass, square = np.ascontiguousarray(sums[:, -2:].T)
    return merged, Clusters(label[clusters.member], mass, square, extent)
