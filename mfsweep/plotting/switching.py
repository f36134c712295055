"""Switch times against log beta, with the laws fitted to them."""

from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from mfsweep._types import ESTIMATORS, LAW_STATUSES, Array, Estimator, Status
from mfsweep.plotting.panels import Panel, flagged
from mfsweep.plotting.style import MARKS, MAX_PANELS, legend_below, panel_grid, say_in

ARROW = r"$\uparrow$"
"""Marker of a censored cell, at its lower bound."""
_SIZE = (3.4, 2.3)
_ENTRY_HEIGHT = 0.18  # of one line of a legend, in inches
_SHIFT = {"entry": -0.75, "turnaround": -0.25, "exit": 0.25, "crossover": 0.75}
"""Where an estimator's points lie beside their beta, in units of the room that it has."""
_DRAWN = ("fitted", "under_resolved", "few_seeds")
"""Statuses of a law that is drawn."""
_PREFERRED_BY = 2.0
"""Difference in AIC from which one law is said to be preferred."""


def switch_times(panels: Sequence[Panel]) -> Figure:
    """Draw the switch times of every cell, the fitted laws and the predicted slope.

    Parameters
    ----------
    panels
        One a shard.

    Returns
    -------
    Figure
        Filled: observed; open: decided by finite n; arrows: censored, a lower bound. Solid: the
        law in log beta; dotted: the law in beta where AIC prefers it; dashed: predicted slope.
        Laws on fewer than four betas are not drawn.
    """
    lines = [
        {name: _laws(panel, name) for name in ESTIMATORS if _seen(panel, name)} for panel in panels
    ]
    entries = [sum(1 + len(laws) for laws in of_panel.values()) for of_panel in lines]
    below = [_ENTRY_HEIGHT * (count + 2) for count in entries[:MAX_PANELS]]
    figure, axes, rooms = panel_grid(panels, _SIZE, below)
    for axis, room, panel, of_panel in zip(axes, rooms, panels, lines, strict=False):
        for name, laws in of_panel.items():
            _points(axis, panel, name)
            for line in laws:
                axis.add_line(line)
        _finish(axis, panel)
        if of_panel:
            handles = [
                handle
                for name, laws in of_panel.items()
                for handle in (_counts_handle(panel, name), *laws)
            ]
            room.legend(handles=handles, loc="upper left").set_in_layout(False)
        if panel.is_control:
            say_in(axis, "no turnaround, exit or crossover:\nboth eigenspaces coincide", 0.8)
        elif not of_panel:
            say_in(axis, "no event in any cell:\n" + counted(panel, "turnaround"))
    legend_below(figure, _key())
    return figure


def _seen(panel: Panel, estimator: Estimator) -> bool:
    """Tell whether there is anything to draw: an event, or a bound on one that matters."""
    status = panel.events(estimator)[1]
    bounds = estimator in ("turnaround", "crossover") and flagged(status, "censored").any()
    return bool(bounds or flagged(status, "observed", "under_resolved").any())


def _points(axis: Axes, panel: Panel, estimator: Estimator) -> None:
    """Draw one point a cell, the seeds side by side around their beta."""
    value, status = panel.events(estimator)
    colour, marker = MARKS[estimator]
    x = _beside(panel, estimator)
    looks: dict[Status, tuple[str, str, float]] = {
        "observed": (marker, colour, 3.0),
        "under_resolved": (marker, "white", 3.0),
        "censored": (ARROW, colour, 7.0),
    }
    for name, (shape, face, size) in looks.items():
        cells = flagged(status, name) & np.isfinite(x)
        if cells.any():
            (points,) = axis.plot(x[cells], value[cells], ls="", color=colour, marker=shape)
            points.set(mfc=face, ms=size, mew=0.6, label=f"{estimator}, {name}")


def _beside(panel: Panel, estimator: Estimator) -> Array:
    """Return the abscissae of every cell, shape (beta, seed)."""
    beta = np.array(panel.shard.betas)
    finite = beta[np.isfinite(beta)]
    room = 0.4 * min(1.0, np.log(finite[1:] / finite[:-1]).min()) if len(finite) > 1 else 0.1
    count = len(panel.shard.seeds)
    seeds = np.linspace(-0.2, 0.2, count) if count > 1 else np.zeros(1)
    x: Array = beta[:, None] * np.exp(room * (_SHIFT[estimator] + seeds))[None, :]
    return x


