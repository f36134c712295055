"""Move the cells of a mesh: one adaptive Runge-Kutta driver that remeshes between its steps."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mfsweep._errors import IntegrationError
from mfsweep._types import Array, Times
from mfsweep.dynamics.cells import Cells
from mfsweep.dynamics.integrators import DOPRI5, SAFETY, SHRINK_MOST, SMALLEST_STEP, growth
from mfsweep.dynamics.meanfield import edge_velocity, point_velocity
from mfsweep.dynamics.mesh import VOID, WidthRule

STRETCH = 0.5
"""Longest step in units of 1 / (largest expansion rate of a cell): a cell that was narrow enough
stays so within e^{1/2} during a step."""
_A = [np.array(row) for row in DOPRI5.a]
_ERROR, _DENSE = np.array(DOPRI5.error), np.array(DOPRI5.dense)


@dataclass
class Flow:
    """Velocity of a mesh whose domain repeats by symmetry; counts its evaluations."""

    V: Array
    B: Array
    beta: float
    mirrored: bool
    """The circle is symmetric about the axis e: the domain's end edges are fixed."""
    antipodal: bool
    """The circle is symmetric under a half turn."""
    evaluations: int = 0
    pairs: int = 0
    """Pairs of an edge and a mass that were summed."""
    skipped: int = 0

    @property
    def period(self) -> float:
        """Length of the domain, radians."""
        return float(2 * np.pi / (1 + self.mirrored) / (1 + self.antipodal))

    def velocity(self, state: Array, cells: Cells) -> Array:
        """Evaluate d/dt of the state (edges, then eta) of cells with the masses of `cells`."""
        edges, eta = _unpack(state, cells)
        symmetry = self.mirrored, self.antipodal
        speed, pairs = edge_velocity(
            edges, eta, cells.log_mass, self.V, self.B, self.beta, *symmetry
        )
        self.evaluations += 1
        if np.isfinite(self.beta):
            images = (1 + self.mirrored) * (1 + self.antipodal)
            self.pairs += pairs
            self.skipped += (edges.size - 1) * eta.size * images - pairs
        inner = point_velocity(edges, speed, eta, self.mirrored)
        return np.concatenate([speed, inner.ravel()])


def _unpack(state: Array, cells: Cells) -> tuple[Array, Array]:
    count = cells.edges.size
    return state[:count], state[count:].reshape(cells.eta.shape)


def _cells(state: Array, cells: Cells) -> Cells:
    """Cells at a new state with the masses of the old ones."""
    return Cells(*_unpack(state, cells), cells.log_mass)


@dataclass
class Steps:
    """What the driver did."""

    accepted: int = 0
    rejected: int = 0


def advance(
    flow: Flow,
    cells: Cells,
    rule: WidthRule,
    times: Times,
    *,
    tolerance: float,
    longest: float,
    steps: Steps,
) -> Iterator[Cells]:
    """Yield the cells at each of the given times, from `cells` at time 0.

    A step of the pair DOPRI5 is accepted when the error estimate of every edge is below the
    tolerance (radians) and the edges are still in order; then cells are joined and cut.

    Parameters
    ----------
    flow
        Velocity of the mesh.
    cells
        Mesh at time 0; symmetric copies are left out.
    rule
        Width allowed to a cell.
    times
        Increasing dimensionless times >= 0; values between steps come from the pair's extension.
    tolerance
        Local error per step, radians.
    longest
        Longest step.
    steps
        Counts, updated in place.

    Raises
    ------
    IntegrationError
        If the step falls below 1e-10: the tolerance cannot be met.
    """
    t, error_before = 0.0, 1.0
    scale = float(np.linalg.norm(flow.V, 2))
    state = np.concatenate([cells.edges, cells.eta.ravel()])
    velocity = flow.velocity(state, cells)
    h = _first_step(velocity[: cells.edges.size], tolerance, longest)
    waiting = list(times[::-1])
    while waiting and waiting[-1] <= t:
        waiting.pop()
        yield cells
    while waiting:
        h = min(h, _unstretched(cells, velocity))
        proposal, stages = _stages(flow, state, velocity, h, cells)
        error = _error(proposal, stages, h, cells) / tolerance
        if not error <= 1.0:
            steps.rejected += 1
            h *= max(SHRINK_MOST, SAFETY * error ** (-1 / DOPRI5.order)) if error < np.inf else 0.1
            _check_step(h, t)
            continue
        while waiting and waiting[-1] <= t + h:
            yield _cells(_extension(state, stages, h, (waiting.pop() - t) / h), cells)
        t, steps.accepted = t + h, steps.accepted + 1
        h = min(longest, h * growth(error, error_before, DOPRI5.order))
        error_before = max(error, 1e-4)
        moved = _cells(proposal, cells)
        cells = rule.remesh(moved, stages[-1, : moved.edges.size], scale)
        state = np.concatenate([cells.edges, cells.eta.ravel()])
        velocity = stages[-1] if cells is moved else flow.velocity(state, cells)


def _first_step(speed: Array, tolerance: float, longest: float) -> float:
    """Step over which the fastest edge moves by tolerance^{1/(order+1)} / 10."""
    fastest = float(np.abs(speed).max())
    first = 0.1 * tolerance ** (1 / (DOPRI5.order + 1))
    return min(longest, first / fastest) if fastest > 0 else longest


def _unstretched(cells: Cells, velocity: Array) -> float:
    """Step during which no cell with mass is stretched by more than about e^{1/2}."""
    rates = np.diff(velocity[: cells.edges.size]) / np.diff(cells.edges)
    rate = float(np.max(rates, where=cells.log_mass[0] > VOID, initial=0.0))
    return STRETCH / rate if rate > 0 else np.inf


def _stages(
    flow: Flow, state: Array, velocity: Array, h: float, cells: Cells
) -> tuple[Array, Array]:
    """Return the proposed state and the velocities (stages, state), the last one at it."""
    stages = np.empty((len(_A) + 1, state.size))
    stages[0] = velocity
    for s, row in enumerate(_A, start=1):
        point = state + h * (row @ stages[:s])
        stages[s] = flow.velocity(point, cells)
    return point, stages


def _error(proposal: Array, stages: Array, h: float, cells: Cells) -> float:
    """Largest error estimate over the edges, radians; inf if edges crossed or are not finite."""
    edges, _ = _unpack(proposal, cells)
    if not (np.isfinite(proposal).all() and (np.diff(edges) > 0).all()):
        return np.inf
    return float(np.abs(h * (_ERROR @ stages[:, : edges.size])).max())


def _extension(state: Array, stages: Array, h: float, theta: float) -> Array:
    """Evaluate the continuous extension at t + theta h."""
    weights = _DENSE @ theta ** np.arange(1, _DENSE.shape[1] + 1)
    return state + h * (weights @ stages)


def _check_step(h: float, t: float) -> None:
    if not h > SMALLEST_STEP:
        message = (
            f"step {h:.1e} at t = {t:.6g} is below {SMALLEST_STEP:.0e}: the tolerance cannot be "
            "met; loosen rtol and atol"
        )
        raise IntegrationError(message)
