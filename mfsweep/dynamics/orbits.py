"""The zero-temperature flow on the circle, by one quadrature.

With unit right eigenvectors r_1, r_2 of A = V B^T and x ~ a r_1 + b r_2 the flow moves along
x(tau) ~ a r_1 + b e^{-gap tau} r_2 with d tau / dt = 1 / |B^T x| (arXiv 2605.10931). Hence for
s = log |b / a|

    ds / dt = -gap / |B^T x(s)|,   G(s(t)) = G(s(0)) - t,   G(s) = int_0^s |B^T x(s')| ds' / gap.
"""

import numpy as np
from scipy.interpolate import CubicHermiteSpline, CubicSpline

from mfsweep._types import Array, Tokens
from mfsweep.dynamics.sphere import normalise
from mfsweep.dynamics.weights import Weights

_FARTHEST = 40.0
"""Bound on |s|: beyond it x agrees with an eigenvector to e^{-40}."""
_NODES = np.linspace(-_FARTHEST, _FARTHEST, 4001)


class Orbits:
    """Where the zero-temperature flow takes the points of the circle.

    Parameters
    ----------
    weights
        V and B, each (2, 2), with a simple real dominant eigenvalue of A.

    Notes
    -----
    Accurate to 1e-7, whatever the time.

    >>> orbits = Orbits(Weights(np.diag([1.0, 0.5]), np.eye(2)))
    >>> x = orbits(np.array([[0.6, 0.8]]), 2.0)[0]  # tan(angle) shrinks by e^{-1}
    >>> round(float(x[1] / x[0]) * np.e, 9)
    1.333333333
    """

    def __init__(self, weights: Weights) -> None:
        values, vectors = np.linalg.eig(weights.A)
        self.basis = vectors[:, np.argsort(-values.real)].real
        self.inverse = np.linalg.inv(self.basis)
        self.clocks = {side: self._clock(weights, side) for side in (1.0, -1.0)}

    def _clock(self, weights: Weights, side: float) -> tuple[CubicSpline, CubicHermiteSpline]:
        """Return G and its inverse on the orbits where b / a has the given sign."""
        ratio = side * np.exp(_NODES)
        x = normalise(np.stack([np.ones_like(ratio), ratio], axis=-1) @ self.basis.T)
        pace = np.linalg.norm(x @ weights.B, axis=-1) / weights.gap
        elapsed = CubicSpline(_NODES, pace).antiderivative()
        return elapsed, CubicHermiteSpline(elapsed(_NODES), _NODES, 1 / pace)

    def __call__(self, x: Tokens, t: float) -> Tokens:
        """Return where points (n, 2) are after a time t >= 0, dimensionless."""
        a, b = self.inverse @ x.T
        with np.errstate(divide="ignore"):
            s = np.clip(np.log(np.abs(b)) - np.log(np.abs(a)), -_FARTHEST, _FARTHEST)
        for side, (elapsed, position) in self.clocks.items():
            here = np.copysign(1.0, a) * np.copysign(1.0, b) == side
            s[here] = position(np.maximum(elapsed(s[here]) - t, elapsed(-_FARTHEST)))
        ratio: Array = np.copysign(np.exp(s), b)
        return normalise(np.stack([np.copysign(1.0, a), ratio], axis=-1) @ self.basis.T)
