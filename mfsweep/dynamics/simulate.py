"""One run of the token dynamics."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mfsweep._errors import InputError
from mfsweep._types import Array, Masses, Times, Tokens
from mfsweep.dynamics.drift import attend, check_tokens, zero_temperature_drift
from mfsweep.dynamics.integrators import METHODS, Method, StepRecord, integrate
from mfsweep.dynamics.kernels import neighbour_order
from mfsweep.dynamics.sphere import tangent
from mfsweep.dynamics.weights import Weights

LONGEST_STEP = 1.5
"""Longest step in units of 1 / |V|_2: an offset then grows per step with a relative error of at
most 3e-4, whatever its size."""


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
    """Unit vectors, shape (time, n, d)."""
    mass: Masses
    """Sum 1, shape (n,)."""
    ess_median: Array
    """Median over tokens of the softmax weights' effective sample size, shape (time,); NaN at
    beta = inf, where no average is taken."""
    ess_min: Array
    """Least effective sample size over tokens, shape (time,)."""
    stats: Stats


class _Flow:
    """Drift of tokens kept in neighbour order, with its resolution at the accepted steps."""

    def __init__(self, x: Tokens, weights: Weights, beta: float, mass: Masses) -> None:
        self.order = neighbour_order(x)
        self.back = np.argsort(self.order)
        self.weights, self.beta, self.mass = weights, beta, mass[self.order]
        self.pairs = self.skipped = 0
        self.latest = np.full(len(x), np.nan)
        self.resolution: list[tuple[float, float, float]] = []

    def drift(self, x: Tokens) -> Array:
        if math.isinf(self.beta):
            return zero_temperature_drift(x, self.weights)
        average, self.latest, pairs = attend(x, self.weights, self.beta, self.mass)
        self.pairs += pairs
        self.skipped += len(x) ** 2 - pairs
        return tangent(x, average @ self.weights.V.T)

    def accepted(self, t: float) -> None:
        self.resolution.append((t, float(np.median(self.latest)), float(self.latest.min())))

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
        "dopri5", an embedded pair of order 5(4), or "bs32", of order 3(2).
    rtol, atol
        Local error of every token per step, relative to its length 1, and absolute; their sum
        counts.

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
    Deterministic. No step is longer than 1.5 / |V|_2, so that offsets far below the tolerance,
    such as a metastable cluster's from E, still grow at their true rate. If n is small, single
    tokens rather than the density decide late events: see ess_median. Source: arXiv 2605.10931.

    >>> weights = Weights(np.diag([1.0, 0.5]), np.eye(2))
    >>> run = simulate(np.array([[0.6, 0.8]]), weights, 8.0, times=np.array([0.0, 50.0]))
    >>> np.round(run.tokens[-1], 6)
    array([[1., 0.]])
    """
    x0, mass = check_tokens(x0, weights, mass)
    times = _check_times(times)
    _check_solver(beta, method, rtol, atol)
    flow, record = _Flow(x0, weights, beta, mass), StepRecord()
    tokens = np.empty((len(times), *x0.shape))
    for k, x in enumerate(_run(flow, x0, times, method, rtol, atol, record)):
        tokens[k] = x
    median, least = flow.resolution_at(times)
    stats = Stats(
        record.steps,
        record.rejected,
        record.drift_evaluations,
        flow.pairs,
        flow.skipped,
        "reached the last time",
    )
    return Trajectory(times, tokens, mass, median, least, stats)


def _run(
    flow: _Flow,
    x0: Tokens,
    times: Times,
    method: Method,
    rtol: float,
    atol: float,
    record: StepRecord,
) -> Iterator[Tokens]:
    """Yield the tokens at the given times in the order of x0."""
    longest = LONGEST_STEP / max(float(np.linalg.norm(flow.weights.V, 2)), np.finfo(float).tiny)
    states = integrate(
        flow.drift,
        x0[flow.order],
        times,
        METHODS[method],
        rtol=rtol,
        atol=atol,
        max_step=longest,
        record=record,
        accepted=flow.accepted,
    )
    for x in states:
        yield x[flow.back]


def _check_times(times: Times) -> Times:
    times = np.asarray(times, dtype=np.float64)
    if times.ndim != 1 or len(times) == 0 or not np.isfinite(times).all():
        message = f"times has shape {times.shape}: expected (time,) with finite values"
        raise InputError(message)
    if times[0] < 0 or (np.diff(times) <= 0).any():
        message = "times must be >= 0 and strictly increasing; sort them and drop duplicates"
        raise InputError(message)
    return times


def _check_solver(beta: float, method: str, rtol: float, atol: float) -> None:
    if not beta >= 0:
        message = f"beta = {beta}: must be >= 0, or inf for the zero-temperature flow"
        raise InputError(message)
    if method not in METHODS:
        message = f"method = {method!r}: choose one of {sorted(METHODS)}"
        raise InputError(message)
    if not (0 < rtol < 1 and 0 <= atol < 1):
        message = f"rtol = {rtol}, atol = {atol}: need 0 < rtol < 1 and 0 <= atol < 1"
        raise InputError(message)
