"""The page itself: sections, controls and style."""

import base64
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import yaml
from plotly.io.json import to_json_plotly

from mfsweep.plotting import Orbit, Panel, draw_figures
from mfsweep.plotting.panels import place
from mfsweep.plotting.style import MAX_PANELS
from mfsweep.report.moving import beta_key, token_figure, w2_figure
from mfsweep.report.needed import continuum_table
from mfsweep.report.tables import (
    assumptions_table,
    bound_table,
    cells_table,
    laws_table,
    terminal_table,
)
from mfsweep.report.words import findings, number, summary
from mfsweep.sweep.config import Config
from mfsweep.sweep.folder import provenance

_CONFIG = {"responsive": True, "displayModeBar": False, "scrollZoom": False}
_DPI = 110
_ASSETS = Path(__file__).parent
_SOURCES = (
    "laws.zarr (laws, found), curves.zarr (terminal state, W2), switch_times.zarr (switch times), "
    "bound.zarr (the two terms), shards/*/trajectories.zarr (tokens), beside this page; the "
    "assumptions are computed from the config's weights"
)
CAPTIONS = {
    "w2_curves": "W2 distance of the tokens to the metastable target against time, on a "
    "logarithmic distance axis. Lines are medians over the seeds, bands their middle half; dots "
    "mark the median turnaround.",
    "distances": "Rms distance of the tokens to E, the dominant eigenspace of A (solid), and to "
    "V's dominant eigenspace (dashed), medians over the seeds; squares mark the median crossover.",
    "switch_times": "Switch times of every cell against beta. Filled marks are observed, open ones "
    "under-resolved, arrows are lower bounds of censored cells. Solid: fitted law; dotted: law in "
    "beta where AIC prefers it; dashed: predicted slope through the centre of the data.",
    "bound_terms": "The two terms of Theorem 1, medians over the seeds on a logarithmic axis. "
    "Coloured: coupling distance from the tokens to the zero-temperature flow; black: W2 from that "
    "flow to the metastable target, with the predicted decay dashed.",
    "continuum": "Crossover and turnaround against beta, one line a number of tokens, black the "
    "continuum with the error of its mesh and of the saved times; medians over the seeds. Filled "
    "marks lie within 1 % of the continuum, open ones have left it.",
    "tokens_circle": "Tokens of one cell on the circle. Those bound for +e are discs just outside "
    "the circle, the others triangles inside; a mark's area is its mass.",
    "tokens_sphere": "Tokens of one cell on the sphere in equal-area projection, the far "
    "hemisphere seen through the sphere; a mark's area is its mass.",
}
"""What each figure shows; also its alternative text."""


def page_html(
    config: Config, run_folder: Path, panels: Sequence[Panel], orbits: Mapping[int, Orbit]
) -> str:
    """Return the whole page as HTML."""
    title = f"mfsweep: {config.run}"
    sections = [
        _answer(config, panels),
        _section("assumptions", "Assumptions", assumptions_table(panels).html()),
        _section("terminal", "Which terminal state", terminal_table(panels).html()),
        *_continuum(panels),
        _section("curves", "W2 against time", _curves(panels)),
        _section("bound", "The two terms of Theorem 1", bound_table(panels).html()),
        *(_tokens(d, orbit) for d, orbit in orbits.items()),
        _section("figures", "Figures", "\n".join(_figures(config, run_folder))),
        _section("cells", "Cells that are not there", _cells(panels, run_folder)),
        _section("provenance", "Provenance", _provenance(config, panels)),
    ]
    style, script = (_ASSETS.joinpath(name).read_text() for name in ("page.css", "page.js"))
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f"<main>\n{chr(10).join(sections)}\n</main>\n<script>\n{script}</script>\n</body>\n</html>\n"
    )


def _section(name: str, heading: str, body: str) -> str:
    heading = f'<h2 id="{name}-heading">{escape(heading)}</h2>'
    return f'<section aria-labelledby="{name}-heading">\n{heading}\n{body}\n</section>'


def _answer(config: Config, panels: Sequence[Panel]) -> str:
    items = "\n".join(f"<li>{escape(line)}</li>" for line in findings(panels))
    return (
        f"<header>\n<h1>When does the metastable phase end? Run {escape(config.run)}</h1>\n"
        f'<p class="answer">{escape(summary(panels))}</p>\n</header>\n'
        + _section("laws", "Laws", laws_table(panels).html())
        + _section("found", "Found, shard by shard", f"<ul>\n{items}\n</ul>")
    )


def _continuum(panels: Sequence[Panel]) -> Iterator[str]:
    table = continuum_table(panels)
    if table.rows:
        yield _section("continuum", "Tokens needed to follow the continuum", table.html())


# ---- what moves ----------------------------------------------------------------------------


def _plot(figure: go.Figure, name: str, label: str) -> str:
    """Return a plotly figure, drawn as the page opens, with plotly.js, which goes in once."""
    drawn = figure.to_html(
        full_html=False, include_plotlyjs=True, div_id=name, config=_CONFIG, auto_play=False
    )
    return _labelled(drawn, label)


