r"""Cells of a moving mesh on the circle, each of which holds its mass at two points.

Cell k lies between the angles theta_k < theta_{k+1}. Its mass sits at two points

    theta_k + xi_{1,2} (theta_{k+1} - theta_k),   0 < xi_1 <= xi_2 < 1,

with masses e^{l_1}, e^{l_2}: the Gauss rule of the density inside the cell, exact for its moments
of order 0 to 3. The positions are kept as eta = log(xi / (1 - xi)), in which every real number is a
position inside the cell. Where a density inside the cell is needed it is the exponential e^{g xi}
with the cell's mass and mean.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from mfsweep._types import Array

EVEN = 2.0
"""Largest factor between a cell's variance and that of the exponential with its mean; beyond it
the mass in the cell is lumped."""
CLOSEST = 1e-16
"""Least relative distance of a mass from its cell's right edge that is told apart from 0."""
LEAST_SHARE = 1e-300
"""Share of a cell's mass at one of its points that stands for 0, so that logarithms are finite."""
_FARTHEST = -700.0  # eta of a mass on its cell's left edge


@dataclass(frozen=True, eq=False)
class Cells:
    """Cells of one domain: the circle, or the part of it that symmetries repeat."""

    edges: Array
    """Unwrapped angles from the axis e, radians, increasing, shape (cells + 1,)."""
    eta: Array
    """log(xi / (1 - xi)) of the two mass points, shape (2, cells)."""
    log_mass: Array
    """Log-masses of the two points, shape (2, cells)."""

    @property
    def cell_log_mass(self) -> Array:
        """Log-mass of each cell, shape (cells,)."""
        total: Array = np.logaddexp(self.log_mass[0], self.log_mass[1])
        return total

    def points(self) -> tuple[Array, Array]:
        """Return the angles of the mass points and their log-masses, both (2 cells,), in order."""
        xi = np.exp(-np.logaddexp(0.0, -self.eta))
        angles = self.edges[:-1] + xi * np.diff(self.edges)
        return angles.T.ravel(), self.log_mass.T.ravel()


@njit(cache=True, error_model="numpy")
def gauss_pair(variance: float, skew: float) -> Any:
    """Return offsets z_1 <= z_2 from the mean and shares of two points with given central moments.

    z = (s -+ sqrt(s^2 + 4 v)) / 2 with s = skew / v, shares z_2 / (z_2 - z_1), -z_1 / (z_2 - z_1);
    `skew` is the third central moment. The points of any measure on an interval lie inside it.
    """
    if not variance > 0:
        return 0.0, 0.0, 0.5, 0.5
    s = skew / variance
    far = (s + math.copysign(math.sqrt(s * s + 4 * variance), s)) / 2
    low, high = min(far, -variance / far), max(far, -variance / far)
    return low, high, high / (high - low), -low / (high - low)


@njit(cache=True, error_model="numpy")
def exponential_moments(g: float) -> Any:
    """Mean, variance and third central moment of the density e^{g xi} on 0 < xi < 1.

    mean = 1 / (1 - e^{-g}) - 1 / g; each is the derivative by g of the one before.
    """
    if abs(g) < 0.3:
        q = g * g
        odd = 1 / 720 - q * (1 / 30240 - q * (1 / 1209600 - q / 47900160))
        even = 1 / 240 - q * (1 / 6048 - q * (1 / 172800 - q / 5322240))
        third = -1 / 120 + q * (1 / 1512 - q * (1 / 28800 - q / 665280))
        return 0.5 + g * (1 / 12 - q * odd), 1 / 12 - q * even, g * third
    if abs(g) > 80:
        return (1 - 1 / g if g > 0 else -1 / g), 1 / g**2, -2 / g**3
    sinh = math.sinh(g / 2)
    mean = -1 / math.expm1(-g) - 1 / g
    return mean, 1 / g**2 - 1 / (4 * sinh**2), -2 / g**3 + math.cosh(g / 2) / (4 * sinh**3)


@njit(cache=True, error_model="numpy")
def exponential_rate(mean: float) -> float:
    """Solve mean = 1 / (1 - e^{-g}) - 1 / g for g by Newton's method; 0 < mean < 1."""
    near = min(mean, 1 - mean)
    g = (1 / near - 2) * (1 + 8 * near * near)
    for _ in range(60):
        value, slope, _ = exponential_moments(-g)
        step = (value - near) / slope
        g += step
        if abs(step) <= 1e-13 * (1 + abs(g)):
            break
    return g if mean > 0.5 else -g


@njit(cache=True, error_model="numpy")
def logit(xi: float) -> float:
    """log(xi / (1 - xi)); a mass within roundoff of an edge is put that close to it."""
    return math.log(xi) - math.log(max(1 - xi, CLOSEST)) if xi > 0 else _FARTHEST


@njit(cache=True, error_model="numpy")
def inside(eta: float) -> float:
    """Relative position xi = 1 / (1 + e^{-eta})."""
    return 1 / (1 + math.exp(-eta)) if eta > 0 else math.exp(eta) / (1 + math.exp(eta))