def _laws(panel: Panel, estimator: Estimator) -> list[Line2D]:
    """Return the law in log beta, that in beta if AIC prefers it, and the predicted slope."""
    beta = np.array([beta for beta in panel.shard.betas if np.isfinite(beta)])
    laws = panel.laws.sel(estimator=estimator)
    log, linear = laws.sel(law="log"), laws.sel(law="linear")
    if LAW_STATUSES[int(log.status)] not in _DRAWN:
        return []
    x, colour = np.geomspace(beta.min(), beta.max(), 100), MARKS[estimator][0]
    y = log.intercept.item() + log.slope.item() * np.log(x)
    label = rf"{_slope(log)} per unit of $\log\beta$"
    drawn = [Line2D(x, y, color=colour, label=label)]
    if linear.aic < log.aic - _PREFERRED_BY:
        y = linear.intercept.item() + linear.slope.item() * x
        label = rf"{_slope(linear)} per unit of $\beta$, by AIC"
        drawn += [Line2D(x, y, color=colour, ls=":", label=label)]
    if np.isfinite(predicted := log.predicted_slope.item()):
        centre, height = _centre(panel, estimator)
        y = height + predicted * (np.log(x) - centre)
        label = rf"predicted slope {predicted:.3g} per unit of $\log\beta$"
        drawn += [Line2D(x, y, color="black", ls="--", lw=1.0, label=label)]
    return drawn


def _centre(panel: Panel, estimator: Estimator) -> tuple[float, float]:
    """Return the mean log beta and the mean time of the cells that have an event."""
    value, status = panel.events(estimator)
    beta = np.broadcast_to(np.array(panel.shard.betas)[:, None], value.shape)
    seen = flagged(status, "observed", "under_resolved") & np.isfinite(beta)
    return float(np.log(beta[seen]).mean()), float(value[seen].mean())


def _slope(law: xr.Dataset) -> str:
    slope, low, high = (law[name].item() for name in ("slope", "slope_low", "slope_high"))
    interval = f" [{low:.3g}, {high:.3g}]" if np.isfinite(low) else ""
    return f"slope {slope:.3g}{interval}".replace("-", "\N{MINUS SIGN}")


def _counts_handle(panel: Panel, estimator: Estimator) -> Line2D:
    """Return a legend entry that counts the cells."""
    colour, marker = MARKS[estimator]
    label = f"{estimator}: {counted(panel, estimator)}"
    return Line2D([], [], color=colour, marker=marker, ms=3, ls="", label=label)


def counted(panel: Panel, estimator: Estimator) -> str:
    """Count an estimator's cells by status, leaving out what does not occur."""
    status = panel.events(estimator)[1]
    order: tuple[Status, ...] = ("observed", "censored", "under_resolved", "absent", "missing")
    counts = {name: int(flagged(status, name).sum()) for name in order}
    return ", ".join(f"{n} {name.replace('_', '-')}" for name, n in counts.items() if n)


def _finish(axis: Axes, panel: Panel) -> None:
    finite = [beta for beta in panel.shard.betas if np.isfinite(beta)]
    axis.set_xlabel(r"inverse temperature $\beta$ (dimensionless, log axis)")
    axis.set_ylabel("switch time (dimensionless)")
    axis.set_ylim(0.0, 1.08 * panel.curves.time.values[-1])
    if not finite:
        say_in(axis, "no finite beta")
        return
    axis.set_xscale("log")
    axis.set_xlim(finite[0] / 1.5, finite[-1] * 1.5)
    ticks = np.unique(np.linspace(0, len(finite) - 1, min(len(finite), 7)).round().astype(int))
    axis.xaxis.set_major_locator(FixedLocator([finite[i] for i in ticks]))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda beta, _: f"{beta:.4g}"))


def _key() -> list[Line2D]:
    """Return the legend entries that hold in every panel."""
    return [
        _point("observed", "o", "0.3"),
        _point("under-resolved: decided by finite $n$", "o", "white"),
        _point("censored: happens later than this", ARROW, "0.3"),
        Line2D([], [], color="black", ls="--", label=r"predicted slope $|B^\top e|/(2\gamma)$"),
    ]


def _point(label: str, marker: str, face: str) -> Line2D:
    return Line2D([], [], marker=marker, color="0.3", mfc=face, ms=5, ls="", label=label)
