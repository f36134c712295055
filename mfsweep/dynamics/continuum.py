"""The continuum limit (n = infinity) of the token dynamics on the circle.

The mean-field equation for the density rho(t, theta) of tokens x = (cos theta, sin theta), with
x' = (-sin theta, cos theta), is

    d rho / dt + d (rho a) / d theta = 0,   a(theta) = <x', V m(x)>,
    m(x) = int e^{beta <B^T x, y>} y rho(dy) / int e^{beta <B^T x, y>} rho(dy)

(arXiv 2605.10931). The edges of cells move with a, so the mass of a cell never changes; masses are
kept as logarithms, because tails of e^{-1000}, amplified by e^{beta ...}, decide late events.
"""

import math
from dataclasses import dataclass

import numpy as np

from mfsweep._errors import InputError
from mfsweep._types import Array, Times
from mfsweep.dynamics.advance import Flow, Steps, advance
from mfsweep.dynamics.cells import Cells, binned_density, unfold
from mfsweep.dynamics.density import (
    AnyDensity,
    Density,
    VonMises,
    checked_density,
    integrals,
    is_antipodal,
    is_mirrored,
)
from mfsweep.dynamics.mesh import JOIN, WidthRule, initial_cells
from mfsweep.dynamics.simulate import LONGEST_STEP, Stats, check_times
from mfsweep.dynamics.weights import Weights

MOST_CELLS = 200_000
"""Most cells of a mesh on the circle."""
COMMUTES = 1e-12
"""Largest off-diagonal entry of V and B along e, relative to their norms, of weights that commute
with the reflection about e."""

EVEN_SIDES = 1e-9
"""Difference of the masses on the two sides of E below which they count as equal."""
BINS = 720
"""Bins of the stored density."""
_PANELS = 1024  # of the quadrature of the initial density, on each of three arcs


@dataclass(frozen=True, eq=False)
class ContinuumTrajectory:
    """A density at the saved times, as masses at points; the mesh, and so their number, changes."""

    times: Times
    """Dimensionless, shape (time,)."""
    edges: tuple[Array, ...]
    """Unwrapped angles of the cells' edges, radians, (cells + 1,); last = first + 2 pi."""
    cell_log_mass: tuple[Array, ...]
    """Log-masses of the cells at each time, (cells,)."""
    tokens: tuple[Array, ...]
    """Unit vectors that carry the mass at each time, two in every cell, (2 cells, 2), by angle."""
    log_mass: tuple[Array, ...]
    """Log-masses of `tokens`, (2 cells,); sum of masses 1."""
    plus_share: tuple[Array, ...]
    """Share of each token's mass that lay on the side of e at time 0, in [0, 1], (2 cells,)."""
    theta: Array
    """Centres of the bins of `density`, radians, (grid,)."""
    density: Array
    """Averages over the bins [2 pi g / grid, 2 pi (g + 1) / grid), (time, grid); integral 1."""
    element_angle: Array
    """Angles at time 0 of the mass elements that can be followed, by angle from e on, radians,
    (elements,)."""
    element_mass: Array
    """Their masses, sum 1, (elements,)."""
    e: Array
    """Unit vector of E with more mass on its side, (2,): the metastable target is `plus` at e and
    1 - plus at -e."""
    plus: float
    """Initial mass on the side of e, where Pi(x) = e."""
    stats: Stats
    notes: tuple[str, ...]
    """What was unusual about the density, and which symmetries were kept exactly."""

    def mass(self, k: int) -> Array:
        """Masses of tokens[k], (2 cells,), scaled to sum 1; those below e^{-745} read as 0."""
        mass = np.exp(self.log_mass[k])
        scaled: Array = mass / mass.sum()
        return scaled

    def followed(self, k: int) -> Array:
        """Return the angles at times[k] of the mass elements, radians, (elements,).

        On the circle the flow keeps the order of the elements. The mass of a cell is taken uniform
        about the mean of its two points, with their variance: exact in a cell of constant density
        and in one whose mass has contracted to a point.
        """
        cell_mass = np.exp(self.cell_log_mass[k])
        below = np.cumsum(cell_mass) / cell_mass.sum()
        element = np.cumsum(self.element_mass) - self.element_mass / 2
        cell = np.minimum(np.searchsorted(below, element), len(below) - 1)
        within = 0.5 + (element - below[cell]) / (cell_mass[cell] / cell_mass.sum())
        mean, deviation = self._cells(k)
        angle: Array = mean[cell] + np.sqrt(12.0) * deviation[cell] * within
        return angle

    def _cells(self, k: int) -> tuple[Array, Array]:
        """Return mean and standard deviation of the angle in each cell, radians, (cells,)."""
        x, logs = self.tokens[k].reshape(-1, 2, 2), self.log_mass[k].reshape(-1, 2)
        left = self.edges[k][:-1, None]
        turn = np.arctan2(x[..., 1], x[..., 0]) - left
        angle = left + np.mod(turn + np.pi, 2 * np.pi) - np.pi
        share = np.exp(logs - np.logaddexp.reduce(logs, axis=1, keepdims=True))
        mean = np.sum(share * angle, axis=1)
        return mean, np.sqrt(np.sum(share * (angle - mean[:, None]) ** 2, axis=1))


