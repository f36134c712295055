"""Where the theory says tokens go: the metastable target and the two eigenspaces."""

import numpy as np
import scipy.linalg

from mfsweep._errors import InputError
from mfsweep._types import Array, Basis, Masses, Tokens
from mfsweep.dynamics.sphere import distance_to_subspace, normalise
from mfsweep.dynamics.weights import Reading, Weights


def project_dominant(x: Tokens, weights: Weights) -> Tokens:
    """Project tokens to the metastable target: Pi(x) = P_E x / |P_E x|.

    E is the dominant eigenspace of A = V B^T and P_E its projector (oblique if A is not
    symmetric).

    Parameters
    ----------
    x
        Unit vectors, shape (n, d).
    weights
        V and B, each (d, d).

    Returns
    -------
    Tokens
        Unit vectors in E, shape (n, d).

    Raises
    ------
    InputError
        If a token lies in the complement of E, where Pi is not defined, or A has no real
        semisimple dominant eigenvalue.

    Notes
    -----
    Applied to the initial tokens this is Pi_# rho_0, Theorem 1 of arXiv 2605.10931.

    >>> project_dominant(np.array([[0.6, -0.8]]), Weights(np.diag([0.5, 1.0]), np.eye(2)))
    array([[ 0., -1.]])
    """
    image = np.asarray(x, dtype=np.float64) @ weights.dual
    inside = np.linalg.norm(image, axis=-1) > 1e-12
    if not inside.all():
        message = (
            f"{np.count_nonzero(~inside)} tokens lie orthogonal to E within 1e-12: their "
            "metastable target is not defined; move or remove them"
        )
        raise InputError(message)
    return normalise(image) @ weights.dominant().T


def _rms_distance(tokens: Array, basis: Basis, mass: Masses) -> Array:
    """Root-mean-square chordal distance from the tokens to a subspace's unit sphere."""
    rms: Array = np.sqrt(distance_to_subspace(tokens, basis) ** 2 @ mass)
    return rms


def distance_dominant(tokens: Array, weights: Weights, mass: Masses) -> Array:
    """Measure the mass-weighted rms chordal distance to E; (..., n, d) -> (...).

    >>> weights = Weights(np.diag([1.0, 0.5]), np.eye(2))
    >>> distance_dominant(np.array([[1.0, 0.0]]), weights, np.ones(1))
    np.float64(0.0)
    """
    return _rms_distance(tokens, weights.dominant(), mass)


def distance_terminal(
    tokens: Array, weights: Weights, mass: Masses, reading: Reading = "real"
) -> Array:
    """Measure the rms chordal distance to V's dominant eigenspace; (..., n, d) -> (...).

    The eigenvalue of largest real part ("real") or of largest modulus ("modulus") dominates:
    the two readings of Conjecture 1 of arXiv 2605.10931.
    """
    return _rms_distance(tokens, weights.terminal(reading), mass)


def separation(weights: Weights, reading: Reading = "real") -> float:
    """Measure L, the chordal distance between E and V's dominant eigenspace.

    L = 2 sin(theta / 2) with theta the largest principal angle; 0 if one contains the other.

    >>> separation(Weights(np.diag([1.0, 0.5]), np.eye(2)))
    0.0
    """
    angles = scipy.linalg.subspace_angles(weights.dominant(), weights.terminal(reading))
    return float(2 * np.sin(angles.max() / 2))
