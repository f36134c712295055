"""Phase-switch times: when tokens enter the metastable phase, turn around, leave and cross over.

Every event is placed between two saved times. Levels of W2 are met on log W2, nearly linear while
W2 decays or grows exponentially; its minimum is that of the parabola through log W2 at the least
saved value and its two neighbours.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from mfsweep._errors import InputError
from mfsweep._types import ESTIMATORS, Array, Estimator, Status, Times

ESS_THRESHOLD = 25.0
"""Least median effective number of attended tokens at which a particle run follows the mean field.

Of 305 events from starts spread evenly, d = 2 and 3, 95 % of those without a flag lay within 5 % of
the converged value, and 92 % of those that did not were flagged (tests/benchmarks/resolution.py).
The noise of iid starts is another matter: the seeds' interval of a law holds it.
"""
DISTANCE_FLOOR = 1e-6
"""Distances below it are decided by roundoff, by float32 storage and by the solver's tolerance."""

_ENTRY, _RISEN, _NEAR, _LEFT = np.log([0.1, 1.05, 1.01, 2.0])
_ARMED = 0.1


@dataclass(frozen=True)
class SwitchTime:
    """Hold one event: its time, the interval that brackets it, and its status.

    Parameters
    ----------
    value : float
        Dimensionless time of the event; the last saved time, a lower bound, where it is
        `censored`; NaN where it is `absent` or `missing`.
    low, high : float
        Bracket of `value`; (last saved time, inf) where it is `censored`.
    status : {"missing", "observed", "censored", "absent", "under_resolved"}
        `under_resolved` keeps its time, but finite n decides it.
    """

    value: float
    low: float
    high: float
    status: Status


@dataclass(frozen=True)
class _Minimum:
    """Least sample of y, and the parabola y_* + curvature (t - time)^2 through its neighbours."""

    index: int
    time: float
    curvature: float
    depth: float  # of the vertex below the least sample

    def half_width(self, rise: float) -> float:
        """Return how far from the vertex the parabola is `rise` above the least sample."""
        return float(np.sqrt((rise + self.depth) / self.curvature))


def switch_times(
    times: ArrayLike,
    curves: Mapping[str, ArrayLike],
    *,
    separation: float,
    ess_threshold: float = ESS_THRESHOLD,
) -> dict[Estimator, SwitchTime]:
    """Estimate the four phase-switch times of one cell.

    With W(t) = `w2_metastable`, g = `distance_dominant` - `distance_terminal`, L = `separation`:

    - entry: first t with W(t) < W(t_0) / 10. `absent` if W turned around above that level.
    - turnaround: argmin W. `observed` once W later exceeds 1.05 min W, else `censored`. `absent`
      if W rises from the first saved time on, or if min W < `DISTANCE_FLOOR`: the tokens then sit
      on the dominant eigenspace to roundoff, and whatever grows later is roundoff.
    - exit: first t after the turnaround with W(t) > 2 min W. `absent` with the turnaround, or if W
      was flat to 1 % over the last quarter below that level; else `censored`.
    - crossover: armed once g <= -0.1 L, the last zero of g before g reaches +0.1 L. `absent` if
      never armed, or if `distance_dominant` was below `DISTANCE_FLOOR` before; else `censored`.

    All but entry are `absent` where L < `DISTANCE_FLOOR`. An estimator whose curve, or whose
    `ess_median`, is not finite is `missing`. An observed event is `under_resolved` where
    `ess_median` was below `ess_threshold` at a saved time up to the first one not before it.

    Parameters
    ----------
    times : array_like, shape (time,)
        Saved times, increasing, dimensionless.
    curves : mapping of str to array_like, shape (time,)
        `w2_metastable`, `distance_dominant` and `distance_terminal`, all >= 0 in chordal units, and
        `ess_median` in [1, inf], where inf stands for the continuum. Others are ignored.
    separation : float
        L >= 0, chordal distance between the dominant eigenspaces of A and of V.
    ess_threshold : float
        Least `ess_median` of a resolved run, >= 0; 0 switches the flag off, and `ess_median` is
        not read.

    Returns
    -------
    dict of str to SwitchTime
        One entry per estimator. The bracket is the pair of saved times around the event; for
        turnaround it bounds the times at which W is within 1 % of its least saved value.

    Raises
    ------
    InputError
        If a curve is absent, negative or of another shape than `times`, if `times` do not
        increase, or if `separation` or `ess_threshold` is negative or not a number.

    Notes
    -----
    For times spaced by h the error is O(h^2); cost O(time). Phases: arXiv 2605.10931, Theorem 1
    and Conjecture 1; the estimators are this package's own.

    Examples
    --------
    >>> t = np.linspace(0.0, 20.0, 81)
    >>> w2 = np.sqrt(np.exp(-0.5 * t) + 1e-4 * np.exp(0.5 * t))
    >>> far, near = np.exp(-0.1 * t), np.full_like(t, 0.5)
    >>> curves = {"w2_metastable": w2, "distance_dominant": near, "distance_terminal": far}
    >>> switch_times(t, curves, separation=1.0, ess_threshold=0.0)["turnaround"].value
    9.21...
    """
    t = _checked_times(times)
    _check_level("separation", separation, "pass the distance between the two eigenspaces")
    _check_level("ess_threshold", ess_threshold, "pass 0 to switch the flag off")
    w2 = _checked_curve("w2_metastable", curves, t)
    dominant = _checked_curve("distance_dominant", curves, t)
    terminal = _checked_curve("distance_terminal", curves, t)
    ess = _checked_curve("ess_median", curves, t) if ess_threshold > 0 else np.full_like(t, np.inf)
    events = dict.fromkeys(ESTIMATORS, _none("missing"))
    if np.isnan(ess).any():
        return events
    if np.isfinite(w2).all():
        events.update(_w2_events(t, w2))
    if np.isfinite(dominant + terminal).all():
        events["crossover"] = _crossover(t, dominant, terminal, separation)
    for name, event in events.items():
        if event.status == "observed":
            events[name] = _flagged(event, t, ess, ess_threshold)
        if event.status != "missing" and name != "entry" and separation < DISTANCE_FLOOR:
            events[name] = _none("absent")
    return events