@dataclass(frozen=True, eq=False)
class Certified:
    """One run at two mesh widths; what differs between them bounds the error of the finer one."""

    fine: ContinuumTrajectory
    coarse: ContinuumTrajectory
    """At twice the width: its error is 4 times as large or more."""


def simulate_continuum(
    density: AnyDensity,
    weights: Weights,
    beta: float,
    *,
    times: Times,
    resolution: float = 0.5,
    widest: float = 0.1,
    rtol: float = 1e-6,
    atol: float = 1e-9,
    grid: int = BINS,
) -> ContinuumTrajectory:
    """Integrate the mean-field equation on the circle from a density at time 0.

    d rho / dt + d (rho a) / d theta = 0, a(theta) = <x', V m(x)> with m the softmax average over
    rho at inverse temperature beta; m(x) = B^T x / |B^T x| at beta = inf.

    Parameters
    ----------
    density
        Density of the angle in radians: an object with `log` such as `VonMises` or `Mixture`, a
        vectorised function, or values at the angles 2 pi j / n. Scaled to integral 1.
    weights
        V and B, each (2, 2).
    beta
        Inverse temperature, dimensionless, > 0; math.inf for the zero-temperature flow.
    times
        Increasing dimensionless times >= 0, shape (time,).
    resolution
        kappa: a cell at y is at most kappa min(widest, (beta |B^T y|)^{-1/2}) wide, and narrower
        where the velocity rises steeply (see `mfsweep.dynamics.mesh`); in (0, 2].
    widest
        Bound on a cell's width at resolution 1, radians, in (0, 1].
    rtol, atol
        Local error of every edge per step, radians; their sum counts.
    grid
        Number of bins of the stored density, at least 1.

    Returns
    -------
    ContinuumTrajectory
        Masses at points at every saved time, their origin, and the binned density.

    Raises
    ------
    InputError
        If an argument is out of range, the mesh would pass 200,000 cells, or d > 2.
    IntegrationError
        If the step underflows.

    Notes
    -----
    Deterministic; of fourth order in kappa while the density is smooth on the scale of the cells.
    An antipodal density, and a density and weights that are symmetric about e, stay so exactly:
    only one part of the circle is moved, so roundoff cannot grow into a switch. Cost per drift
    O(M) to O(M^2) for M ~ sqrt(beta) / kappa cells. Source: arXiv 2605.10931.

    >>> from mfsweep.dynamics.density import VonMises
    >>> weights = Weights(np.diag([1.0, 0.5]), np.eye(2))
    >>> run = simulate_continuum(VonMises(), weights, 16.0, times=np.array([0.0, 30.0]))
    >>> bool(np.abs(run.tokens[-1][:, 1] * run.mass(1)).max() < 1e-3), round(run.plus, 12)
    (True, 0.5)
    """
    times = check_times(times)
    _check(weights, beta, resolution, widest, rtol, atol, grid)
    law, notes = checked_density(density)
    problem = _Problem.of(law, weights)
    flow = problem.flow(beta)
    rule = WidthRule(problem.B, beta, resolution, widest)
    _check_size(rule)
    cells, steps = initial_cells(problem.log, rule, flow.period), Steps()
    longest = LONGEST_STEP / max(float(np.linalg.norm(problem.V, 2)), np.finfo(float).tiny)
    states = advance(flow, cells, rule, times, tolerance=rtol + atol, longest=longest, steps=steps)
    saved = [unfold(state, mirrored=flow.mirrored, antipodal=flow.antipodal) for state in states]
    counts = steps.accepted, steps.rejected, flow.evaluations, flow.pairs, flow.skipped
    stats = Stats(*counts, "reached the last time")
    return _trajectory(problem, times, saved, grid, stats, notes + problem.notes)


