"""What was found, in words."""

from collections.abc import Iterator, Sequence

import numpy as np
import xarray as xr

from mfsweep._types import LAW_STATUSES, STATUSES, Estimator
from mfsweep.analysis.laws import MIN_BETAS, MIN_SEEDS
from mfsweep.plotting.panels import Panel, flagged, place
from mfsweep.sweep.layout import RESOLVED

LAW_WORDS = dict(
    zip(
        LAW_STATUSES,
        (
            "not computed",
            "fitted",
            "fitted, but finite n decides some of the cells",
            f"too few betas with an event ({MIN_BETAS} needed)",
            f"too few seeds ({MIN_SEEDS} needed): the interval is rough",
            "no slope: wherever the event can happen, it lies past the last time",
            "no slope: the event does not happen",
            "no slope: the likelihood has no isolated maximum",
        ),
        strict=True,
    )
)
"""Each status of a law in words."""
_TOLD: tuple[Estimator, ...] = ("turnaround", "crossover")
ALIGNED = 1e-9
"""Delta below which e counts as an eigenvector of B^T."""
TOLD_APART = 2.0
"""Difference in AIC from which one law counts as preferred."""


def number(value: float, digits: int = 4) -> str:
    """Write a number; an en dash where there is none.

    >>> number(3.87654), number(float("nan"))
    ('3.877', '–')
    """
    if np.isnan(value):
        return "–"  # noqa: RUF001
    text = f"{value:.{digits}g}"
    return text.replace("inf", "∞").replace("-", "−")  # noqa: RUF001


def interval(law: xr.Dataset, digits: int = 4) -> str:
    """Write the 95 % interval of a slope.

    >>> interval(xr.Dataset({"slope_low": 1.0, "slope_high": 2.5}))
    '[1, 2.5]'
    """
    low, high = law.slope_low.item(), law.slope_high.item()
    return "–" if np.isnan(low) else f"[{number(low, digits)}, {number(high, digits)}]"  # noqa: RUF001


def counts(law: xr.Dataset) -> dict[str, int]:
    """Return the number of cells by status, in the order of STATUSES."""
    return dict(zip(STATUSES, law.counts.values.tolist(), strict=True))


def verdict(law: xr.Dataset) -> str:
    """Say what became of one law: its status, and whether the prediction lies in the interval."""
    words = LAW_WORDS[LAW_STATUSES[int(law.status)]]
    predicted, low, high = (law[f].item() for f in ("predicted_slope", "slope_low", "slope_high"))
    if np.isnan([predicted, low, high]).any():
        return words
    inside = low <= predicted <= high
    return f"{words}; the predicted slope lies {'inside' if inside else 'outside'} the interval"


def preferred(laws: xr.Dataset) -> str:
    """Say which law the evidence prefers; laws of one estimator, dim law.

    Where cells are under-resolved, the beta without such cells speak first, and what all cells
    would have said is told beside it.
    """
    every, resolved = _preference(laws, ""), _preference(laws, RESOLVED)
    under_resolved = counts(laws.isel(law=0))["under_resolved"]
    if not under_resolved or not every:
        return every
    betas = laws[RESOLVED + "betas"].values[0]
    if not resolved:
        return f"{every}, but not one law can be fitted to the {betas} beta that are resolved"
    word = "likewise" if resolved.partition(" (")[0] == every.partition(" (")[0] else "otherwise"
    return (
        f"At the {betas} beta where every cell is resolved {resolved}; all cells, resolved or not, "
        f"say {word}: {every}"
    )


def _preference(laws: xr.Dataset, cells: str) -> str:
    """Say which law all cells, or the resolved ones, prefer; nothing where one has no AIC."""
    log, linear = (laws[cells + "aic"].sel(law=name).item() for name in ("log", "linear"))
    if np.isnan(log) or np.isnan(linear):
        return ""
    apart = number(abs(log - linear), 3)
    if abs(log - linear) < TOLD_APART:
        return f"AIC cannot tell the two laws apart (difference {apart})"
    better = "log beta" if log < linear else "beta"
    share = laws[cells + "evidence"].max().item()
    return f"AIC prefers the law in {better} (by {apart}, {share:.0%} of the evidence)"


