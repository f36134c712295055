import base64
import csv
import io
import math
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from shutil import copytree

import numpy as np
import plotly.graph_objects as go
import pytest
from shown import assert_shows_the_laws, in_csv, read, to_digits

from mfsweep._types import LAW_STATUSES
from mfsweep.dynamics.weights import Weights
from mfsweep.report.moving import MAX_FRAMES, MAX_TOKENS, read_orbits, token_figure, w2_figure
from mfsweep.report.page import page_html
from mfsweep.report.tables import Table, assumptions_table, cells_table, terminal_table
from mfsweep.report.words import alignment, findings, summary, verdict
from mfsweep.sweep.failures import add_failure
from mfsweep.sweep.folder import shard_folder
from mfsweep.sweep.grid import Cell
from mfsweep.sweep.layout import FAILED
from mfsweep.sweep.results import open_results
from mfsweep.sweep.store import mark_cell

VOID = {"meta", "img", "input", "link", "br"}


class Page(HTMLParser):
    """Tags with their attributes, and the text of every table cell by table id."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.tables, self.open, self.words = [], {}, [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append((tag, attributes))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.rows = self.tables[attributes["id"]] = []
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] in (["th"], ["td"]):
            self.rows[-1][-1] += data
        if self.open and self.open[-1] not in ("script", "style"):
            self.words.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def text(run, report):
    assert report == run[1] / "report.html"
    return report.read_text()


@pytest.fixture(scope="module")
def html(text):
    return Page(text)


def with_laws(panel, **values):
    """The panel with other numbers in every law."""
    laws = panel.laws.copy(deep=True)
    for name, value in values.items():
        laws[name][...] = value
    return replace(panel, laws=laws)


def page_without_figures(config, panels, folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mfsweep.report.page.draw_figures", lambda *_: iter(()))
        return Page(page_html(config, folder, panels, {}))


def test_the_page_loads_nothing_from_elsewhere(text, html):
    for tag, attributes in html.tags:
        for name in ("src", "href", "data", "action", "poster", "srcset"):
            assert attributes.get(name, "data:").startswith("data:"), (tag, attributes)
    assert not html.all("link")
    assert "@import" not in text
    assert not re.search(r"url\((?!#|\"?data:)", "".join(re.findall(r"<style>.*?</style>", text)))
    assert len(text) < 15e6


def test_plotly_goes_in_once(text):
    assert len(re.findall(r"plotly\.js v\d", text)) == 1


def test_the_answer_comes_before_tables_and_figures(html):
    headings = [attributes["id"] for attributes in html.all("h2")]
    assert [name.removesuffix("-heading") for name in headings] == [
        *("laws", "found", "assumptions", "terminal", "curves", "bound"),
        *("tokens-2", "tokens-3", "figures", "cells", "provenance"),
    ]


def test_the_law_table_equals_the_store_to_the_printed_digits(run, html):
    assert_shows_the_laws(html.tables["laws"], run[1])


def test_every_censored_count_is_said(run, html):
    laws = open_results(run[1])["laws"].to_dataset()
    heads, *rows = html.tables["laws"]
    shown = Counter(int(row[heads.index("censored")]) for row in rows)
    stored = laws.counts.sel(cell_status="censored")
    known = laws.counts.sum("cell_status") > 0
    assert shown == Counter(stored.values[known.values].tolist())
    assert sum(shown.elements()) > 0


def test_each_csv_equals_its_table(html):
    links = [a for a in html.all("a") if "download" in a]
    assert {a["download"] for a in links} == {f"{name}.csv" for name in html.tables}
    for link in links:
        data = base64.b64decode(link["href"].partition("base64,")[2]).decode()
        table = html.tables[link["download"].removesuffix(".csv")]
        for row, cells in zip(csv.reader(io.StringIO(data)), table, strict=True):
            assert row == in_csv(cells)


def test_the_page_can_be_used_without_a_mouse_or_eyes(html):
    assert html.all("html") == [{"lang": "en"}]
    assert all(attributes["scope"] in ("col", "row") for attributes in html.all("th"))
    assert len(html.all("caption")) == len(html.all("table")) == 4
    assert all(len(attributes["alt"]) > 40 for attributes in html.all("img"))
    assert len(html.all("label")) == len(html.all("input")) + len(html.all("select")) == 4
    scrolling = [a for a in html.all("div") if a.get("class") == "scroll"]
    assert all(a["tabindex"] == "0" and a["aria-labelledby"] for a in scrolling)
    assert not any("onclick" in attributes for _, attributes in html.tags)


def test_every_figure_is_shown_with_a_caption(html):
    names = [a["id"] for a in html.all("figure")]
    expected = ("w2_curves", "distances", "switch_times", "bound_terms")
    expected += ("tokens_circle", "tokens_sphere")
    assert names == [f"figure-{name}" for name in expected]
    assert len(html.all("figcaption")) == len(html.all("img")) == 6


def test_what_users_write_is_escaped(run, panels):
    table = Table("t", "<i>", ("<b>", "x"), (("<script>alert(1)</script>", "&"),))
    assert not re.search(r"<(i|b|script)>", table.html())
    config = run[0].model_copy(update={"run": "<img src=x>"})
    hostile = [replace(p, shard=replace(p.shard, family='"><b>')) for p in panels[:1]]
    shown = page_without_figures(config, hostile, run[1])
    assert not [a for a in shown.all("img") if a.get("src") == "x"]
    assert not shown.all("b")


def test_findings_state_slope_prediction_and_verdict(panels):
    panel = with_laws(
        panels[0], slope=3.9, slope_low=3.5, slope_high=4.3, predicted_slope=4.0, status=1
    )
    panel.laws.aic.loc[{"law": "log"}] = 10.0
    panel.laws.aic.loc[{"law": "linear"}] = 22.5
    panel.laws.evidence.loc[{"law": "log"}] = 0.998
    panel.laws.counts[..., 4] = 0
    first, second, third = findings([panel])
    assert first.startswith(
        "aligned, d = 2, gap = 0.5, 48 tokens: the turnaround grows by 3.9 [3.5, 4.3] per unit of "
        "log beta; predicted 4, which lies inside the interval. "
        "AIC prefers the law in log beta (by 12.5, 100% of the evidence)."
    )
    assert "Delta = 0: e is an eigenvector of Bᵀ" in third
    assert "the crossover grows by 3.9" in second
    assert "in 1 of the 1 shards" in summary([panel])
    assert verdict(panel.laws.isel(estimator=0, law=0)).endswith("inside the interval")
    outside = with_laws(panel, predicted_slope=5.0)
    assert "predicted 5, which lies outside the interval" in next(findings([outside]))
    assert "in 0 of the 1 shards" in summary([outside])


def test_findings_tell_what_speaks_against_them(panels):
    panel = with_laws(panels[0], slope=1.0, slope_low=0.5, slope_high=1.5, aic=3.0, status=2)
    panel.laws.counts[...] = [1, 10, 4, 2, 7]
    panel.laws.resolved_aic[...] = np.nan
    line, *_ = findings([panel])
    assert "7 of 24 cells are under-resolved: finite n decides them" in line
    assert "4 of 24 cells are censored" in line
    assert "1 of 24 cells are missing" in line
    assert "AIC cannot tell the two laws apart" in line
    assert "not one law can be fitted" in line
    nothing = with_laws(panels[0], slope=np.nan, status=LAW_STATUSES.index("all_censored"))
    assert "no slope: wherever the event can happen, it lies past" in next(findings([nothing]))


def test_the_resolved_beta_speak_before_all_cells(panels):
    panel = with_laws(panels[0], aic=10.0, evidence=0.9, resolved_betas=5)
    panel.laws.counts[..., 4] = 7
    panel.laws.aic.loc[{"law": "linear"}] = 30.0
    panel.laws.resolved_aic[...] = 20.0
    panel.laws.resolved_aic.loc[{"law": "linear"}] = 15.0
    line, *_ = findings([panel])
    assert "At the 5 beta where every cell is resolved AIC prefers the law in beta (by 5, " in line
    assert "all cells, resolved or not, say otherwise: AIC prefers the law in log beta" in line
    panel.laws.resolved_aic.loc[{"law": "linear"}] = 40.0
    assert "say likewise: AIC prefers the law in log beta" in next(findings([panel]))


def test_misaligned_weights_are_told_from_aligned_ones():
    assert "comes to grow in proportion to beta" in alignment(0.3)
    assert "0.3" in alignment(0.3)
    assert alignment(-1e-16) == alignment(0.0)
    assert alignment(math.nan) == ""


def test_weights_outside_assumption_1_are_told_and_not_the_law_that_rests_on_it(panels):
    panel = panels[0]
    low = np.zeros((panel.shard.d, panel.shard.d))
    low[0, 0] = 1.0
    *_, last = findings([replace(panel, weights=Weights(panel.weights.V, low))])
    assert "Assumption 1 does not hold (B invertible" in last
    assert "Delta" not in last
    *_, last = findings([panel])
    assert "Delta = 0" in last


def test_the_terms_of_the_bound_are_tabulated_as_they_are_stored(run, html):
    bound = open_results(run[1])["bound"].to_dataset()
    heads, *rows = html.tables["bound"]
    assert len(rows) == 3
    for row in rows:
        cell = dict(zip(heads, row, strict=True))
        where = {"family": cell["family"], "d": int(cell["d"])}
        found = bound.sel(where, drop=True).squeeze(drop=True)
        assert read(cell["predicted"]) == to_digits(found.predicted_decay_rate.item())
        power = found.beta_power.isel(time=8).item()
        shown = read(cell["power of beta at t = 4"].partition(" [")[0])
        assert shown == pytest.approx(power, rel=6e-3)


def test_a_control_is_called_one_and_a_loud_control_an_error(panels):
    control = panels[2]
    assert control.is_control
    assert next(findings([control])).endswith("nothing switches.")
    assert "report no crossover, as they must" in summary(panels)
    switches = control.switches.copy(deep=True)
    switches.status.loc[{"estimator": "crossover", "seed": 1}] = 1
    assert "which must not be" in summary([replace(control, switches=switches)])


def test_cells_that_failed_are_listed(run, panels, tmp_path):
    folder = run[1]
    assert cells_table(panels, folder).rows == ()
    copytree(folder / "shards", tmp_path / "shards")
    path = shard_folder(tmp_path, panels[0].shard) / "trajectories.zarr"
    cell = Cell("aligned", 2, 0.5, 48.0, 16.0, 3)
    mark_cell(path, 16.0, 3, FAILED)
    add_failure(path.parent, cell, "ValueError: no luck")
    table = cells_table(panels, tmp_path)
    assert table.rows == (
        ("aligned", "2", "0.5", "48", "16", "3", "failed", "ValueError: no luck"),
    )
    assert "1 of 50 cells" in table.caption


def test_assumptions_are_listed_once_per_weight_pair(panels):
    table = assumptions_table([*panels, *panels])
    assert [row[:3] for row in table.rows] == [
        ("aligned", "2", "0.5"),
        ("aligned", "3", "0.5"),
        ("identity", "2", "0.5"),
    ]
    cell = dict(zip(table.heads, table.rows[0], strict=True))
    assert (cell["|Bᵀe|"], cell["rate c"], cell["assumptions"]) == ("2", "0.25", "none violated")
    assert (cell["rank of B"], cell["dominant eigenvalue of A"]) == ("2", "1, real")
    assert cell["own beta"] == "–"  # noqa: RUF001


def test_a_complex_dominant_pair_and_a_head_of_low_rank_are_told(panels):
    turn = Weights(np.array([[1.0, -0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 0.0]]), np.eye(3))
    low = Weights(turn.V, np.diag([1.0, 1.0, 0.0]))
    table = assumptions_table([replace(panels[0], weights=low, own_beta=26.86)])
    cell = dict(zip(table.heads, table.rows[0], strict=True))
    assert (cell["rank of B"], cell["own beta"]) == ("2", "26.86")
    assert cell["dominant eigenvalue of A"] == "1 ± 0.5 i, complex"
    assert cell["assumptions"].startswith("violated: dominant eigenvalue of A real and semisimple")


def test_the_nearer_terminal_reading_is_named(panels):
    panel = panels[0]
    same = terminal_table([panel]).rows[0][-1]
    assert same == "both readings name the same eigenspace"
    curves = panel.curves.copy(deep=True)
    curves.distance_terminal_modulus[...] = curves.distance_terminal + 0.1
    curves.distance_terminal_modulus.loc[{"seed": 0}] -= 0.2
    nearer = terminal_table([replace(panel, curves=curves)]).rows[0][-1]
    assert nearer == "largest real part in 25 cells, largest modulus in 5"


# ---- what moves ----------------------------------------------------------------------------


def test_interactive_curves_hold_the_median_of_every_shard_and_beta(panels):
    figure = w2_figure(panels)
    medians = {
        (trace.meta[0], trace.meta[1]): trace.y
        for trace in figure.data
        if trace.name == "median over seeds"
    }
    assert medians.keys() == {(k, f"{b:g}") for k, p in enumerate(panels) for b in p.shard.betas}
    for (k, beta), drawn in medians.items():
        expected = np.median(panels[k].curves.w2_metastable.sel(beta=float(beta)), axis=0)
        assert np.allclose(drawn, expected, rtol=1e-4)
    shown = [trace for trace in figure.data if trace.visible]
    assert {tuple(trace.meta) for trace in shown} == {(0, None), (0, "4")}
    assert figure.layout.yaxis.type == "log"


def test_switch_times_are_marked_on_the_interactive_curves(panels):
    figure = w2_figure(panels[:1])
    for row, beta in enumerate(panels[0].shard.betas):
        marks = {
            trace.name.partition(":")[0]: trace.x[0]
            for trace in figure.data
            if trace.meta[1] == f"{beta:g}" and trace.mode == "markers"
        }
        for estimator in ("entry", "turnaround", "exit", "crossover"):
            when = panels[0].median_event(estimator)[row]
            assert (f"median {estimator}" in marks) == np.isfinite(when)
            if np.isfinite(when):
                assert marks[f"median {estimator}"] == pytest.approx(when, rel=1e-4)


def test_tokens_move_in_few_frames_and_stay_in_their_basin(run, panels):
    for d, orbit in read_orbits(panels, run[1]).items():
        figure = token_figure(orbit)
        assert 2 <= len(figure.frames) <= MAX_FRAMES
        assert isinstance(figure.data[0], go.Scatter if d == 2 else go.Scatter3d)
        for frame in figure.frames:
            assert [len(trace.x) for trace in frame.data] == [
                orbit.basin.sum(),
                (~orbit.basin).sum(),
            ]
        last = np.stack([figure.frames[-1].data[0][axis] for axis in "xyz"[:d]], axis=-1)
        length = np.linalg.norm(last, axis=-1)
        assert np.allclose(last / length[:, None], orbit.tokens[-1][orbit.basin], atol=2e-3)
        assert length.min() > 0.99
        assert length.max() < 1.2


def test_many_tokens_are_thinned_out(run, panels):
    orbit = read_orbits(panels, run[1])[2]
    many = replace(
        orbit,
        tokens=np.repeat(orbit.tokens, 20, axis=1),
        mass=np.repeat(orbit.mass, 20) / 20,
        basin=np.repeat(orbit.basin, 20),
    )
    assert sum(len(trace.x) for trace in token_figure(many).frames[0].data) == MAX_TOKENS