@njit(cache=True, error_model="numpy")
def log_add(a: float, b: float) -> float:
    """log(e^a + e^b)."""
    return max(a, b) + math.log1p(math.exp(-abs(a - b)))


@njit(cache=True, error_model="numpy")
def _fill(mean: float, pair: Any, log_mass: float, cell: Array) -> None:
    """Fill cell (eta_1, eta_2, l_1, l_2) with two points around their mean."""
    for j in range(2):
        cell[j] = logit(mean + pair[j])
        cell[2 + j] = log_mass + math.log(max(pair[2 + j], LEAST_SHARE))


@njit(cache=True, error_model="numpy")
def concentrate(xi: Array, share: Array, log_mass: float, cell: Array) -> None:
    """Fill cell (eta_1, eta_2, l_1, l_2) with the Gauss rule of points xi with shares of sum 1."""
    mean = variance = skew = 0.0
    for j in range(xi.size):
        mean += share[j] * xi[j]
    for j in range(xi.size):
        variance += share[j] * (xi[j] - mean) ** 2
        skew += share[j] * (xi[j] - mean) ** 3
    _fill(mean, gauss_pair(variance, skew), log_mass, cell)


@njit(cache=True, error_model="numpy")
def fill_exponential(g: float, log_mass: float, cell: Array) -> None:
    """Fill cell (eta_1, eta_2, l_1, l_2) with the Gauss rule of the density e^{g xi}."""
    mean, variance, skew = exponential_moments(g)
    _fill(mean, gauss_pair(variance, skew), log_mass, cell)


@njit(cache=True, error_model="numpy")
def rate_inside(cell: Array) -> Any:
    """Rate g of the exponential with the cell's mean, and whether it has the cell's variance too.

    It has if the two variances agree within a factor 2; if not, the mass is lumped.
    """
    top = max(cell[2], cell[3])
    first, second = math.exp(cell[2] - top), math.exp(cell[3] - top)
    share = second / (first + second)
    left, right = inside(cell[0]), inside(cell[1])
    mean = left + share * (right - left)
    variance = share * (1 - share) * (right - left) ** 2
    if not CLOSEST < mean < 1 - CLOSEST:
        return 0.0, False
    g = exponential_rate(mean)
    even = exponential_moments(g)[1]
    return g, even <= EVEN * variance and variance <= EVEN * even


@njit(cache=True, error_model="numpy")
def _distribution(g: float, s: float) -> float:
    """Share of the density e^{g xi} that lies below s."""
    if abs(g) < 1e-8:
        return s
    if g > 0:
        return math.exp(g * (s - 1)) * math.expm1(-g * s) / math.expm1(-g)
    return math.expm1(g * s) / math.expm1(g)


@njit(cache=True, nogil=True, error_model="numpy")
def _bin(edges: Array, cells: Array, out: Array) -> None:
    """Add the mass of cells (n, 4) to equal bins of the circle from angle 0 on."""
    width = 2 * math.pi / out.size
    for k in range(len(cells)):
        low, h = edges[k], edges[k + 1] - edges[k]
        g, even = rate_inside(cells[k])
        if not even:
            for j in range(2):
                angle = low + inside(cells[k, j]) * h
                out[math.floor(angle / width) % out.size] += math.exp(cells[k, 2 + j])
            continue
        mass, below = math.exp(cells[k, 2]) + math.exp(cells[k, 3]), 0.0
        first, last = math.floor(low / width), math.floor((low + h) / width)
        for i in range(first, last + 1):
            upper = _distribution(g, ((i + 1) * width - low) / h) if i < last else 1.0
            out[i % out.size] += mass * (upper - below)
            below = upper


def binned_density(cells: Cells, axis: float, bins: int) -> Array:
    """Average the density over equal bins of the circle, starting at angle 0; shape (bins,).

    Conservative: the bins' integral is the cells' mass. Lumped mass goes to the bins of its points.
    """
    out = np.zeros(bins)
    _bin(cells.edges + axis, rows(cells), out)
    return out * bins / (2 * np.pi)


def rows(cells: Cells) -> Array:
    """Return the cells as rows (eta_1, eta_2, l_1, l_2), shape (cells, 4)."""
    return np.ascontiguousarray(np.concatenate([cells.eta, cells.log_mass]).T)


def unfold(cells: Cells, *, mirrored: bool, antipodal: bool) -> Cells:
    """Repeat a domain over the circle: its mirror image beyond its end, then the opposite half."""
    edges, eta, log_mass = cells.edges, cells.eta, cells.log_mass
    if mirrored:
        edges = np.concatenate([edges, 2 * edges[-1] - edges[-2::-1]])
        eta = np.concatenate([eta, -eta[::-1, ::-1]], axis=1)
        log_mass = np.concatenate([log_mass, log_mass[::-1, ::-1]], axis=1)
    if antipodal:
        edges = np.concatenate([edges, edges[1:] + np.pi])
        eta, log_mass = np.tile(eta, 2), np.tile(log_mass, 2)
    return Cells(edges, eta, log_mass)
