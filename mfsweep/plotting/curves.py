"""Curves against time: one panel a shard, one line a beta."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from mfsweep._types import Estimator
from mfsweep.plotting.panels import Panel
from mfsweep.plotting.style import (
    MARKS,
    beta_colours,
    beta_handles,
    legend_below,
    panel_grid,
    say_in,
)

_SIZE = (2.1, 1.9)
_LOWEST = 1e-7
"""Distances below it are roundoff and stay below the axis."""
_NARROW = 0.2
"""Decades of distance that look like a linear axis."""
_TIME = r"time $t$ (dimensionless)"


def w2_curves(panels: Sequence[Panel]) -> Figure:
    """Draw W2 to the metastable target against time, the median turnaround marked.

    Parameters
    ----------
    panels
        One a shard.

    Returns
    -------
    Figure
        Lines: medians over seeds; bands: their middle half; logarithmic distance axis.
    """
    figure, axes, _ = panel_grid(panels, _SIZE)
    colours = beta_colours(panels)
    for axis, panel in zip(axes, panels, strict=False):
        draw_curve(axis, panel, "w2_metastable", colours, "-", band=True)
        _mark(axis, panel, "w2_metastable", "turnaround")
        axis.set_yscale("log")

        finish_time(axis, r"$W_2(\rho_t, \Pi_{\#}\rho_0)$ (dimensionless)")
        scale_distance(axis)
        if not np.isfinite(panel.median_event("turnaround")).any():
            say_in(axis, "no turnaround")
    band = Patch(color="0.5", alpha=0.3, lw=0, label="middle half of the seeds")
    bands = [band] if any(len(panel.shard.seeds) > 1 for panel in panels) else []
    legend_below(figure, [*beta_handles(colours), *bands, _handle("turnaround")])
    return figure


def distances(panels: Sequence[Panel]) -> Figure:
    """Draw the distances to E and to V's dominant eigenspace, the median crossover marked.

    Parameters
    ----------
    panels
        One a shard.

    Returns
    -------
    Figure
        Medians over seeds; solid: to E; dashed: to V's eigenspace of largest real part.
    """
    figure, axes, _ = panel_grid(panels, _SIZE)
    colours = beta_colours(panels)
    for axis, panel in zip(axes, panels, strict=False):
        draw_curve(axis, panel, "distance_dominant", colours, "-")
        draw_curve(axis, panel, "distance_terminal", colours, "--")
        _mark(axis, panel, "distance_dominant", "crossover")
        finish_time(axis, "rms distance (dimensionless)")
        axis.set_ylim(bottom=0.0)
        if not np.isfinite(panel.median_event("crossover")).any():
            same = "no crossover:\nboth eigenspaces coincide"
            text = same if panel.is_control else "no crossover"
            say_in(axis, text, 0.8, 0.95, 0.6, 0.4, 0.2)
    styles = [
        Line2D([], [], color="black", label=r"to $E$"),
        Line2D([], [], color="black", ls="--", label=r"to $V$'s dominant eigenspace"),
    ]
    legend_below(figure, [*beta_handles(colours), *styles, _handle("crossover")])
    return figure


def draw_curve(
    axis: Axes,
    panel: Panel,
    name: str,
    colours: dict[float, str],
    style: str,
    *,
    band: bool = False,
) -> None:
    """Draw one curve's median, and its band, for every beta."""
    time = panel.curves.time.values
    for beta, (low, middle, high) in panel.quartiles(name).items():
        if band:
            axis.fill_between(time, low, high, color=colours[beta], alpha=0.2, lw=0)
        axis.plot(time, middle, style, color=colours[beta])
    if not axis.lines:
        say_in(axis, "no cell has been measured")


def _mark(axis: Axes, panel: Panel, name: str, estimator: Estimator) -> None:
    """Mark the median event on the median curve of every beta."""
    colour, marker = MARKS[estimator]
    when = dict(zip(panel.shard.betas, panel.median_event(estimator), strict=True))
    time = panel.curves.time.values
    points = [
        (when[beta], np.interp(when[beta], time, quartiles[1]))
        for beta, quartiles in panel.quartiles(name).items()
        if np.isfinite(when[beta])
    ]
    if points:
        axis.plot(*np.transpose(points), marker, color=colour, mec="white", mew=0.5, ms=5, zorder=3)


def scale_distance(axis: Axes, lowest: float = _LOWEST) -> None:
    """Cut the logarithmic distance axis at its lowest value and put plain numbers on it."""
    low, high = axis.get_ylim()
    low = max(low, lowest)
    decades = np.log10(high / low)
    steps = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0) if decades < 0.7 else (1.0, 2.0, 5.0)
    powers = 10.0 ** np.arange(np.floor(np.log10(low)), np.log10(high) + 1.0)
    ticks = np.outer(powers, steps if decades < 2.0 else (1.0,)).ravel()
    if decades < _NARROW:
        ticks = np.array(MaxNLocator(4).tick_values(low, high))
    axis.yaxis.set_major_locator(FixedLocator(ticks[(ticks >= low) & (ticks <= high)].tolist()))
    axis.yaxis.set_major_formatter(FuncFormatter(_plain))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.set_ylim(low, high)


def _plain(value: float, _: int | None) -> str:
    """Write a tick without needless zeros."""
    power = round(np.log10(value))
    small = value < 0.01 and np.isclose(value, 10.0**power)
    return f"$10^{{{power}}}$" if small else f"{value:g}"


def _handle(estimator: Estimator) -> Line2D:
    colour, marker = MARKS[estimator]
    label = f"median {estimator}"
    return Line2D([], [], color=colour, marker=marker, ls="", mec="white", mew=0.5, label=label)


def finish_time(axis: Axes, label: str) -> None:
    """Label the axes of curves against time."""
    axis.set_xlabel(_TIME)
    axis.set_ylabel(label)
    axis.margins(x=0.0)
