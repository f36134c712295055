"""Densities on the circle: the laws a continuum may start from, what is checked, their symmetry.

A density is a function rho(theta) >= 0 of the angle in radians. It is used through its logarithm,
so that its smallest values keep their digits; where rho = 0 the logarithm is -inf.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from scipy.special import i0e

from mfsweep._errors import InputError
from mfsweep._types import Array

LogDensity = Callable[[Array], Array]
"""Angles of any shape -> log rho of the same shape."""

SAMPLES = 4096
"""Angles at which a density is checked; a multiple of 4, so that symmetries map them to each
other."""
SYMMETRIC = 1e-12
"""Largest difference of log rho at mirrored angles of a density that counts as symmetric."""
UNIT = 1e-6
"""Distance of the integral from 1 beyond which a density is told to be scaled."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)


@runtime_checkable
class Density(Protocol):
    """Anything that gives the logarithm of a density."""

    def log(self, theta: Array) -> Array:
        """Evaluate log rho at angles in radians."""
        ...


@dataclass(frozen=True)
class VonMises:
    """rho(theta) = e^{kappa cos(theta - mean)} / (2 pi I_0(kappa)); kappa = 0 is uniform.

    >>> round(float(np.exp(VonMises(0.3, 0.0).log(np.array(1.0)))) * 2 * np.pi, 12)
    1.0
    """

    mean: float = 0.0
    """Mean angle, radians."""
    kappa: float = 0.0
    """Concentration, >= 0."""

    def __post_init__(self) -> None:
        """Refuse a negative or unbounded concentration."""
        if not (0 <= self.kappa < np.inf and np.isfinite(self.mean)):
            message = (
                f"VonMises(mean={self.mean}, kappa={self.kappa}): need a finite mean, kappa >= 0"
            )
            raise InputError(message)

    def log(self, theta: Array) -> Array:
        """Evaluate log rho at angles in radians."""
        scale = np.log(2 * np.pi * i0e(self.kappa))
        value: Array = self.kappa * (np.cos(theta - self.mean) - 1) - scale
        return value


