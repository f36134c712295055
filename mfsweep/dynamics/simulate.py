"""One run of the token dynamics."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mfsweep._errors import InputError
from mfsweep._types import Array, Masses, Times, Tokens
from mfsweep.dynamics.coarsen import coarsen, single_tokens
from mfsweep.dynamics.drift import attend, check_tokens, zero_temperature_drift
from mfsweep.dynamics.integrators import (
    METHODS,
    Method,
    State,
    StepControl,
    StepRecord,
    integrate,
)
from mfsweep.dynamics.kernels import TILE
from mfsweep.dynamics.rest import at_rest
from mfsweep.dynamics.sphere import tangent
from mfsweep.dynamics.tiles import neighbour_tree
from mfsweep.dynamics.weights import Weights

LONGEST_STEP = 1.5
"""Longest step in units of 1 / |V|_2: an offset then grows per step with a relative error of at
most 3e-4, whatever its size."""

MERGE_RADIUS = 1e-6
"""Chordal distance within which tokens that have come together move as one."""
HOUSEKEEPING = 8
"""Accepted steps between looks at which tokens are neighbours, move as one, or rest."""


Keep = Callable[[Tokens], None]
"""Takes the tokens (n, d) at the next saved time."""


@dataclass(frozen=True)
class Stats:
    """Counts of one run."""

    steps: int
    rejected: int
    drift_evaluations: int
    pairs_computed: int
    pairs_skipped: int
    stop_reason: str


@dataclass(frozen=True, eq=False)
class Trajectory:
    """Tokens at the saved times."""

    times: Times
    """Dimensionless, shape (time,)."""
    tokens: Array
    """Unit vectors, shape (time, n, d); (0, n, d) where `keep` took them."""
    mass: Masses
    """Sum 1, shape (n,)."""
    ess_median: Array
    """Median over tokens of the softmax weights' effective sample size, shape (time,); NaN at
    beta = inf, where no average is taken."""
    ess_min: Array
    """Least effective sample size over tokens, shape (time,)."""
    stats: Stats


class _Flow:
    """Drift of tokens that may move as one, with their resolution at the accepted steps."""

    def __init__(self, x: Tokens, weights: Weights, beta: float, mass: Masses) -> None:
        self.weights, self.beta = weights, beta
        self.clusters = single_tokens(mass)
        self.tree = neighbour_tree(x, TILE)
        self.pairs = self.skipped = 0
        self.latest = np.full(len(x), np.nan)
        self.resolution: list[tuple[float, float, float]] = []

    def drift(self, x: Tokens) -> Array:
        if math.isinf(self.beta):
            return zero_temperature_drift(x, self.weights)
        mass, square = self.clusters.mass, self.clusters.square
        push, self.latest, pairs = attend(x, self.weights, self.beta, mass, square, tree=self.tree)
        self.pairs += pairs
        self.skipped += len(self.clusters.member) ** 2 - pairs
        return tangent(x, push)

    def note(self, t: float) -> None:
        """Record the resolution; the latest drift was evaluated at time t."""
        ess = self.latest[self.clusters.member]
        self.resolution.append((t, float(np.median(ess)), float(ess.min())))

    def resolution_at(self, times: Times) -> tuple[Array, Array]:
        """Interpolate median and least ess from the accepted steps to the given times."""
        t, median, least = np.array(self.resolution).T
        return np.interp(times, t, median), np.interp(times, t, least)


def simulate(
    x0: Tokens,
    weights: Weights,
    beta: float,
    *,
    times: Times,
    mass: Masses | None = None,
    method: Method = "dopri5",
    rtol: float = 1e-6,
    atol: float = 1e-9,
    step: float | None = None,
    merge_radius: float = MERGE_RADIUS,
    keep: Keep | None = None,
) -> Trajectory:
    """Integrate the tokens from x0 at time 0 and keep them at the given times.

    dx_i/dt = P_{x_i} V m_i (see `softmax_drift`), or the zero-temperature flow at beta = inf.

    Parameters
    ----------
    x0
        Initial tokens, unit vectors, shape (n, d).
    weights
        V and B, each (d, d).
    beta
        Inverse temperature, dimensionless, >= 0; math.inf for the zero-temperature flow.
    times
        Increasing dimensionless times >= 0, shape (time,).
    mass
        Masses > 0, shape (n,), scaled to sum 1; 1/n each if left out.
    method
        "dopri5", an embedded pair of order 5(4), or "bs32", of order 3(2); "euler" or "rk4" keep
        the step they are given.
    rtol, atol
        Local error of every token per step, relative to its length 1, and absolute; their sum
        counts, for "dopri5" and "bs32". atol is also how near to V's dominant eigenvector every
        token must be proven to stay for a run to end early, with every method; 0: never.
    step
        Dimensionless step of "euler" and "rk4", and of no other method.
    merge_radius
        Tokens that have come together within this chordal distance move as one, with every method;
        each keeps its saved position up to it. 0 for none.
    keep
        Called with the tokens (n, d) at each of the times, in order and as the integration goes;
        the trajectory then holds none.

    Returns
    -------
    Trajectory
        Tokens (time, n, d) on the sphere, in the order of x0.

    Raises
    ------
    InputError
        If an argument is out of range.
    IntegrationError
        If the step underflows.

    Notes
    -----
    Deterministic. No adapted step is longer than 1.5 / |V|_2, so that offsets far below the
    tolerance, such as a metastable cluster's from E, still grow at their true rate. The run ends
    early only where every token is proven to stay within atol of V's dominant eigenvector (see
    `at_rest`), and says so in the stop reason. If n is small, single tokens rather than the
    density decide late events: see ess_median. Source: arXiv 2605.10931.

    >>> weights = Weights(np.diag([1.0, 0.5]), np.eye(2))
    >>> run = simulate(np.array([[0.6, 0.8]]), weights, 8.0, times=np.array([0.0, 50.0]))
    >>> np.round(run.tokens[-1], 6)
    array([[1., 0.]])
    """
    x0, mass = check_tokens(x0, weights, mass)
    times = check_times(times)
    _check_solver(beta, method, rtol, atol, step, merge_radius)
    flow, record = _Flow(x0, weights, beta, mass), StepRecord()
    norm = max(float(np.linalg.norm(weights.V, 2)), np.finfo(float).tiny)
    control = StepControl(rtol, atol, LONGEST_STEP / norm, step)
    settle = _Settling(flow, record, merge_radius, atol)
    states = integrate(
        flow.drift,
        x0,
        times,
        METHODS[method],
        control=control,
        record=record,
        settle=settle,
    )
    tokens = np.empty((0 if keep else len(times), *x0.shape))
    for k, x in enumerate(states):
        if keep:
            keep(x[flow.clusters.member])
        else:
            tokens[k] = x[flow.clusters.member]
    median, least = flow.resolution_at(times)
    stats = Stats(
        record.steps,
        record.rejected,
        record.drift_evaluations,
        flow.pairs,
        flow.skipped,
        settle.stop_reason,
    )
    return Trajectory(times, tokens, mass, median, least, stats)


class _Settling:
    """What happens at accepted steps: neighbours are found again, tokens merge, the run may end."""

    def __init__(self, flow: _Flow, record: StepRecord, radius: float, delta: float) -> None:
        self.flow, self.record, self.radius, self.delta = flow, record, radius, delta
        self.stop_reason = "reached the last time"

    def __call__(self, t: float, state: State) -> State:
        flow = self.flow
        flow.note(t)
        if math.isinf(flow.beta) or self.record.steps % HOUSEKEEPING != HOUSEKEEPING - 1:
            return state
        x, clusters = state.x, flow.clusters
        if self.radius > 0:
            x, clusters = coarsen(state.x, state.velocity, flow.clusters, self.radius)
        flow.tree = neighbour_tree(x, TILE)
        if len(x) < len(state.x):
            flow.clusters = clusters
            self.record.drift_evaluations += 1
            state = State(x, flow.drift(x))
        if at_rest(x, flow.clusters.mass, flow.weights, flow.beta, self.delta):
            self.stop_reason = (
                f"every token rests within {self.delta:g} of V's dominant eigenvector"
            )
            return state._replace(at_rest=True)
        return state


def check_times(times: Times) -> Times:
    """Return the times as float64, or refuse them."""
    times = np.asarray(times, dtype=np.float64)
    if times.ndim != 1 or len(times) == 0 or not np.isfinite(times).all():
        message = f"times has shape {times.shape}: expected (time,) with finite values"
        raise InputError(message)
    if times[0] < 0 or (np.diff(times) <= 0).any():
        message = "times must be >= 0 and strictly increasing; sort them and drop duplicates"
        raise InputError(message)
    return times


def _check_solver(
    beta: float, method: str, rtol: float, atol: float, step: float | None, merge_radius: float
) -> None:
    if not beta >= 0:
        message = f"beta = {beta}: must be >= 0, or inf for the zero-temperature flow"
        raise InputError(message)
    if method not in METHODS:
        message = f"method = {method!r}: choose one of {sorted(METHODS)}"
        raise InputError(message)
    if not (0 < rtol < 1 and 0 <= atol < 1):
        message = f"rtol = {rtol}, atol = {atol}: need 0 < rtol < 1 and 0 <= atol < 1"
        raise InputError(message)
    fixed = not METHODS[method].error
    if fixed != (step is not None) or (step is not None and not 0 < step < math.inf):
        message = f"step = {step}: euler and rk4 need a finite step > 0, other methods none"
        raise InputError(message)
    if not 0 <= merge_radius < 1:
        message = f"merge_radius = {merge_radius}: must be >= 0 and below 1; 0 switches merging off"
        raise InputError(message)


def compile_kernels(d: int) -> None:
    """Compile what runs in dimension d need, or load it from the cache beside the modules."""
    mass, weights = np.full(2 * TILE, 0.5 / TILE), Weights(np.eye(d), np.eye(d))
    for half in (1e-3, 3.0):  # a cluster, and tokens that are spread
        x = np.zeros((len(mass), d))
        angle = np.linspace(-half, half, len(mass))
        x[:, 0], x[:, 1] = np.cos(angle), np.sin(angle)
        attend(x, weights, 1.0, mass)
    coarsen(x, np.zeros_like(x), single_tokens(mass), 0.5)
