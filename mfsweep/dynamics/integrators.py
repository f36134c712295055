"""Runge-Kutta methods as data, and the one driver that steps them on the sphere.

The velocity f is tangent, so the flow of x' = f(x / |x|) keeps |x|. A step of a method in R^d
followed by x -> x / |x| therefore keeps the method's order, and a first-same-as-last stage keeps
its value. Embedded pairs adapt their step to a tolerance; Euler and RK4 keep the step they are
given, as published scripts do, and their error is nobody's but the user's.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from mfsweep._errors import IntegrationError
from mfsweep._types import Array, Times, Tokens
from mfsweep.dynamics.sphere import normalise, tangent

Method = Literal["dopri5", "bs32", "euler", "rk4"]


@dataclass(frozen=True, eq=False)
class RungeKutta:
    """An explicit first-same-as-last Runge-Kutta method with a continuous extension.

    x_{n+1} = x_n + h sum_s b_s k_s,  k_s = f(x_n + h sum_r a_{sr} k_r).
    """

    name: str
    order: int
    """Order of the step that is kept."""
    a: tuple[tuple[float, ...], ...]
    """Rows of the tableau for stages 2, 3, ...; the last row is b."""
    dense: tuple[tuple[float, ...], ...]
    """x(t + theta h) = x + h sum_s k_s sum_p dense[s][p] theta^{p+1}."""
    error: tuple[float, ...] = ()
    """b - b_hat: the embedded method's difference, one weight a stage; empty: the step is fixed."""


