"""How figures look: fonts, colours that survive grey print and colour blindness, panel grids."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from mfsweep._types import Estimator
from mfsweep.plotting.panels import Panel
from mfsweep.sweep.grid import Shard

WIDTHS = {"single": 3.4, "double": 7.0}
"""Inches of one column of a journal's page, and of two."""
STYLE: dict[Any, Any] = {
    "figure.figsize": (WIDTHS["double"], 4.0),  # of which the width counts, and no figure is wider
    "font.family": "STIXGeneral",
    "font.size": 9.0,
    "axes.titlesize": 9.0,
    "axes.labelsize": 9.0,
    "legend.fontsize": 8.0,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "mathtext.fontset": "stix",
    "pdf.fonttype": 42,
}
"""Settings of matplotlib under which every figure is drawn and saved."""
BLUE, ORANGE, GREEN, PURPLE, AMBER = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00"
"""Colours of Okabe and Ito."""
MARKS: dict[Estimator, tuple[str, str]] = {
    "entry": (GREEN, "v"),
    "turnaround": (BLUE, "o"),
    "exit": (PURPLE, "D"),
    "crossover": (ORANGE, "s"),
}
"""Colour and marker of each estimator."""
MAX_PANELS = 48
_WIDEST_PANEL = 1.7  # over its least width
_ENTRY, _LETTER = 0.58, 0.052  # inches of a legend's entry without its text, and of a letter
_ROW = 0.15  # inches
_REMARK = 0.55, 0.15  # left end and height of a remark in a panel, as fractions
_BESIDE = 0.5  # inches of a panel's width that its y axis takes
_TEX = re.compile(r"\\\w+")
_MOST_ENTRIES = 8


def title(shard: Shard) -> str:
    """Name a shard in mathtext."""
    count = r"\infty" if shard.continuum else f"{shard.n_tokens:,.0f}".replace(",", "{,}")
    return rf"{shard.family}, $d={shard.d}$, $\gamma={shard.gap:.4g}$, $n={count}$"


def beta_colours(panels: Iterable[Panel]) -> dict[float, str]:
    """Give every beta of the panels a colour, darkest for the smallest; black for beta = inf."""
    betas = sorted({beta for panel in panels for beta in panel.shard.betas})
    finite = [beta for beta in betas if np.isfinite(beta)]
    steps = np.linspace(0.0, 0.88, len(finite))
    colours: dict[float, str] = dict.fromkeys(betas, "black")
    viridis = colormaps["viridis"]
    return colours | {b: to_hex(viridis(s)) for b, s in zip(finite, steps, strict=True)}


def beta_handles(colours: dict[float, str]) -> list[Line2D]:
    """Return legend entries for the betas, thinned out evenly if there are many."""
    betas = list(colours)
    kept = np.unique(np.linspace(0, len(betas) - 1, min(len(betas), _MOST_ENTRIES)).astype(int))
    return [
        Line2D([], [], color=colours[beta], label=rf"$\beta={_tex(beta)}$")
        for beta in (betas[i] for i in kept)
    ]


def _tex(value: float) -> str:
    return r"\infty" if np.isinf(value) else f"{value:.4g}"


def columns_of(count: int, least: float) -> tuple[int, float]:
    """Return how many columns of panels fit into a figure, and the width of each in inches.

    Parameters
    ----------
    count
        Number of panels.
    least
        Least width of a panel in inches.
    """
    width = mpl.rcParams["figure.figsize"][0]
    columns = _columns(count, max(1, int(width / least)))
    return columns, min(width / columns, _WIDEST_PANEL * least)


def panel_grid(
    panels: Sequence[Panel], size: tuple[float, float], below: Sequence[float] = ()
) -> tuple[Figure, list[Axes], list[Axes]]:
    """Make a figure with one titled panel a shard, at most `MAX_PANELS` of them.

    Parameters
    ----------
    panels
        What the figure shows.
    size
        Least width of a panel in inches and its height then; the figure grows downward.
    below
        Height in inches of the empty room that each panel needs beneath it; a row takes the most.

    Returns
    -------
    Figure, list of Axes, list of Axes
        One axes a panel, and one for the room beneath it if there is any; a line at the top says
        if panels are left out.
    """
    shown = panels[:MAX_PANELS]
    columns, width = columns_of(len(shown), size[0])
    rows = -(-len(shown) // columns)
    height = size[1] * width / size[0]
    deep = [[height, max(below[row * columns :][:columns])] for row in range(rows) if below]
    heights = [part for row in deep for part in row] or [height] * rows
    figure = Figure(figsize=(width * columns, sum(heights)), layout="constrained")
    table = figure.subplots(len(heights), columns, squeeze=False, height_ratios=heights)
    each = len(heights) // rows
    axes, rooms = (list(table[k::each].ravel()) for k in (0, each - 1))
    for axis in axes[len(shown) :] + (rooms if below else []):
        axis.set_axis_off()
    for axis, panel in zip(axes, shown, strict=False):
        text = title(panel.shard)
        if _inches(text) > width - _BESIDE:
            text = text.replace(", ", "\n", 1)
        axis.set_title(text, linespacing=1.0)
    if len(shown) < len(panels):
        figure.suptitle(f"the first {len(shown)} of {len(panels)} shards")
    return figure, axes[: len(shown)], rooms[: len(shown)] if below else []


def _columns(count: int, most: int) -> int:
    """Choose a number of columns that fills the last row if it can."""
    if count <= min(most, 3):
        return count
    full = [columns for columns in range(most, 1, -1) if count % columns == 0]
    return full[0] if full else most


def _inches(text: str) -> float:
    """Estimate how wide a label is; mathtext puts room around an equals sign."""
    shown = _TEX.sub("x", text).replace("=", " = ")
    return _LETTER * len(shown.translate(dict.fromkeys(map(ord, "${}"))))


def legend_below(figure: Figure, handles: Sequence[Artist]) -> None:
    """Put a legend beneath all panels, filled row by row, in as many columns as fit.

    The figure grows downward by its rows.
    """
    inches = [_ENTRY + _inches(str(one.get_label())) for one in handles]
    columns = next(
        count
        for count in range(len(handles), 0, -1)
        if count == 1 or sum(max(inches[k::count]) for k in range(count)) <= figure.get_figwidth()
    )
    rows = -(-len(handles) // columns)
    columns = -(-len(handles) // rows)  # as even rows as can be
    figure.set_figheight(figure.get_figheight() + _ROW * rows)
    figure.legend(
        handles=[handle for k in range(columns) for handle in handles[k::columns]],
        loc="outside lower center",
        ncols=columns,
    )


def say_in(axis: Axes, text: str, *heights: float) -> None:
    """Write a short remark at the right of a panel.

    Its top is at that one of the fractions of the height where it hides least; 0.95 if none is
    given.
    """
    axis.autoscale_view()
    to_axes = axis.transData - axis.transAxes
    points = np.concatenate(
        [[[0.0, 0.0]], *(to_axes.transform(x.get_xydata()) for x in axis.lines)]
    )
    y = points[points[:, 0] > _REMARK[0], 1]
    height = min(heights or (0.95,), key=lambda top: np.sum((y > top - _REMARK[1]) & (y < top)))
    remark = axis.text(0.97, height, text, transform=axis.transAxes, ha="right", va="top")
    remark.set_bbox({"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.0})
    remark.set_linespacing(1.0)
