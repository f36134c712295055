"""Geometry of the unit sphere S^{d-1} in R^d; points are the rows of (n, d) arrays."""

import numpy as np

from mfsweep._types import Array, Basis, Tokens


def normalise(x: Array) -> Tokens:
    """Scale rows to unit length: x / |x|.

    >>> normalise(np.array([[3.0, 4.0]]))
    array([[0.6, 0.8]])
    """
    unit: Tokens = x / np.linalg.norm(x, axis=-1, keepdims=True)
    return unit


def tangent(x: Tokens, v: Array) -> Array:
    """Project vectors to the tangent space: P_x v = v - <x, v> x.

    >>> tangent(np.array([[1.0, 0.0]]), np.array([[2.0, 3.0]]))
    array([[0., 3.]])
    """
    projected: Array = v - np.sum(x * v, axis=-1, keepdims=True) * x
    return projected


def chordal(x: Tokens, y: Tokens) -> Array:
    """Distance |x - y| in R^d, exact for points that nearly coincide."""
    distance: Array = np.linalg.norm(x - y, axis=-1)
    return distance


def geodesic(x: Tokens, y: Tokens) -> Array:
    """Angle between unit vectors, 2 atan2(|x - y|, |x + y|), in radians.

    >>> float(geodesic(np.array([1.0, 0.0]), np.array([0.0, 1.0])) / np.pi)
    0.5
    """
    angle: Array = 2 * np.arctan2(np.linalg.norm(x - y, axis=-1), np.linalg.norm(x + y, axis=-1))
    return angle


def distance_to_subspace(x: Tokens, basis: Basis) -> Array:
    """Chordal distance from unit vectors to the unit sphere of a subspace.

    With c = |P x| and s = |x - P x| the nearest unit vector of the subspace is P x / c and

        |x - P x / c|^2 = s^2 + (1 - c)^2,   1 - c = s^2 / (1 + c),

    a form that keeps its digits when x lies in the subspace up to roundoff.
    """
    inside = (x @ basis) @ basis.T
    c = np.linalg.norm(inside, axis=-1)
    s = np.linalg.norm(x - inside, axis=-1)
    distance: Array = np.hypot(s, s * s / (1 + c))
    return distance
