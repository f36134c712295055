"""How the crossover grows with beta where E is misaligned, predicted from the weights alone."""

import numpy as np

from mfsweep._types import Array
from mfsweep.dynamics.sphere import normalise
from mfsweep.dynamics.weights import Weights

MISALIGNED = 1e-3
"""Least Delta / |B^T e| at which a linear law is predicted: a smaller Delta is less than the
neglected log(beta) / beta at every beta that can be run."""
_ARC = 2001  # points from e to the bisector


def predicted_crossover_slope(weights: Weights) -> float:
    """Predict the slope of the crossover against beta on the circle, in the continuum.

        b = max Delta(x) / c_perp over x from e to the bisector of e and V's dominant direction f,
        Delta(x) = |B^T x| - <x, B x>,   c_perp = gap / |B^T e_perp|

    Parameters
    ----------
    weights : Weights
        V and B, each (2, 2), A = V B^T symmetric.

    Returns
    -------
    float
        Dimensionless time per unit of beta; NaN where d > 2, where Assumption 1 of arXiv 2605.10931
        fails, where e and f agree (nothing crosses over), or where Delta(e) is below 1e-3 |B^T e|:
        then e is, nearly, an eigenvector of B^T and the crossover grows like log beta.

    Notes
    -----
    Nearly all mass sits in a cluster at x. Its softmax average is drawn from the cluster itself
    with weight e^{beta <x, B x>}, and from the thin rest near the direction of B^T x with weight
    rho e^{beta |B^T x|}. That rest comes from the neighbourhood of e_perp, which it leaves at the
    rate c_perp, so log rho = -c_perp t. The rest pulls the cluster to E, the cluster alone would
    go to f; they balance where beta Delta(x) = c_perp t, up to O(log beta). The balance moves from
    e towards f as long as Delta(x) can grow with t. Past the largest Delta the cluster is free;
    the crossover itself is at the bisector.

    Assumed: A symmetric, initial density positive, beta Delta large against log beta, and the rest
    on its zero-temperature course. The last fails late: points that no longer see mass where they
    look are drawn to the cluster. Against the continuum between beta = 80 and 160: G0 predicted
    1.25, measured 1.17; G1 predicted 0.51, measured 0.72 (0.47 between 40 and 80). Where Delta(e)
    = 0 the rest can hold the cluster all the same, later: for aligned weights with b = (2, 0.5) and
    a tilted start the crossover grows by 2.96 per log beta up to beta = 640 (21.6), then a rest of
    mass e^{-25} delays it to 27.3, 36.9, 43.0 at beta = 905, 2560, 10,000, for 22.7, 25.8, 29.8.
    The heuristic is this package's own.

    Examples
    --------
    >>> predicted_crossover_slope(Weights(np.diag([0.5, 1.0]), np.diag([2.0, 0.5])))
    nan
    """
    found = weights.assumptions()
    aligned = not found.misalignment > MISALIGNED * found.norm_BTe
    if weights.d > 2 or found.violated or aligned or found.angle < MISALIGNED:
        return np.nan
    e, f = weights.dominant()[:, 0], weights.terminal()[:, 0]
    bisector = normalise(e + np.copysign(1.0, e @ f) * f)
    share = np.linspace(0.0, 1.0, _ARC)[:, None]
    arc = normalise((1 - share) * e + share * bisector)
    perpendicular = np.array([-e[1], e[0]])
    rate = weights.gap / np.linalg.norm(weights.B.T @ perpendicular)
    return float(_misalignment(arc, weights).max() / rate)


def _misalignment(x: Array, weights: Weights) -> Array:
    """Return Delta(x) = |B^T x| - <x, B x> of unit vectors, (n, d) -> (n,)."""
    query = x @ weights.B
    delta: Array = np.linalg.norm(query, axis=-1) - np.sum(query * x, axis=-1)
    return delta
