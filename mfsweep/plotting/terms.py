"""The two terms of Theorem 1 against time: one panel a shard."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from mfsweep.analysis.bound import DECAY_FROM
from mfsweep.plotting.curves import draw_curve, finish_time, scale_distance
from mfsweep.plotting.panels import Panel
from mfsweep.plotting.style import beta_colours, beta_handles, legend_below, panel_grid

_SIZE = (2.1, 1.9)
_ZERO = "black"


def bound_terms(panels: Sequence[Panel]) -> Figure:
    """Draw the stability term for every beta, and the decay of the zero-temperature flow.

    Parameters
    ----------
    panels
        One a shard.

    Returns
    -------
    Figure
        Medians over seeds. Coloured: W2 from the tokens to the zero-temperature flow (coupling);
        black: from that flow to the metastable target, with the predicted rate dashed beside it.
    """
    figure, axes, _ = panel_grid(panels, _SIZE)
    colours = beta_colours(panels)
    for axis, panel in zip(axes, panels, strict=False):
        draw_curve(axis, panel, "w2_stability", colours, "-")
        _zero_temperature(axis, panel)
        axis.set_yscale("log")
        finish_time(axis, "distance (dimensionless)")
        scale_distance(axis, lowest=1e-3)
    styles = [
        Line2D([], [], color=_ZERO, lw=1.6, label="zero-temperature flow to the target"),
        Line2D([], [], color="none", label=r"coloured: tokens to the zero-temperature flow"),
    ]
    if any(np.isfinite(panel.bound.predicted_decay_rate) for panel in panels):
        styles.insert(1, Line2D([], [], color=_ZERO, ls="--", label="predicted decay"))
    legend_below(figure, [*beta_handles(colours), *styles])
    return figure


def _zero_temperature(axis: Axes, panel: Panel) -> None:
    """Draw the second term, and its predicted rate through where it starts to hold."""
    median = next(iter(panel.quartiles("w2_zero_temperature").values()), None)
    if median is None:
        return
    time, curve = panel.curves.time.values, median[1]
    axis.plot(time, curve, color=_ZERO, lw=1.6)
    predicted, low = panel.bound.predicted_decay_rate.item(), curve < DECAY_FROM * curve[0]
    if np.isfinite(predicted) and low.any():
        start = int(low.argmax())
        y = curve[start] * np.exp(-predicted * (time[start:] - time[start]))
        axis.plot(time[start:], y, color=_ZERO, ls="--", lw=1.0)