def certified_continuum(
    density: AnyDensity,
    weights: Weights,
    beta: float,
    *,
    times: Times,
    resolution: float = 0.5,
    widest: float = 0.1,
    rtol: float = 1e-6,
    atol: float = 1e-9,
    grid: int = BINS,
) -> Certified:
    """Run `simulate_continuum` at `resolution` and at twice that.

    A number T of the run that converges with order p has |T_kappa - T| close to
    |T_kappa - T_{2 kappa}| / (2^p - 1): the whole difference bounds the finer run's error for every
    p >= 1. The parameters are those of `simulate_continuum`; resolution at most 1.
    """

    def run(kappa: float) -> ContinuumTrajectory:
        return simulate_continuum(
            density,
            weights,
            beta,
            times=times,
            resolution=kappa,
            widest=widest,
            rtol=rtol,
            atol=atol,
            grid=grid,
        )

    return Certified(run(resolution), run(2 * resolution))


@dataclass(frozen=True, eq=False)
class _Problem:
    """The weights and the density in the frame (e, e turned by 90 degrees)."""

    density: Density
    frame: Array
    """Columns e and its perpendicular, (2, 2)."""
    V: Array
    B: Array
    side: float
    """Angle from e of the dual vector of e: Pi(x) = e within 90 degrees of it, radians."""
    mirrored: bool
    antipodal: bool

    @classmethod
    def of(cls, density: Density, weights: Weights) -> "_Problem":
        """Turn to the frame of e, the direction in E with more mass on its side."""
        e, dual = weights.dominant()[:, 0], weights.dual[:, 0]
        if _side_mass(density, dual) < 0.5 - EVEN_SIDES:
            e, dual = -e, -dual
        frame = np.array([[e[0], -e[1]], [e[1], e[0]]])
        V, B = frame.T @ weights.V @ frame, frame.T @ weights.B @ frame
        across, along = frame.T @ dual
        side, axis = math.atan2(along, across), math.atan2(e[1], e[0])
        mirrored = _diagonal(V) and _diagonal(B) and is_mirrored(density, axis)
        if mirrored:
            V, B, side = np.diag(np.diag(V)), np.diag(np.diag(B)), 0.0
        return cls(density, frame, V, B, side, mirrored, is_antipodal(density))

    @property
    def axis(self) -> float:
        """Angle of e, radians."""
        return math.atan2(self.frame[1, 0], self.frame[0, 0])

    @property
    def notes(self) -> tuple[str, ...]:
        """Name the symmetries that are kept."""
        names = {
            "the start is antipodal: one half of the circle was moved": self.antipodal,
            "start and weights are symmetric about e: one side of it was moved": self.mirrored,
        }
        return tuple(name for name, holds in names.items() if holds)

    def log(self, theta: Array) -> Array:
        """Log-density of the angle from e."""
        return self.density.log(theta + self.axis)

    def flow(self, beta: float) -> Flow:
        """Velocity at one inverse temperature."""
        return Flow(
            np.ascontiguousarray(self.V),
            np.ascontiguousarray(self.B),
            beta,
            self.mirrored,
            self.antipodal,
        )


def _side_mass(density: Density, direction: Array) -> float:
    """Mass within 90 degrees of a direction."""
    angle = math.atan2(direction[1], direction[0])
    turn = np.linspace(-np.pi / 2, 3 * np.pi / 2, 2 * _PANELS + 1)
    parts = integrals(density.log, angle + turn)
    mass = np.exp(parts - np.logaddexp.reduce(parts))
    return float(mass[:_PANELS].sum())


def _diagonal(matrix: Array) -> bool:
    """Tell whether a (2, 2) matrix commutes with the reflection (x, y) -> (x, -y)."""
    off = max(abs(matrix[0, 1]), abs(matrix[1, 0]))
    return bool(off <= COMMUTES * np.linalg.norm(matrix))