def alignment(misalignment: float) -> str:
    """Say which law the mean field's crossover can follow; nothing where Delta is not known.

    >>> alignment(0.0).partition(":")[0]
    'Delta = 0'
    """
    if np.isnan(misalignment):
        return ""
    if abs(misalignment) < ALIGNED:
        return "Delta = 0: e is an eigenvector of Bᵀ, so that the crossover can follow log beta."
    return (
        f"Delta = |Bᵀe| − ⟨e, Be⟩ = {number(misalignment, 3)} is not 0: as n grows, the crossover "  # noqa: RUF001
        "comes to grow in proportion to beta, since ever fewer tokens hold the cluster at E."
    )


def summary(panels: Sequence[Panel]) -> str:
    """Say in one paragraph how often the prediction held and whether the controls are quiet."""
    laws = [panel.laws.sel(estimator="turnaround", law="log") for panel in panels]
    testable = [
        law for law in laws if np.isfinite(law.predicted_slope) & np.isfinite(law.slope_low)
    ]
    inside = [law for law in testable if law.slope_low <= law.predicted_slope <= law.slope_high]
    clean = [law for law in inside if LAW_STATUSES[int(law.status)] == "fitted"]
    text = [
        f"The predicted slope of the turnaround against log beta, |Bᵀe| / (2 gap), lies inside the "
        f"fitted 95 % interval in {len(inside)} of the {len(testable)} shards where it can be "
        f"tested; {len(clean)} of these fits are free of reservations."
        if testable
        else "No shard has a fitted turnaround law with an interval to test the prediction against."
    ]
    controls = [panel for panel in panels if panel.is_control]
    loud = [
        place(p.shard)
        for p in controls
        if not flagged(p.events("crossover")[1], "absent", "missing").all()
    ]
    if loud:
        text.append(f"A control reports a crossover, which must not be: {'; '.join(loud)}.")
    elif controls:
        text.append(f"The {len(controls)} control shards report no crossover, as they must.")
    return " ".join(text)


def findings(panels: Sequence[Panel]) -> Iterator[str]:
    """Yield a sentence or a few for turnaround and crossover of every shard that can switch."""
    for panel in panels:
        if panel.is_control:
            yield f"{place(panel.shard)}: the control; both eigenspaces coincide, nothing switches."
            continue
        for estimator in _TOLD:
            found = _finding(panel.laws.sel(estimator=estimator), estimator)
            yield f"{place(panel.shard)}: {found}"
        if violated := panel.weights.assumptions().violated:
            unmet = f"Assumption 1 does not hold ({'; '.join(violated)}): no slope is predicted."
            yield f"{place(panel.shard)}: {unmet}"
        elif told := alignment(panel.laws.misalignment.item()):
            yield f"{place(panel.shard)}: {told}"


def _finding(laws: xr.Dataset, estimator: Estimator) -> str:
    log = laws.sel(law="log")
    return " ".join([_growth(log, estimator), *_reservations(laws)])


def _growth(law: xr.Dataset, estimator: Estimator) -> str:
    slope, predicted = law.slope.item(), law.predicted_slope.item()
    if np.isnan(slope):
        return f"the {estimator} has {LAW_WORDS[LAW_STATUSES[int(law.status)]]}."
    grows = "grows" if slope >= 0 else "changes"
    text = f"the {estimator} {grows} by {number(slope, 3)} {interval(law, 3)} per unit of log beta"
    if np.isnan(predicted):
        return f"{text}."
    low, high = law.slope_low.item(), law.slope_high.item()
    held = f"which lies {'inside' if low <= predicted <= high else 'outside'} the interval"
    return f"{text}; predicted {number(predicted, 3)}{'' if np.isnan(low) else f', {held}'}."


def _reservations(laws: xr.Dataset) -> Iterator[str]:
    law = laws.sel(law="log")
    found = counts(law)
    total = sum(found.values())
    if better := preferred(laws):
        yield f"{better}."
    if found["under_resolved"]:
        why = (
            "two meshes disagree by more than 1 %, so the slope is rough."
            if np.isinf(laws.n_tokens)
            else "finite n decides them, so the slope is not that of the mean field."
        )
        yield f"{found['under_resolved']} of {total} cells are under-resolved: {why}"
    if found["censored"]:
        yield f"{found['censored']} of {total} cells are censored: they count as lower bounds."
    if found["missing"]:
        yield f"{found['missing']} of {total} cells are missing."
    if LAW_STATUSES[int(law.status)] in ("few_betas", "few_seeds"):
        yield f"Reservation: {LAW_WORDS[LAW_STATUSES[int(law.status)]]}."
