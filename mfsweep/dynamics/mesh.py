"""How wide the cells of the moving mesh may be: laying, joining and cutting them.

A softmax weight e^{beta <B^T x, y>} is a Gaussian bump in y of width (beta |B^T x|)^{-1/2}, so a
cell at y may be as wide as

    h(y) = resolution min(widest, (beta |B^T y|)^{-1/2})   radians.

Joining keeps the moments of order 0 to 3 of the mass, cutting keeps mass and mean: an offset of a
narrow cluster far below h, which decides when it leaves an unstable direction, is not touched.

Between tokens that follow one cluster and tokens that follow another, the velocity changes within
an ever thinner layer: where the softmax is spread over an angle s it expands the tokens at the rate
R ~ |V| beta |B^T y| s^2, over an angle 1 / (beta |B^T y| s). So that the layer keeps its cells, the
velocity may also change by no more than SHEAR |V|_2 h(y) across a cell. What the layer thins out
is the tail behind a cluster, which holds it back later, so this decides when the cluster leaves.

The layer ends as thin as 1 / beta, a void whose density falls like e^{-beta t}. Its middle cell is
torn once R > TORN |V|_2, too fast to be followed: its two points part, and the cell between them
is left empty.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from mfsweep._types import Array
from mfsweep.dynamics.cells import (
    Cells,
    concentrate,
    fill_exponential,
    inside,
    log_add,
    logit,
    rate_inside,
    rows,
)
from mfsweep.dynamics.density import LogDensity, cell_moments

ZERO = -1e300
"""Log-mass of an empty cell: below every other, and finite."""
VOID = -1e200
"""Log-mass below which a cell counts as empty; empty cells may be of any width."""
SHEAR = 0.3
"""Largest change of the velocity across a cell, in units of |V|_2 h."""
TORN = 30.0
"""A wide cell that expands faster than TORN |V|_2, and than the two beside it, is torn."""
JOIN, JOINED, LAID, WIDENED = 0.3, 0.8, 0.75, 0.4
"""Cells narrower than JOIN h are joined where they stay under JOINED h, or widened to WIDENED h
where an empty cell is beside them; the first ones are LAID h wide."""
_SAMPLES = 4096  # angles at which h is tabulated to lay cells


@njit(cache=True, error_model="numpy")
def _join(left: Array, right: Array, fraction: float, out: Array) -> None:
    """Join two cells, the left of which has this fraction of the width."""
    xi, share = np.empty(4), np.empty(4)
    top = max(max(left[2], left[3]), max(right[2], right[3]))
    for j in range(2):
        xi[j] = fraction * inside(left[j])
        xi[2 + j] = fraction + (1 - fraction) * inside(right[j])
        share[j], share[2 + j] = math.exp(left[2 + j] - top), math.exp(right[2 + j] - top)
    total = share.sum()
    concentrate(xi, share / total, top + math.log(total), out)


@njit(cache=True, error_model="numpy")
def _bisect(cell: Array, beside: Array, halves: Array) -> None:
    """Cut a cell at its middle into halves (2, 4).

    The left half of e^{g xi} holds 1 / (1 + e^{g/2}) of the mass, and each half has the rate g / 2.
    """
    g, even = rate_inside(cell)
    if even:
        mass = log_add(cell[2], cell[3])
        fill_exponential(g / 2, mass - log_add(0.0, g / 2), halves[0])
        fill_exponential(g / 2, mass - log_add(0.0, -g / 2), halves[1])
    else:
        _bisect_lumped(cell, beside, halves)


@njit(cache=True, error_model="numpy")
def _bisect_lumped(cell: Array, beside: Array, halves: Array) -> None:
    """Cut a cell whose mass is lumped: its points stay where they are.

    A half without a point takes the density of the cell next to it (`beside`: log-masses of the
    left and the right neighbour over half this cell's width), a quarter of the mass at most.
    """
    split = 0  # points in the left half
    for j in range(2):
        split += inside(cell[j]) < 0.5
    if split == 1:
        for side in range(2):
            halves[side, :2] = logit(2 * inside(cell[side]) - side)
            halves[side, 2:] = cell[2 + side] - math.log(2.0)
        return
    full = 0 if split == 2 else 1
    mass = log_add(cell[2], cell[3])
    given = min(beside[1 - full], mass - math.log(4.0))
    fill_exponential(0.0, given, halves[1 - full])
    kept = math.log1p(-min(0.25, math.exp(given - mass)))
    for j in range(2):
        halves[full, j] = logit(2 * inside(cell[j]) - full)
        halves[full, 2 + j] = cell[2 + j] + kept


@njit(cache=True, error_model="numpy")
def width_allowed(theta: float, B: Array, beta: float, resolution: float, widest: float) -> float:
    """h(y) = resolution min(widest, (beta |B^T y|)^{-1/2}) at the angle theta of y."""
    c, s = math.cos(theta), math.sin(theta)
    reach = math.hypot(B[0, 0] * c + B[1, 0] * s, B[0, 1] * c + B[1, 1] * s)
    if math.isinf(beta) or beta * reach * widest**2 <= 1:
        return resolution * widest
    return resolution / math.sqrt(beta * reach)


@njit(cache=True, error_model="numpy")
def _allowed(low: float, high: float, rate: float, scale: float, rule: Any) -> float:
    """Width allowed between two angles that part at this rate: h, or less for SHEAR."""
    allowed: float = width_allowed((low + high) / 2, *rule)
    return allowed if rate <= SHEAR * scale else allowed * SHEAR * scale / rate


@njit(cache=True, error_model="numpy")
def _mass(cell: Array) -> float:
    """Log-mass of a cell."""
    return log_add(cell[2], cell[3])


@njit(cache=True, error_model="numpy")
def _widen(left: Array, right: Array, fraction: float, wanted: float) -> float:
    """Move the edge between a cell and an empty one, so that the cell gets the wanted fraction.

    `fraction` of the width of both is the left one's; the points of the mass stay where they are.
    Returns the new fraction, or the old one if neither cell or both are empty.
    """
    if _mass(left) > VOID >= _mass(right):
        for j in range(2):
            left[j] = logit(inside(left[j]) * fraction / wanted)
        return wanted
    if _mass(right) > VOID >= _mass(left):
        for j in range(2):
            right[j] = -logit(inside(-right[j]) * (1 - fraction) / wanted)
        return 1 - wanted
    return fraction


@njit(cache=True, error_model="numpy")
def _join_narrow(edges: Array, velocity: Array, cells: Array, scale: float, rule: Any) -> int:
    """Join narrow cells (n, 4) in place, edges and their velocities too; return how many stay.

    A narrow cell beside an empty one too wide to be joined is widened into it instead.
    """
    last = 0
    joined = np.empty(4)
    for k in range(1, len(cells)):
        low, middle, high = edges[last], edges[last + 1], edges[k + 1]
        rate = (velocity[k + 1] - velocity[last]) / (high - low)
        allowed = _allowed(low, high, rate, scale, rule)
        narrow = min(middle - low, high - middle) < JOIN * allowed
        fraction = (middle - low) / (high - low)
        if narrow and high - low <= JOINED * allowed:
            _join(cells[last], cells[k], fraction, joined)
            cells[last] = joined
        else:
            massive = middle - low if _mass(cells[last]) > VOID else high - middle
            if massive < JOIN * allowed:
                wanted = WIDENED * allowed / (high - low)
                fraction = _widen(cells[last], cells[k], fraction, wanted)
                edges[last + 1] = low + fraction * (high - low)
            last += 1
            cells[last] = cells[k]
        edges[last + 1], velocity[last + 1] = high, velocity[k + 1]
    return last + 1


@njit(cache=True, error_model="numpy")
def _beside(edges: Array, cells: Array, k: int, out: Array) -> None:
    """Log-masses of the neighbours of cell k, scaled to half its width; at an end, its own."""
    half = (edges[k + 1] - edges[k]) / 2
    for side in range(2):
        j = min(max(k - 1 + 2 * side, 0), len(cells) - 1)
        scale = math.log(half / (edges[j + 1] - edges[j]))
        out[side] = log_add(cells[j, 2], cells[j, 3]) + scale


@njit(cache=True, error_model="numpy")
def _pieces(edges: Array, velocity: Array, cells: Array, scale: float, rule: Any) -> Any:
    """Into how many pieces each cell is to be cut: 1, or 2 if it is wide, or 3 if it is torn."""
    n = len(cells)
    rate = np.diff(velocity) / np.diff(edges)
    pieces = np.ones(n, dtype=np.int64)
    for k in range(n):
        allowed = _allowed(edges[k], edges[k + 1], rate[k], scale, rule)
        if edges[k + 1] - edges[k] > allowed and _mass(cells[k]) > VOID:
            pieces[k] = 2
            if 0 < k < n - 1 and rate[k] >= max(rate[k - 1], rate[k + 1], TORN * scale):
                pieces[k] = 3
    return pieces


@njit(cache=True, error_model="numpy")
def _tear(cell: Array, parts: Array) -> None:
    """Cut a torn cell into quarter, half, quarter: one point each side, nothing between."""
    for side in range(2):
        fill_exponential(0.0, cell[2 + side], parts[2 * side])
    fill_exponential(0.0, ZERO, parts[1])


@njit(cache=True, error_model="numpy")
def _cut(edges: Array, velocity: Array, cells: Array, pieces: Any) -> Any:
    """Cut every cell into its pieces; return edges, velocities and cells."""
    total = pieces.sum()
    new = np.empty((2, total + 1))
    new_cells, beside = np.empty((total, 4)), np.empty(2)
    at = 0
    for k in range(len(cells)):
        low, high = edges[k], edges[k + 1]
        new[0, at], new[1, at] = low, velocity[k]
        for j in range(1, pieces[k]):
            share = 0.5 if pieces[k] == 2 else 0.5 * j - 0.25
            new[0, at + j] = low + share * (high - low)
            new[1, at + j] = velocity[k] + share * (velocity[k + 1] - velocity[k])
        if pieces[k] == 1:
            new_cells[at] = cells[k]
        elif pieces[k] == 2:
            _beside(edges, cells, k, beside)
            _bisect(cells[k], beside, new_cells[at : at + 2])
        else:
            _tear(cells[k], new_cells[at : at + 3])
        at += pieces[k]
    new[0, total], new[1, total] = edges[-1], velocity[-1]
    return new[0], new[1], new_cells


@njit(cache=True, nogil=True, error_model="numpy")
def _remesh(edges: Array, velocity: Array, cells: Array, scale: float, rule: Any) -> Any:
    """Join narrow cells, then cut wide ones until none is left; the arrays are overwritten."""
    count = _join_narrow(edges, velocity, cells, scale, rule)
    edges, velocity = edges[: count + 1].copy(), velocity[: count + 1].copy()
    cells = cells[:count].copy()
    while True:
        pieces = _pieces(edges, velocity, cells, scale, rule)
        if pieces.sum() == len(cells):
            return edges, cells
        edges, velocity, cells = _cut(edges, velocity, cells, pieces)


@dataclass(frozen=True, eq=False)
class WidthRule:
    """Width allowed to a cell, h(y) = resolution min(widest, (beta |B^T y|)^{-1/2}) radians."""

    B: Array
    beta: float
    resolution: float
    widest: float

    @property
    def _arguments(self) -> tuple[Array, float, float, float]:
        return self.B, self.beta, self.resolution, self.widest

    def number(self, period: float) -> tuple[Array, Array]:
        """Count cells of width h from angle 0 on: angles up to the period, int_0^theta d s / h."""
        theta = np.linspace(0.0, period, _SAMPLES + 1)
        density = np.array([1 / width_allowed(angle, *self._arguments) for angle in theta])
        steps = period / _SAMPLES * (density[1:] + density[:-1]) / 2
        return theta, np.concatenate([[0.0], np.cumsum(steps)])

    def remesh(self, cells: Cells, velocity: Array, scale: float) -> Cells:
        """Join narrow cells, cut and tear wide ones; the two end edges stay.

        Parameters
        ----------
        cells
            The mesh; it is returned itself if there is nothing to do.
        velocity
            Velocities of its edges, (cells + 1,).
        scale
            |V|_2, a bound on velocities.
        """
        edges, table = _remesh(
            cells.edges.copy(), velocity.copy(), rows(cells), scale, self._arguments
        )
        if np.array_equal(edges, cells.edges):
            return cells
        columns = np.ascontiguousarray(table.T)
        return Cells(edges, columns[:2], columns[2:])


def initial_cells(log: LogDensity, rule: WidthRule, period: float) -> Cells:
    """Lay cells of width 0.75 h over the angles [0, period] and fill them.

    Parameters
    ----------
    log
        Log-density of the angle from the axis e; the masses are scaled to sum period / (2 pi).
    rule
        Width allowed at each angle.
    period
        Length of the domain, radians.
    """
    theta, number = rule.number(period)
    n = max(8, math.ceil(number[-1] / LAID))
    edges = np.interp(np.linspace(0.0, number[-1], n + 1), number, theta)
    log_mass, position, share = cell_moments(log, edges)
    log_mass += math.log(period / (2 * np.pi)) - np.logaddexp.reduce(log_mass)
    columns = np.empty((4, n))
    for k in range(n):
        concentrate(position[k], share[k], max(log_mass[k], ZERO), columns[:, k])
    return Cells(edges, columns[:2].copy(), columns[2:].copy())
