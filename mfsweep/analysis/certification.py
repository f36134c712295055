"""Switch times of a run whose discretisation error is known from a coarser one."""

from dataclasses import replace

from mfsweep.analysis.switching import SwitchTime

RESOLVED = 0.01
"""Largest difference between two resolutions of a resolved event, relative to its time."""


def certified(fine: SwitchTime, coarse: SwitchTime) -> SwitchTime:
    """Widen an event by its difference from that of a coarser run.

    Parameters
    ----------
    fine, coarse
        The same event of two runs.

    Returns
    -------
    SwitchTime
        The finer run's, its interval widened to hold both values. `under_resolved` where they
        differ by more than 1 %, or where one run only has the event, whose time is then kept;
        `censored` where one is censored and the other absent: neither has it by the last time.

    Examples
    --------
    >>> certified(SwitchTime(8.0, 7.5, 8.5, "observed"), SwitchTime(9.0, 8.5, 9.5, "observed"))
    SwitchTime(value=8.0, low=7.0, high=9.0, status='under_resolved')
    """
    observed = [event for event in (fine, coarse) if event.status == "observed"]
    if len(observed) == 2:
        error = abs(fine.value - coarse.value)
        low, high = min(fine.low, fine.value - error), max(fine.high, fine.value + error)
        resolved = error <= RESOLVED * fine.value
        return SwitchTime(fine.value, low, high, "observed" if resolved else "under_resolved")
    if observed:
        return replace(observed[0], status="under_resolved")
    return coarse if coarse.status == "censored" else fine
