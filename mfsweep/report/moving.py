"""Figures of the report that move: plotly, driven by the page's own labelled controls."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go

from mfsweep._types import ESTIMATORS, Array, Basis
from mfsweep.plotting import Orbit, Panel, read_orbit
from mfsweep.plotting.style import BLUE, MARKS, MAX_PANELS, ORANGE
from mfsweep.sweep.figures import TOKEN_FIGURES

MAX_FRAMES = 60
MAX_TOKENS = 400
_SPREAD = 0.12
"""Radial distance over which tokens at one place fan out."""
_GOLDEN = (5**0.5 - 1) / 2
_SYMBOLS = {
    "entry": "triangle-down",
    "turnaround": "circle",
    "exit": "diamond",
    "crossover": "square",
}
_LAYOUT: dict[str, Any] = {
    "template": "plotly_white",
    "margin": {"l": 60, "r": 15, "t": 20, "b": 50},
    "font": {"size": 13, "family": "system-ui, sans-serif", "color": "#1a1a1a"},
    "legend": {"orientation": "h", "y": -0.2, "itemwidth": 40},
    "height": 480,
}


# ---- W2 against time -----------------------------------------------------------------------


def w2_figure(panels: Sequence[Panel]) -> go.Figure:
    """Draw W2 against time for every shard and beta; `meta` of a trace is [shard, beta].

    The page shows the traces of the chosen shard and beta; beta is None for those that always
    belong to the shard. Medians over seeds, rounded to five digits.
    """
    figure = go.Figure()
    for k, panel in enumerate(panels[:MAX_PANELS]):
        figure.add_trace(_all_betas(panel, k))
        for beta in panel.quartiles("w2_metastable"):
            figure.add_traces(list(_of_beta(panel, k, beta)))
    figure.update_layout(**_LAYOUT)
    figure.update_xaxes(title="time t (dimensionless)", range=[0, _end(panels)])
    ticks = [step * 10.0**k for k in range(-2, 2) for step in (1, 2, 5)]
    ticks += [10.0**k for k in range(-12, -2)]
    figure.update_yaxes(title="W2 (dimensionless)", type="log", tickvals=ticks, tickformat="~g")
    return figure


def beta_key(beta: float) -> str:
    """Name a beta as traces and slider do; JSON has no infinity."""
    return f"{beta:.12g}"


def _end(panels: Sequence[Panel]) -> float:
    return float(panels[0].curves.time.values[-1])


def _all_betas(panel: Panel, k: int) -> go.Scatter:
    """Return every beta's median as one grey line with gaps."""
    time = panel.curves.time.values
    medians = [rows[1] for rows in panel.quartiles("w2_metastable").values()]
    return go.Scatter(
        x=_rounded(np.concatenate([[*time, np.nan] for _ in medians] or [[]])),
        y=_rounded(np.concatenate([[*median, np.nan] for median in medians] or [[]])),
        mode="lines",
        line={"color": "#888888", "width": 1},
        name="the other betas",
        hoverinfo="skip",
        visible=k == 0,
        meta=[k, None],
    )


def _of_beta(panel: Panel, k: int, beta: float) -> Iterator[go.Scatter]:
    """Yield band, median, the two terms of the bound as guides, and the median switch times."""
    time = panel.curves.time.values
    low, middle, high = panel.quartiles("w2_metastable")[beta]
    common = {"meta": [k, beta_key(beta)], "visible": k == 0 and beta == panel.shard.betas[0]}
    band = {"x": _rounded([*time, *time[::-1]]), "y": _rounded([*high, *low[::-1]])}
    yield go.Scatter(
        **band,
        fill="toself",
        fillcolor="rgba(0,114,178,0.2)",
        line={"color": BLUE, "width": 0.5},
        hoverinfo="skip",
        name="middle half of the seeds",
        **common,
    )
    line = {"color": BLUE, "width": 2.5}
    x, y = _rounded(time), _rounded(middle)
    yield go.Scatter(x=x, y=y, mode="lines", line=line, name="median over seeds", **common)
    guides = {"guide e<sup>−ct</sup>": middle[0] * np.exp(-panel.weights.assumptions().rate * time)}  # noqa: RUF001
    if np.isfinite(beta):
        level = np.sqrt(np.log(beta + 1.0) / beta)
        guides["guide √(log(β+1)/β)"] = np.full_like(time, level)
    for (name, guide), dash in zip(guides.items(), ("dash", "dot"), strict=False):
        line = {"color": "#555555", "width": 1, "dash": dash}
        kept = guide >= middle.min() / 3
        yield go.Scatter(
            x=_rounded(time[kept]),
            y=_rounded(guide[kept]),
            mode="lines",
            line=line,
            name=name,
            **common,
        )
    row = panel.shard.betas.index(beta)
    for name in ESTIMATORS:
        when = float(panel.median_event(name)[row])
        if np.isfinite(when):
            yield go.Scatter(
                x=_rounded([when]),
                y=_rounded([np.interp(when, time, middle)]),
                mode="markers",
                marker={"symbol": _SYMBOLS[name], "size": 11, "color": MARKS[name][0]},
                name=f"median {name}: t = {when:.3g}",
                **common,
            )


def _rounded(values: Any) -> list[float | None]:
    """Return five significant digits, None for NaN."""
    return [float(f"{v:.5g}") if np.isfinite(v) else None for v in np.asarray(values, dtype=float)]