def _w2_events(t: Times, w2: Array) -> dict[Estimator, SwitchTime]:
    """Return entry, turnaround and exit."""
    with np.errstate(divide="ignore"):  # log 0 = -inf lies below every level, as it should
        y = np.log(w2)
    k = int(np.argmin(y))
    risen = bool(y[k:].max() > y[k] + _RISEN)
    if w2[k] < DISTANCE_FLOOR or (k == 0 and risen):
        turnaround = end = _none("absent")
    elif not risen:
        turnaround = _censored(t)
        end = _none("absent") if _settled(t, y) else _censored(t)
    else:
        minimum = _minimum(t, y, k)
        turnaround = _turnaround(t, y, minimum)
        end = _exit(t, y, minimum)
    return {"entry": _entry(t, y, turnaround), "turnaround": turnaround, "exit": end}


def _entry(t: Times, y: Array, turnaround: SwitchTime) -> SwitchTime:
    """Return the first time at which y is log(1/10) below its first value."""
    below = np.flatnonzero(y < y[0] + _ENTRY)
    if below.size and y[0] >= np.log(DISTANCE_FLOOR):
        return _between(t, y, y[0] + _ENTRY, int(below[0]))
    return _censored(t) if turnaround.status == "censored" else _none("absent")


def _minimum(t: Times, y: Array, k: int) -> _Minimum:
    """Return the parabola through samples k - 1, k, k + 1 of y, of which k is the first least."""
    left, right = np.diff(y[k - 1 : k + 2]) / np.diff(t[k - 1 : k + 2])
    curvature = (right - left) / (t[k + 1] - t[k - 1])
    slope = left + curvature * (t[k] - t[k - 1])
    return _Minimum(
        index=k,
        time=float(t[k] - slope / (2.0 * curvature)),
        curvature=float(curvature),
        depth=float(slope**2 / (4.0 * curvature)),
    )


def _turnaround(t: Times, y: Array, minimum: _Minimum) -> SwitchTime:
    """Return the minimum with the first and the last time at which y is within 1 % of it."""
    level = y[minimum.index] + _NEAR
    first, last = np.flatnonzero(y <= level)[[0, -1]]
    low, high = minimum.time - minimum.half_width(_NEAR), minimum.time + minimum.half_width(_NEAR)
    if first < minimum.index:
        low = t[0] if first == 0 else _between(t, y, level, first).value
    if last > minimum.index:
        high = t[-1] if last == t.size - 1 else _between(t, y, level, last + 1).value
    return SwitchTime(minimum.time, float(low), float(high), "observed")