def _trajectory(
    problem: _Problem,
    times: Times,
    saved: list[Cells],
    grid: int,
    stats: Stats,
    notes: tuple[str, ...],
) -> ContinuumTrajectory:
    """Collect the result from the cells at the saved times, on the whole circle."""
    origin = _Origin(problem)
    points = [cells.points() for cells in saved]
    units = [np.stack([np.cos(angle), np.sin(angle)], axis=-1) for angle, _ in points]
    log_mass = tuple(logs for _, logs in points)
    return ContinuumTrajectory(
        times=times,
        edges=tuple(cells.edges + problem.axis for cells in saved),
        cell_log_mass=tuple(cells.cell_log_mass for cells in saved),
        tokens=tuple(unit @ problem.frame.T for unit in units),
        log_mass=log_mass,
        plus_share=tuple(origin.share(logs) for logs in log_mass),
        theta=2 * np.pi * (np.arange(grid) + 0.5) / grid,
        density=np.stack([binned_density(cells, problem.axis, grid) for cells in saved]),
        element_angle=(origin.angles[1:] + origin.angles[:-1]) / 2,
        element_mass=np.diff(origin.below),
        e=problem.frame[:, 0],
        plus=origin.plus,
        stats=stats,
        notes=notes,
    )


class _Origin:
    """Where mass came from: on the circle the flow keeps the order of the mass elements.

    Counted from the edge that lies at e at time 0, the mass below an element never changes.
    """

    def __init__(self, problem: _Problem) -> None:
        leaves = problem.side + np.pi / 2  # the side of e ends here and begins again half a turn on
        parts = [
            integrals(problem.log, np.linspace(*ends, _PANELS + 1))
            for ends in ((0.0, leaves), (leaves, leaves + np.pi), (leaves + np.pi, 2 * np.pi))
        ]
        masses = np.exp(np.concatenate(parts) - np.logaddexp.reduce(np.concatenate(parts)))
        below = np.concatenate([[0.0], np.cumsum(masses)])
        self.below = below / below[-1]
        ends = [0.0, leaves, leaves + np.pi, 2 * np.pi]
        self.angles = problem.axis + np.interp(
            np.arange(3 * _PANELS + 1), _PANELS * np.arange(4), ends
        )
        self.leaves, self.returns = self.below[_PANELS], self.below[2 * _PANELS]

    @property
    def plus(self) -> float:
        """Mass on the side of e."""
        return float(self.leaves + 1.0 - self.returns)

    def share(self, log_mass: Array) -> Array:
        """Return the share of each mass that lay on the side of e; masses in order from e on."""
        mass = np.maximum(np.exp(log_mass), np.finfo(float).tiny)
        high = np.cumsum(mass)
        before = np.clip((self.leaves - (high - mass)) / mass, 0.0, 1.0)
        after = np.clip((high - self.returns) / mass, 0.0, 1.0)
        share: Array = np.minimum(before + after, 1.0)
        return share


def _check(
    weights: Weights,
    beta: float,
    resolution: float,
    widest: float,
    rtol: float,
    atol: float,
    grid: int,
) -> None:
    """Refuse arguments out of range, one line each."""
    checks = {
        f"d = {weights.d}: the continuum lives on the circle; take d = 2, or particles": weights.d
        == 2,
        f"beta = {beta}: must be > 0, or inf for the zero-temperature flow": beta > 0,
        f"resolution = {resolution}: must lie in (0, 2]; 0.5 is a good start": 0 < resolution <= 2,
        f"widest = {widest}: must lie in (0, 1] radians": 0 < widest <= 1,
        f"rtol = {rtol}, atol = {atol}: need 0 < rtol < 1 and 0 <= atol < 1": 0 < rtol < 1
        and 0 <= atol < 1,
        f"grid = {grid}: the stored density needs at least 1 bin": grid >= 1,
    }
    for message, holds in checks.items():
        if not holds:
            raise InputError(message)


def _check_size(rule: WidthRule) -> None:
    """Refuse a mesh that could pass the largest size, all cells being as narrow as they get."""
    most = rule.number(2 * np.pi)[1][-1] / JOIN
    if not most <= MOST_CELLS:
        message = (
            f"resolution = {rule.resolution:g} at beta = {rule.beta:g} may need {most:.3g} cells, "
            f"more than {MOST_CELLS}: raise resolution (or widest) or lower beta"
        )
        raise InputError(message)


def compile_continuum() -> None:
    """Compile what a run needs, or load it from the cache beside the modules."""
    weights = Weights(np.diag([1.0, 0.5]), np.diag([2.0, 0.5]))
    for law in (VonMises(), VonMises(0.3, 1.0)):  # one part of the circle, and all of it
        simulate_continuum(law, weights, 1.0, times=np.array([0.0, 4.0]), resolution=2.0)