@dataclass(frozen=True)
class Mixture:
    """rho = sum_k share_k rho_k; shares are scaled to sum 1."""

    parts: tuple[Density, ...]
    shares: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse shares that are not positive or do not match the parts."""
        if len(self.parts) != len(self.shares) or not all(0 < s < np.inf for s in self.shares):
            message = (
                f"Mixture of {len(self.parts)} parts: shares = {self.shares}, need one > 0 each"
            )
            raise InputError(message)

    def log(self, theta: Array) -> Array:
        """Evaluate log rho at angles in radians."""
        shares = np.log(np.array(self.shares) / sum(self.shares))
        parts = [part.log(theta) + share for part, share in zip(self.parts, shares, strict=True)]
        value: Array = np.logaddexp.reduce(parts)
        return value


@dataclass(frozen=True, eq=False)
class Tabulated:
    """Piecewise linear density through values at the angles 2 pi j / n, j = 0..n-1."""

    values: Array

    def log(self, theta: Array) -> Array:
        """Evaluate log rho at angles in radians."""
        turn = np.mod(theta / (2 * np.pi), 1.0) * len(self.values)
        closed = np.append(self.values, self.values[0])
        with np.errstate(divide="ignore"):
            value: Array = np.log(np.interp(turn, np.arange(len(closed)), closed))
        return value


@dataclass(frozen=True)
class Function:
    """A density given as a vectorised function of the angle."""

    rho: Callable[[Array], Array]

    def log(self, theta: Array) -> Array:
        """Evaluate log rho at angles in radians."""
        with np.errstate(divide="ignore"):
            value: Array = np.log(np.asarray(self.rho(theta), dtype=np.float64))
        return value


AnyDensity = Density | Callable[[Array], Array] | Array


def checked_density(density: AnyDensity) -> tuple[Density, tuple[str, ...]]:
    """Return a density as an object with a logarithm, and notes on what is unusual about it.

    Parameters
    ----------
    density
        An object with `log`, a vectorised function theta -> rho, or values rho >= 0 at the angles
        2 pi j / n, shape (n,), n >= 3.

    Raises
    ------
    InputError
        If it is negative, not finite or zero everywhere at one of 4096 equispaced angles.

    >>> checked_density(np.ones(8))[1]
    ('the density integrates to 6.28319: it was scaled to 1',)
    """
    theta = 2 * np.pi * np.arange(SAMPLES) / SAMPLES
    if isinstance(density, Density):
        law = density
    elif callable(density):
        law = Function(density)
        _check_values(np.asarray(density(theta), dtype=np.float64), theta)
    else:
        values = np.asarray(density, dtype=np.float64)
        if values.ndim != 1 or len(values) < 3:
            message = (
                f"density has shape {values.shape}: give at least 3 values on a grid of angles"
            )
            raise InputError(message)
        _check_values(values, 2 * np.pi * np.arange(len(values)) / len(values))
        law = Tabulated(values)
    log = law.log(theta)
    if np.isnan(log).any() or (log == np.inf).any() or (log == -np.inf).all():
        message = "density is not finite, or zero everywhere: give a finite density > 0"
        raise InputError(message)
    notes = []
    if (log == -np.inf).any():
        share = np.mean(log == -np.inf)
        notes.append(f"the density vanishes on {share:.2%} of the circle: Assumption 3 fails")
    edges = np.linspace(0.0, 2 * np.pi, SAMPLES + 1)
    total = float(np.exp(np.logaddexp.reduce(integrals(law.log, edges))))
    if abs(total - 1) > UNIT:
        notes.append(f"the density integrates to {total:.6g}: it was scaled to 1")
    return law, tuple(notes)


def _check_values(values: Array, theta: Array) -> None:
    """Refuse values that are no density, naming the first one."""
    if values.shape != theta.shape:
        message = f"density returns shape {values.shape} for angles {theta.shape}: vectorise it"
        raise InputError(message)
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if bad.size:
        message = (
            f"density({theta[bad[0]]:.6g}) = {values[bad[0]]}: every value must be finite and "
            ">= 0; correct the density"
        )
        raise InputError(message)


def cell_moments(log: LogDensity, edges: Array) -> tuple[Array, Array, Array]:
    """Integrate a density over cells, by eight Gauss-Legendre points each.

    Returns
    -------
    log_mass, position, weight
        Log of the integral (cells,), -inf where the density vanishes; relative positions in (0, 1)
        and normalised weights of the quadrature points, (cells, 8): uniform where it vanishes.
    """
    position = np.broadcast_to((_NODES + 1) / 2, (len(edges) - 1, len(_NODES)))
    width = np.diff(edges)[:, None]
    values = log(edges[:-1, None] + width * position)
    top = values.max(axis=1, keepdims=True)
    shift = np.where(top > -np.inf, top, 0.0)
    weight = np.exp(values - shift) * _WEIGHTS / 2
    total = weight.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        log_mass = (np.log(total * width) + shift)[:, 0]
    return log_mass, position, np.where(total > 0, weight / np.where(total > 0, total, 1), 1 / 8)


def integrals(log: LogDensity, edges: Array) -> Array:
    """Log of the integral of a density over each of the intervals between edges, radians."""
    return cell_moments(log, edges)[0]


def is_antipodal(density: Density) -> bool:
    """Tell whether rho(theta + pi) = rho(theta).

    >>> is_antipodal(VonMises()), is_antipodal(VonMises(0.0, 1.0))
    (True, False)
    """
    theta = 2 * np.pi * np.arange(SAMPLES) / SAMPLES
    return _agree(density.log(theta), density.log(theta + np.pi))


def is_mirrored(density: Density, axis: float) -> bool:
    """Tell whether rho(axis + s) = rho(axis - s) for an axis given by its angle in radians.

    >>> is_mirrored(VonMises(0.3, 2.0), 0.3), is_mirrored(VonMises(0.3, 2.0), 0.0)
    (True, False)
    """
    turn = 2 * np.pi * np.arange(SAMPLES) / SAMPLES
    return _agree(density.log(axis + turn), density.log(axis - turn))


def _agree(a: Array, b: Array) -> bool:
    """Compare two logarithms; -inf agrees with -inf."""
    zero = (a == -np.inf) & (b == -np.inf)
    with np.errstate(invalid="ignore"):
        return bool((zero | (np.abs(a - b) <= SYMMETRIC * (1 + np.abs(b)))).all())