def _exit(t: Times, y: Array, minimum: _Minimum) -> SwitchTime:
    """Return the first time after the minimum at which y is log(2) above it."""
    k = minimum.index
    above = k + np.flatnonzero(y[k:] > y[k] + _LEFT)
    if not above.size:
        return _none("absent") if _settled(t, y) else _censored(t)
    event = _between(t, y, y[k] + _LEFT, int(above[0]))
    if above[0] == k + 1:  # the bracket holds the minimum's own parabola
        return replace(event, value=min(minimum.time + minimum.half_width(_LEFT), event.high))
    return event


def _settled(t: Times, y: Array) -> bool:
    """Tell whether y stayed within 1 % over the last quarter of the times."""
    tail = y[t >= t[-1] - (t[-1] - t[0]) / 4.0]
    return bool(tail.size > 1 and np.ptp(tail) <= _NEAR)


def _crossover(t: Times, dominant: Array, terminal: Array, separation: float) -> SwitchTime:
    """Return the last zero of g = dominant - terminal before g reaches 0.1 L, once armed."""
    g = dominant - terminal
    armed = np.flatnonzero(g <= -_ARMED * separation)
    if not armed.size or separation < DISTANCE_FLOOR:
        return _none("absent")
    reached = armed[0] + np.flatnonzero(g[armed[0] :] >= _ARMED * separation)
    stop = int(reached[0]) if reached.size else t.size
    last = int(np.flatnonzero(g[:stop] <= 0.0)[-1])
    if dominant[: last + 1].min() < DISTANCE_FLOOR:
        return _none("absent")
    return _between(t, g, 0.0, last + 1) if reached.size else _censored(t)


def _between(t: Times, y: Array, level: float, j: int) -> SwitchTime:
    """Return where the chord of y over samples j - 1 and j meets a level, and those two times."""
    low, high = float(t[j - 1]), float(t[j])
    fraction = (level - y[j - 1]) / (y[j] - y[j - 1])
    return SwitchTime(min(low + float(fraction) * (high - low), high), low, high, "observed")


def _flagged(event: SwitchTime, t: Times, ess: Array, threshold: float) -> SwitchTime:
    """Mark an event before which too few tokens were attended to."""
    seen = ess[: np.searchsorted(t, event.value) + 1]
    return replace(event, status="under_resolved") if seen.min() < threshold else event


def _censored(t: Times) -> SwitchTime:
    return SwitchTime(float(t[-1]), float(t[-1]), np.inf, "censored")


def _none(status: Status) -> SwitchTime:
    return SwitchTime(np.nan, np.nan, np.nan, status)


def _checked_times(times: ArrayLike) -> Times:
    """Return the times as an array, or refuse them."""
    t = np.asarray(times, dtype=np.float64)
    _require(t.ndim == 1 and t.size > 0, f"times has shape {t.shape}: needs (time,), time >= 1")
    _require(bool(np.isfinite(t).all()), f"times = {t}: must be finite; drop the unsaved times")
    steps = np.diff(t, prepend=-np.inf)
    i = int(np.argmin(steps))
    _require(bool(steps[i] > 0), f"times[{i}] = {t[i]}: times must increase; sort the curves first")
    return t


def _checked_curve(name: str, curves: Mapping[str, ArrayLike], t: Times) -> Array:
    """Return one curve as an array, or refuse it."""
    known = ", ".join(sorted(curves)) or "nothing"
    _require(name in curves, f"curves[{name!r}] is absent, given: {known}; measure that curve too")
    y = np.asarray(curves[name], dtype=np.float64)
    need = f"needs {t.shape}, one value a saved time; cut it to the same times"
    _require(y.shape == t.shape, f"curves[{name!r}] has shape {y.shape}: {need}")
    least = np.fmin.reduce(y)
    _require(not least < 0, f"curves[{name!r}] falls to {least}: must be >= 0; measure it again")
    return y


def _check_level(name: str, value: float, remedy: str) -> None:
    """Refuse a negative or unbounded level."""
    _require(0.0 <= value < np.inf, f"{name} = {value}: must be finite and >= 0; {remedy}")


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise InputError(message)
