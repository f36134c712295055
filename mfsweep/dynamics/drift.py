"""Right-hand sides of the token dynamics (arXiv 2605.10931)."""

import numpy as np

from mfsweep._errors import InputError
from mfsweep._types import Array, Masses, Tokens
from mfsweep.dynamics.condense import condensed_average
from mfsweep.dynamics.kernels import SoftmaxAverage
from mfsweep.dynamics.sphere import normalise, tangent
from mfsweep.dynamics.tiles import Tree
from mfsweep.dynamics.weights import Weights


def attend(
    x: Tokens,
    weights: Weights,
    beta: float,
    mass: Masses,
    square_mass: Masses | None = None,
    *,
    tree: Tree | None = None,
) -> SoftmaxAverage:
    """Average the values V x_j as each token sees them at inverse temperature beta: V m_i."""
    spans, V = weights.spans, weights.V
    found = condensed_average(x, beta * weights.B, mass, square_mass, tree=tree, spans=spans)
    return found._replace(average=found.average @ (V if spans is None else V @ spans[1]).T)


def softmax_drift(x: Tokens, weights: Weights, beta: float, *, mass: Masses | None = None) -> Array:
    """Evaluate the velocity of every token at inverse temperature beta.

    dx_i/dt = P_{x_i} V m_i,
    m_i = sum_j w_j e^{beta <x_i, B x_j>} x_j / sum_j w_j e^{beta <x_i, B x_j>}

    Parameters
    ----------
    x
        Tokens, unit vectors, shape (n, d).
    weights
        V and B, each (d, d).
    beta
        Inverse temperature, dimensionless, finite and >= 0.
    mass
        Masses w_j > 0, shape (n,); 1/n each if left out.

    Returns
    -------
    Array
        Velocities, shape (n, d), tangent to the sphere; time is dimensionless.

    Raises
    ------
    InputError
        If shapes disagree, beta is negative or not finite, or a mass is not positive.

    Notes
    -----
    Cost O(n^2 d), or O(n^2 r) where the ranks of V and B add up to r <= d; memory O(n d).
    Source: arXiv 2605.10931, the particle system.

    >>> x = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> softmax_drift(x, Weights(np.eye(2), np.eye(2)), 0.0)
    array([[0. , 0.5],
           [0.5, 0. ]])
    """
    x, mass = check_tokens(x, weights, mass)
    if not (np.isfinite(beta) and beta >= 0):
        message = f"beta = {beta}: must be finite and >= 0; use zero_temperature_drift for inf"
        raise InputError(message)
    return tangent(x, attend(x, weights, beta, mass).average)


def zero_temperature_drift(x: Tokens, weights: Weights) -> Array:
    """Evaluate the velocity of every token in the limit beta = inf.

    dx/dt = P_x V B^T x / |B^T x|, the Laplace limit when the support is the whole sphere.

    Parameters
    ----------
    x
        Tokens, unit vectors, shape (n, d).
    weights
        V and B, each (d, d).

    Returns
    -------
    Array
        Velocities, shape (n, d), tangent to the sphere; each token moves on its own.

    >>> zero_temperature_drift(np.array([[0.6, 0.8]]), Weights(np.diag([1.0, 0.5]), np.eye(2)))
    array([[ 0.192, -0.144]])
    """
    query = x @ weights.B
    return tangent(x, normalise(query) @ weights.V.T)


def check_tokens(x: Tokens, weights: Weights, mass: Masses | None) -> tuple[Tokens, Masses]:
    """Return tokens and masses as float64, masses scaled to sum 1, or refuse them."""
    x = np.asarray(x, dtype=np.float64)
    if x.ndim != 2 or len(x) == 0 or x.shape[1] != weights.d:
        message = f"tokens have shape {x.shape}: expected (n, {weights.d}) to match the weights"
        raise InputError(message)
    if not np.allclose(np.linalg.norm(x, axis=1), 1.0, rtol=0, atol=1e-6):
        message = (
            "tokens off the unit sphere (or NaN): every row must have length 1; normalise them"
        )
        raise InputError(message)
    mass = np.ones(len(x)) if mass is None else np.asarray(mass, dtype=np.float64)
    if mass.shape != (len(x),) or not (np.isfinite(mass).all() and (mass > 0).all()):
        message = f"mass has shape {mass.shape}: expected {len(x)} positive finite numbers"
        raise InputError(message)
    return x, mass / mass.sum()