DOPRI5 = RungeKutta(
    name="dopri5",
    order=5,
    a=(
        (1 / 5,),
        (3 / 40, 9 / 40),
        (44 / 45, -56 / 15, 32 / 9),
        (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
        (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
        (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
    ),
    error=(71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40),
    dense=(
        (
            1.0,
            -8048581381 / 2820520608,
            8663915743 / 2820520608,
            -12715105075 / 11282082432,
        ),
        (0.0, 0.0, 0.0, 0.0),
        (
            0.0,
            131558114200 / 32700410799,
            -68118460800 / 10900136933,
            87487479700 / 32700410799,
        ),
        (0.0, -1754552775 / 470086768, 14199869525 / 1410260304, -10690763975 / 1880347072),
        (
            0.0,
            127303824393 / 49829197408,
            -318862633887 / 49829197408,
            701980252875 / 199316789632,
        ),
        (0.0, -282668133 / 205662961, 2019193451 / 616988883, -1453857185 / 822651844),
        (0.0, 40617522 / 29380423, -110615467 / 29380423, 69997945 / 29380423),
    ),
)
"""Dormand and Prince, J. Comput. Appl. Math. 6 (1980); extension of order 4 by Shampine (1986)."""

BS32 = RungeKutta(
    name="bs32",
    order=3,
    a=((1 / 2,), (0.0, 3 / 4), (2 / 9, 1 / 3, 4 / 9)),
    error=(-5 / 72, 1 / 12, 1 / 9, -1 / 8),
    dense=((1.0, -4 / 3, 5 / 9), (0.0, 1.0, -2 / 3), (0.0, 4 / 3, -8 / 9), (0.0, -1.0, 1.0)),
)
"""Bogacki and Shampine, Appl. Math. Lett. 2 (1989), with cubic Hermite extension."""

EULER = RungeKutta(name="euler", order=1, a=((1.0,),), dense=((1.0,), (0.0,)))
"""x_{n+1} = x_n + h f(x_n), the step of most published scripts, with linear extension."""

RK4 = RungeKutta(
    name="rk4",
    order=4,
    a=((1 / 2,), (0.0, 1 / 2), (0.0, 0.0, 1.0), (1 / 6, 1 / 3, 1 / 3, 1 / 6)),
    dense=(
        (1.0, -3 / 2, 2 / 3),
        (0.0, 1.0, -2 / 3),
        (0.0, 1.0, -2 / 3),
        (0.0, 1 / 2, -1 / 3),
        (0.0, -1.0, 1.0),
    ),
)
"""The classical method, with cubic Hermite extension."""

METHODS: dict[str, RungeKutta] = {method.name: method for method in (DOPRI5, BS32, EULER, RK4)}

SAFETY, SHRINK_MOST, GROW_MOST = 0.9, 0.2, 5.0
SMALLEST_STEP = 1e-10


@dataclass
class StepRecord:
    """What the driver did."""

    steps: int = 0
    rejected: int = 0
    drift_evaluations: int = 0


@dataclass(frozen=True)
class StepControl:
    """How long the steps are."""

    rtol: float
    """Local error per step and token, relative to its length 1."""
    atol: float
    """The same, absolute; their sum counts."""
    longest: float
    fixed: float | None = None
    """Step of a method without error estimate."""

    @property
    def tolerance(self) -> float:
        """Largest local error of a token."""
        return self.rtol + self.atol


class State(NamedTuple):
    """An accepted state, or what it is replaced by."""

    x: Tokens
    velocity: Array
    at_rest: bool = False
    """Nothing moves any more: the run may end here."""


def integrate(
    drift: Callable[[Tokens], Array],
    x0: Tokens,
    times: Times,
    method: RungeKutta,
    *,
    control: StepControl,
    record: StepRecord,
    settle: Callable[[float, State], State] = lambda _, state: state,
) -> Iterator[Tokens]:
    """Yield the tokens at each of the given times, from x0 at time 0.

    A step h of an embedded pair is accepted when every token's error, projected to its tangent
    space, is below the tolerance, and adapted by a PI controller.

    Parameters
    ----------
    drift
        Velocity of unit vectors (n, d), tangent.
    x0
        Unit vectors at time 0, shape (n, d).
    times
        Increasing dimensionless times >= 0; values between steps come from the extension.
    method
        Which Runge-Kutta method.
    control
        Tolerances and bounds of the step.
    record
        Counts of the run, updated in place.
    settle
        Called with the time and every accepted state, which it may replace by one of fewer
        tokens, or end.

    Raises
    ------
    IntegrationError
        If the step falls below 1e-10: the tolerance cannot be met.
    """
    x = normalise(x0)
    state, t = settle(0.0, State(x, _counted(drift, x, record))), 0.0
    h = control.fixed or min(control.longest, _first_step(state.velocity, method, control))
    error_before = 1.0
    pending = iter(times)
    target = next(pending, None)
    while target is not None:
        if target <= t or state.at_rest:
            yield state.x
            target = next(pending, None)
            continue
        proposal, stages = _stages(drift, state, h, method, record)
        error = _largest_error(state.x, stages, h, method) / control.tolerance
        if not error <= 1.0:
            record.rejected += 1
            h = _shorter(h, error, method)
            if not h > SMALLEST_STEP:
                raise IntegrationError(_underflow(h, t, control))
            continue
        after = (record.steps + 1) * h if control.fixed else t + h
        while target is not None and target <= after:
            yield _extension(state.x, stages, h, (target - t) / h, method)
            target = next(pending, None)
        record.steps, t = record.steps + 1, after
        state = settle(t, State(proposal, stages[-1]))
        if not control.fixed:
            h = min(control.longest, h * growth(error, error_before, method.order))
        error_before = max(error, 1e-4)


def _underflow(h: float, t: float, control: StepControl) -> str:
    return (
        f"step {h:.1e} at t = {t:.6g} is below {SMALLEST_STEP:.0e}: rtol = {control.rtol:g} "
        "cannot be met; loosen rtol and atol"
    )


def _counted(drift: Callable[[Tokens], Array], x: Tokens, record: StepRecord) -> Array:
    record.drift_evaluations += 1
    return drift(x)


def _first_step(velocity: Array, method: RungeKutta, control: StepControl) -> float:
    """Step over which a token moves by tolerance^{1/(order+1)} at its present speed."""
    speed = float(np.linalg.norm(velocity, axis=1).max())
    return 0.1 * control.tolerance ** (1 / (method.order + 1)) / speed if speed > 0 else np.inf


def _stages(
    drift: Callable[[Tokens], Array],
    state: State,
    h: float,
    method: RungeKutta,
    record: StepRecord,
) -> tuple[Tokens, Array]:
    """Return the proposed tokens and the velocities (stages, n, d), the last one at them."""
    stages = np.empty((len(method.a) + 1, *state.x.shape))
    stages[0] = state.velocity
    for s, row in enumerate(method.a, start=1):
        point = normalise(state.x + h * np.tensordot(np.array(row), stages[:s], axes=1))
        stages[s] = _counted(drift, point, record)
    return point, stages


def _largest_error(x: Tokens, stages: Array, h: float, method: RungeKutta) -> float:
    """Largest tangential error estimate over the tokens; 0 where the method has none."""
    if not method.error:
        return 0.0
    error = tangent(x, h * np.tensordot(np.array(method.error), stages, axes=1))
    return float(np.sqrt(np.max(np.sum(error * error, axis=1))))


def _shorter(h: float, error: float, method: RungeKutta) -> float:
    """Step after a rejection, from the error over tolerance; a tenth if it is not finite."""
    if not error < np.inf:
        return 0.1 * h
    return float(h * max(SHRINK_MOST, SAFETY * error ** (-1 / method.order)))


def growth(error: float, error_before: float, order: int) -> float:
    """PI controller: factor on the step from this error and the one before, both over tolerance."""
    if error == 0.0:
        return GROW_MOST
    factor = SAFETY * error ** (-0.7 / order) * error_before ** (0.4 / order)
    return float(min(GROW_MOST, max(SHRINK_MOST, factor)))


def _extension(x: Tokens, stages: Array, h: float, theta: float, method: RungeKutta) -> Tokens:
    """Evaluate the continuous extension at t + theta h."""
    dense = np.array(method.dense)
    weights = dense @ theta ** np.arange(1, dense.shape[1] + 1)
    return normalise(x + h * np.tensordot(weights, stages, axes=1))
