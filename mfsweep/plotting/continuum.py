"""Particles beside the continuum: switch times by number of tokens, and the tokens needed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from numpy.typing import NDArray

from mfsweep._types import Array, Estimator
from mfsweep.analysis.certification import RESOLVED
from mfsweep.plotting.panels import Panel
from mfsweep.plotting.style import columns_of, legend_below, say_in

COMPARED: tuple[Estimator, ...] = ("crossover", "turnaround")
_SIZE = (1.6, 1.6)


@dataclass(frozen=True, eq=False)
class Comparison:
    """The shards of one (family, d, gap): particles by ascending n, and the continuum."""

    particles: tuple[Panel, ...]
    continuum: Panel

    @property
    def betas(self) -> Array:
        """Finite betas of the continuum, shape (beta,)."""
        return np.array([beta for beta in self.continuum.shard.betas if np.isfinite(beta)])

    def times(self, panel: Panel, estimator: Estimator) -> Array:
        """Return a panel's median times at `betas`: inf if censored, NaN if none, (beta,)."""
        known = dict(zip(panel.shard.betas, panel.median_event(estimator), strict=True))
        return np.array([known.get(beta, np.nan) for beta in self.betas])

    def bars(self, estimator: Estimator) -> Array:
        """Return how far the continuum's times may lie below and above, shape (2, beta)."""
        found = self.continuum.switches.sel(estimator=estimator, beta=self.betas).isel(seed=0)
        value = found.switch_time.values
        return np.stack([value - found.switch_time_low, found.switch_time_high - value])

    def agrees(self, panel: Panel, estimator: Estimator) -> NDArray[np.bool_]:
        """Tell at which betas a panel's times lie within 1 % of the continuum's, (beta,)."""
        limit = self.times(self.continuum, estimator)
        with np.errstate(invalid="ignore"):  # inf - inf: neither has the event
            off = np.abs(self.times(panel, estimator) - limit)
            near: NDArray[np.bool_] = np.isfinite(limit) & (off <= RESOLVED * limit)
        return near

    def needed(self, estimator: Estimator) -> Array:
        """Return the least n from which on every n agrees, inf if none does, shape (beta,)."""
        counts = np.array([panel.shard.n_tokens for panel in self.particles])
        agree = np.stack([self.agrees(panel, estimator) for panel in self.particles])
        from_here_on = np.logical_and.accumulate(agree[::-1])[::-1]
        least: Array = np.where(from_here_on, counts[:, None], np.inf).min(axis=0)
        return least


def comparisons(panels: Sequence[Panel]) -> list[Comparison]:
    """Return a comparison for every (family, d, gap) with both particles and the continuum."""
    groups: dict[tuple[str, int, float], list[Panel]] = {}
    for panel in panels:
        shard = panel.shard
        groups.setdefault((shard.family, shard.d, shard.gap), []).append(panel)
    return [
        Comparison(tuple(group[:-1]), group[-1])
        for group in groups.values()
        if len(group) > 1 and group[-1].shard.continuum  # n_tokens ascends
    ]


def continuum(panels: Sequence[Panel]) -> Figure:
    """Draw crossover and turnaround against log beta and beta, one line a number of tokens.

    Parameters
    ----------
    panels
        One a shard; some (family, d, gap) among them with finite and infinite n_tokens.

    Returns
    -------
    Figure
        One row a (family, d, gap). Medians over seeds; black: the continuum, with what its mesh
        and the saved times leave open. Filled: within 1 % of the continuum; open: not.
    """
    rows = comparisons(panels)
    counts = sorted({panel.shard.n_tokens for row in rows for panel in row.particles})
    shades = np.linspace(0.9, 0.15, len(counts))
    colours = {n: to_hex(colormaps["viridis"](s)) for n, s in zip(counts, shades, strict=True)}
    columns, width = columns_of(4, _SIZE[0])
    lines = len(rows) * (4 // columns)
    size = (width * columns, _SIZE[1] * width / _SIZE[0] * lines + 0.6)
    figure = Figure(figsize=size, layout="constrained")
    table = figure.subplots(lines, columns, squeeze=False).reshape(len(rows), 4)
    for axes, row in zip(table, rows, strict=True):
        for axis, (estimator, scale) in zip(
            axes, [(name, scale) for name in COMPARED for scale in ("log", "linear")], strict=True
        ):
            _draw(axis, row, estimator, colours)
            axis.set_xscale(scale)
            if scale == "log":
                axis.xaxis.set_major_locator(FixedLocator(row.betas.tolist(), nbins=4))
                axis.xaxis.set_minor_locator(NullLocator())
                axis.xaxis.set_major_formatter(FuncFormatter(lambda beta, _: f"{beta:.4g}"))
            axis.set_xlabel(rf"$\beta$ ({scale} axis)")
            axis.set_ylabel(f"{estimator} (dimensionless)")
            axis.set_ylim(bottom=0.0)
        shard = row.continuum.shard
        axes[0].set_title(rf"{shard.family}, $\gamma={shard.gap:.4g}$", loc="left")
    legend_below(figure, _key(colours))
    return figure


def _draw(axis: Axes, row: Comparison, estimator: Estimator, colours: dict[float, str]) -> None:
    """Draw one estimator's median times against beta."""
    for panel in row.particles:
        value = _seen(row.times(panel, estimator))
        colour, near = colours[panel.shard.n_tokens], row.agrees(panel, estimator)
        axis.plot(row.betas, value, color=colour)
        for kept, face in ((near, colour), (~near, "white")):
            axis.plot(row.betas[kept], value[kept], "o", color=colour, mfc=face, ms=3.5)
    value = _seen(row.times(row.continuum, estimator))
    bars = np.where(np.isfinite(value), row.bars(estimator), 0.0)
    axis.errorbar(row.betas, value, bars, color="black", marker="o", ms=3.5, capsize=2, zorder=3)
    if not np.isfinite(value).any():
        say_in(axis, f"no {estimator}\nin the continuum", 0.2)


def _seen(times: Array) -> Array:
    """Leave out what is censored."""
    return np.where(np.isfinite(times), times, np.nan)


def _key(colours: dict[float, str]) -> list[Line2D]:
    marks = [("within 1 % of it", "0.4"), ("not", "white")]
    return [
        *(Line2D([], [], color=colour, label=f"$n={n:.0f}$") for n, colour in colours.items()),
        Line2D([], [], color="black", marker="o", ms=3.5, label="the continuum"),
        *(
            Line2D([], [], color="0.4", mfc=face, marker="o", ms=3.5, ls="", label=label)
            for label, face in marks
        ),
    ]