# ---- tokens --------------------------------------------------------------------------------


def read_orbits(panels: Sequence[Panel], run_folder: Path) -> dict[int, Orbit]:
    """Read the most telling cell of each dimension that can be drawn."""
    found = {d: read_orbit(panels, d, run_folder) for d in TOKEN_FIGURES}
    return {d: orbit for d, orbit in found.items() if orbit is not None}


def token_figure(orbit: Orbit) -> go.Figure:
    """Draw the tokens of a cell as they move: at most 60 frames of at most 400 tokens.

    Tokens at one place fan out along the radius, so that their number shows; the first two traces
    are the basins, which the frames move.
    """
    keep = np.unique(np.linspace(0, len(orbit.mass) - 1, MAX_TOKENS).astype(int))
    fan = 1.0 + _SPREAD * (np.arange(len(keep)) * _GOLDEN % 1.0)[:, None]
    basins = [orbit.basin[keep], ~orbit.basin[keep]]
    frames = []
    for k in frame_indices(orbit):
        x = orbit.tokens[k][keep] * fan
        data = [_points(x[basin]) for basin in basins]
        frames.append(go.Frame(name=f"{orbit.times[k]:.4g}", data=data, traces=[0, 1]))
    looks = ((BLUE, "circle", "bound for +e"), (ORANGE, "diamond", "bound for −e"))  # noqa: RUF001
    if not orbit.dominant.size:
        looks = ((BLUE, "circle", "tokens (no metastable target)"), (*looks[1][:2], "none"))
    traces = [
        frames[0]
        .data[i]
        .update(
            mode="markers",
            name=name,
            showlegend=name != "none",
            marker={"color": colour, "symbol": symbol, "size": 6 if orbit.shard.d == 2 else 3},
        )
        for i, (colour, symbol, name) in enumerate(looks)
    ]
    spaces = (
        (orbit.dominant, "A's dominant eigenspace E", "solid"),
        (orbit.weights.terminal(), "V's dominant eigenspace", "dash"),
    )
    lines = [
        _space(basis, name, dash)
        for basis, name, dash in spaces
        if 0 < basis.shape[1] < orbit.shard.d
    ]
    figure = go.Figure(data=[*traces, *_frame(orbit.shard.d), *lines], frames=frames)
    figure.update_layout(**_LAYOUT, **_axes(orbit.shard.d))
    legend = {"y": -0.02, "itemsizing": "constant"}
    return figure.update_layout(margin=dict.fromkeys("lrtb", 0), legend=legend)


def frame_indices(orbit: Orbit) -> Array:
    """Return the saved times that become frames."""
    return np.unique(np.linspace(0, orbit.times.size - 1, MAX_FRAMES).astype(int))


def _points(x: Array, **options: Any) -> go.Scatter | go.Scatter3d:
    """Return a trace in the plane or in space."""
    columns = [[round(float(v), 3) for v in column] for column in x.T]
    kind = go.Scatter if x.shape[1] == 2 else go.Scatter3d
    return kind(**dict(zip("xyz", columns, strict=False)), hoverinfo="skip", **options)


def _space(basis: Basis, name: str, dash: str) -> go.Scatter | go.Scatter3d:
    """Return a line through the origin, or a great circle."""
    turn = np.linspace(0.0, 2.0 * np.pi, 91)
    if basis.shape[1] == 1:
        x = 1.25 * np.outer([-1.0, 1.0], basis[:, 0])
    else:
        x = 1.01 * np.stack([np.cos(turn), np.sin(turn)], axis=-1) @ basis.T
    return _points(x, mode="lines", name=name, line={"color": "#222222", "dash": dash, "width": 3})


def _frame(d: int) -> list[go.Scatter | go.Scatter3d]:
    """Return the unit circle, or circles of latitude and longitude."""
    turn = np.linspace(0.0, 2.0 * np.pi, 91)
    ring = np.stack([np.cos(turn), np.sin(turn)], axis=-1)
    line = {"color": "#bbbbbb", "width": 1}
    if d == 2:
        return [_points(ring, mode="lines", line=line, showlegend=False)]
    tilts = np.linspace(0.0, np.pi, 6, endpoint=False)
    nan = np.full((1, 3), np.nan)
    rings = [
        np.stack([ring[:, 0] * np.cos(a), ring[:, 0] * np.sin(a), ring[:, 1]], -1) for a in tilts
    ]
    heights = np.sin(np.linspace(-np.pi / 3, np.pi / 3, 5))
    rings += [np.column_stack([ring * np.sqrt(1 - z * z), np.full(91, z)]) for z in heights]
    net = np.concatenate([part for circle in rings for part in (circle, nan)])
    return [_points(net, mode="lines", line=line, showlegend=False)]


def _axes(d: int) -> dict[str, Any]:
    if d == 2:
        hidden = {"visible": False, "range": [-1.3, 1.3], "constrain": "domain"}
        return {"xaxis": hidden, "yaxis": {**hidden, "scaleanchor": "x"}, "dragmode": False}
    axis = {"visible": False, "range": [-1.3, 1.3]}
    camera = {"eye": {"x": 0.95, "y": 0.95, "z": 0.6}}
    sides = dict.fromkeys(("xaxis", "yaxis", "zaxis"), axis)
    return {"scene": {**sides, "aspectmode": "cube", "camera": camera}}
