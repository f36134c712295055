"""When no token can move any more: a proof, not a small drift.

Let v be V's dominant eigenvector, V v = lambda v with lambda real and simple, V' = V on the
complement of v (the rest of its Schur form), and every token within the chordal distance delta of
v or -v. Write u_i for the part of x_i across v and a_i for the weight that token i gives to its
own side less that to the other. Then

    d|u_i|/dt <= -a_i lambda <s_i x_i, v> |u_i| + |V'| max_j |u_j| + |V| delta |u_i|,

so the largest |u| falls for ever once a lambda (1 - delta^2 / 2) > |V'| + |V| delta with a the
least a_i over all positions inside the two caps. In the metastable phase this fails: there the
drift is small as well, but V pushes tokens away from E.
"""

import math

import numpy as np

from mfsweep._types import Masses, Tokens
from mfsweep.dynamics.weights import Weights


def at_rest(x: Tokens, mass: Masses, weights: Weights, beta: float, delta: float) -> bool:
    """Prove that every token stays within delta of V's dominant eigenvector or its opposite.

    Parameters
    ----------
    x, mass
        Tokens (n, d) and masses (n,).
    weights
        V and B.
    beta
        Inverse temperature, finite.
    delta
        Chordal distance, >= 0.

    Returns
    -------
    bool
        False where there is no proof, such as for a complex or multiple dominant eigenvalue.

    >>> weights = Weights(np.diag([1.0, 0.5]), np.eye(2))
    >>> e, half = np.eye(2), np.full(2, 0.5)
    >>> [at_rest(x, half, weights, 8.0, 1e-9) for x in (e[[0, 0]], e[[1, 1]], e)]
    [True, False, False]
    """
    basis = weights.terminal()
    if basis.shape[1] > 1:
        return False
    v = basis[:, 0]
    side = np.where(x @ v > 0, 1.0, -1.0)
    if np.linalg.norm(x - side[:, None] * v, axis=1).max() > delta:
        return False
    inner, norm_V = float(v @ weights.B @ v), float(np.linalg.norm(weights.V, 2))
    slack = beta * float(np.linalg.norm(weights.B, 2)) * (4 * delta + 2 * delta**2)
    plus = float(mass[side > 0].sum())
    shares = [p for p in (plus, float(mass.sum()) - plus) if p > 0]
    odds = max(shares) / min(shares) * math.exp(min(700.0, slack - 2 * beta * inner))
    own = (1 - odds) / (1 + odds) if len(shares) > 1 else 1.0
    across = np.eye(len(v)) - np.outer(v, v)
    rest = float(np.linalg.norm(across @ weights.V @ across, 2))
    return own * float(v @ weights.V @ v) * (1 - delta**2 / 2) > rest + norm_V * delta