def _plot_when_seen(figure: go.Figure, name: str, label: str) -> str:
    """Return a plotly figure that page.js draws when it comes near the window."""
    held = to_json_plotly({**figure.to_plotly_json(), "config": _CONFIG}).replace("<", "\\u003c")
    return _labelled(
        f'<div id="{name}" class="later" style="height: {figure.layout.height}px"></div>\n'
        f'<script type="application/json" id="{name}-figure">{held}</script>',
        label,
    )


def _labelled(drawn: str, label: str) -> str:
    return f'<div class="plot" role="group" aria-label="{escape(label)}">\n{drawn}\n</div>'


def _curves(panels: Sequence[Panel]) -> str:
    shown = panels[:MAX_PANELS]
    betas = sorted({beta for panel in shown for beta in panel.shard.betas})
    first, keys = shown[0].shard.betas[0], [beta_key(beta) for beta in betas]
    options = "".join(
        f'<option value="{k}">{escape(place(panel.shard))}</option>'
        for k, panel in enumerate(shown)
    )
    label = "Interactive curves of W2 against time; the same data as the first static figure."
    left = f"<p>The first {len(shown)} of {len(panels)} shards.</p>\n"
    return (
        (left if len(shown) < len(panels) else "")
        + '<form class="controls" autocomplete="off" onsubmit="return false">\n'
        f'<label>Shard <select id="w2-shard">{options}</select></label>\n'
        f'<label>beta <input type="range" id="w2-beta" min="0" max="{len(betas) - 1}"'
        f' value="{betas.index(first)}" aria-valuetext="beta = {beta_key(first)}"'
        f' data-values="{escape(json.dumps(keys))}"></label>\n'
        f'<output id="w2-value" for="w2-shard w2-beta">beta = {beta_key(first)}</output>\n</form>\n'
        + _plot(w2_figure(panels), "w2", label)
    )


def _tokens(d: int, orbit: Orbit) -> str:
    name = f"tokens-{d}"
    where = "the circle" if d == 2 else "the sphere"
    shown = f"{place(orbit.shard)}, beta = {number(orbit.beta)}, seed {orbit.seed}"
    figure = token_figure(orbit)
    times = [frame.name for frame in figure.frames]
    controls = (
        f'<form class="controls tokens" data-plot="{name}" autocomplete="off"'
        f' onsubmit="return false">\n<button type="button">Play</button>\n'
        f'<label>time <input type="range" min="0" max="{len(times) - 1}" value="0"'
        f' aria-valuetext="t = 0" data-values="{escape(json.dumps(times))}"></label>\n'
        f'<output aria-live="off">t = 0</output>\n</form>\n'
    )
    label = f"Tokens moving on {where}: {shown}."
    turn = "" if d == 2 else " Drag to turn the sphere."
    text = f"<p>{escape(shown)}. Tokens at one place fan out along the radius.{turn}</p>\n"
    plot = _plot_when_seen(figure, name, label)
    return _section(name, f"Tokens on {where}", text + controls + plot)


# ---- what stands still ---------------------------------------------------------------------


def _figures(config: Config, run_folder: Path) -> Iterator[str]:
    for name, figure in draw_figures(config, run_folder):
        data = io.BytesIO()
        figure.savefig(data, format="png", dpi=_DPI, metadata={"Software": None})
        image = base64.b64encode(data.getvalue()).decode()
        caption = escape(CAPTIONS[name])
        yield (
            f'<figure id="figure-{name}">\n<img src="data:image/png;base64,{image}" '
            f'alt="{caption}">\n<figcaption>{caption}</figcaption>\n</figure>'
        )


def _cells(panels: Sequence[Panel], run_folder: Path) -> str:
    table = cells_table(panels, run_folder)
    return table.html() if table.rows else "<p>Every cell of the config has been computed.</p>"


def _provenance(config: Config, panels: Sequence[Panel]) -> str:
    made, drawn = panels[0].laws.attrs, provenance(config)
    rows: dict[str, Any] = {
        "run": config.run,
        "config digest": drawn["config_digest"],
        "numbers from": _SOURCES,
        "results computed by": _software(made),
        "page written by": _software(drawn),
        "numerics version": made["numerics_version"],
        **json.loads(made["library_versions"]),
    }
    terms = "\n".join(f"<dt>{escape(k)}</dt><dd>{escape(str(v))}</dd>" for k, v in rows.items())
    text = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, default_flow_style=None)
    return (
        f"<dl>\n{terms}\n</dl>\n<details>\n<summary>The config, defaults filled in</summary>\n"
        f"<pre>{escape(text)}</pre>\n</details>"
    )


def _software(made: Mapping[str, Any]) -> str:
    dirty = ", with uncommitted changes" if made["git_dirty"] else ""
    return f"mfsweep {made['mfsweep_version']}, git commit {made['git_commit']}{dirty}"
