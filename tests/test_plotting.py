import json
import re
import subprocess
import sys
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from mfsweep._errors import InputError, StoreError
from mfsweep._types import STATUSES
from mfsweep.plotting import (
    bound_terms,
    distances,
    draw_figures,
    read_orbit,
    read_panels,
    switch_times,
    tokens_circle,
    tokens_sphere,
    w2_curves,
    write_figures,
)
from mfsweep.plotting.panels import flagged
from mfsweep.plotting.style import (
    MARKS,
    STYLE,
    WIDTHS,
    beta_colours,
    beta_handles,
    legend_below,
    panel_grid,
    say_in,
)
from mfsweep.plotting.switching import ARROW
from mfsweep.plotting.tokens import camera, gather, project
from mfsweep.sweep.figures import figure_files, figure_names
from mfsweep.sweep.folder import provenance

ALIGNED_2, ALIGNED_3, IDENTITY_2 = range(3)


@pytest.fixture(scope="module")
def written(run):
    return write_figures(*run)


@pytest.fixture(autouse=True)
def _style():
    with mpl.rc_context(STYLE):
        yield


def with_status(panel, estimator, status, value=None):
    """The panel with another status, and time, for every cell of an estimator."""
    switches = panel.switches.copy(deep=True)
    switches.status.loc[{"estimator": estimator}] = STATUSES.index(status)
    if value is not None:
        switches.switch_time.loc[{"estimator": estimator}] = value
    return replace(panel, switches=switches)


def marked(axis, marker):
    return [line for line in axis.lines if line.get_marker() == marker]


def titled(figure):
    """The axes that show a panel, without the rooms for legends."""
    return [axis for axis in figure.axes if axis.get_title()]


def said(axis):
    return " ".join(text.get_text() for text in axis.texts)


def test_figures_are_written_under_the_names_known_before(run, written):
    config, folder = run
    assert [path.name for path in written] == list(figure_files(config))
    assert {path.name for path in (folder / "figures").iterdir()} == set(figure_files(config))
    assert all(path.stat().st_size > 1000 for path in written)


def test_token_pictures_exist_for_the_dimensions_of_the_config_only(make_config):
    assert figure_names(make_config())[4:] == ("tokens_circle",)
    assert figure_names(make_config(grid={"d": [4]}))[4:] == ()


def test_files_say_what_made_them(run, written):
    digest = provenance(run[0])["config_digest"]
    for path in written:
        if path.suffix == ".png":
            with Image.open(path) as image:
                assert digest in image.info["Source"]
                assert json.loads(image.info["Provenance"]) == provenance(run[0])
        else:
            data = path.read_bytes()
            assert all(f'"{key}"'.encode() in data for key in provenance(run[0]))
            assert rb"\"run\": \"small\"".replace(b"\\", b"\\\\") in data or b'"config"' in data
            assert digest.encode() in data
            assert b"CreationDate" not in data
            assert b"/FontFile2" in data
            assert not re.search(rb"/Subtype\s*/Type3", data)


@pytest.mark.parametrize("suffix", ["png", "pdf"])
def test_only_the_asked_format_is_written_and_twice_with_the_same_bytes(run, tmp_path, suffix):
    config, folder = run
    figures = config.figures.model_copy(update={"formats": (suffix,)})
    config = config.model_copy(update={"figures": figures})
    only = ["w2_curves"]
    first, second = (write_figures(config, folder, only, to=tmp_path / name) for name in "ab")
    assert {path.name for path in (tmp_path / "a").iterdir()} == {f"w2_curves.{suffix}"}
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_a_style_file_comes_after_the_own_style(run, tmp_path):
    style = tmp_path / "mine.mplstyle"
    style.write_text("axes.titlesize: 15\n")
    ((name, figure),) = draw_figures(*run, ["distances"], style)
    (_, plain), *_ = draw_figures(*run, ["distances"])
    assert name == "distances"
    assert {axis.title.get_fontsize() for axis in titled(figure)} == {15.0}
    assert {axis.title.get_fontsize() for axis in titled(plain)} == {9.0}
    assert {text.get_fontfamily()[0] for text in figure.findobj(Text)} == {"STIXGeneral"}


@pytest.mark.parametrize("text", ["axes.titlesize: 15pt\n", None])
def test_what_is_no_style_file_is_refused(run, tmp_path, text):
    style = tmp_path / "mine.mplstyle"
    if text is not None:
        style.write_text(text)
    with pytest.raises(InputError, match=r"mine\.mplstyle cannot be read .* name a matplotlib"):
        next(draw_figures(*run, (), style))


def test_a_figure_that_the_run_has_not_is_refused_with_those_that_it_has(run):
    with pytest.raises(InputError, match="--figure nothing: this config has w2_curves, distances"):
        next(draw_figures(*run, ["nothing"]))


def test_a_run_that_is_not_collected_is_refused(run, tmp_path):
    (tmp_path / "curves.zarr").symlink_to(run[1] / "curves.zarr")
    with pytest.raises(StoreError, match="collect first"):
        read_panels(run[0], tmp_path)


def test_results_of_a_smaller_config_are_refused(run):
    config, folder = run
    grown = config.grid.model_copy(update={"beta": (*config.grid.beta, 64.0)})
    with pytest.raises(StoreError, match=r"aligned, d = 2.* collect again"):
        read_panels(config.model_copy(update={"grid": grown}), folder)


def test_w2_lines_are_medians_over_seeds_on_a_logarithmic_axis(panels):
    figure = w2_curves(panels)
    assert len(figure.axes) == len(panels)
    for axis, panel in zip(figure.axes, panels, strict=True):
        lines = marked(axis, "None")
        expected = np.median(panel.curves.w2_metastable.transpose("beta", "seed", "time"), axis=1)
        assert np.allclose([line.get_ydata() for line in lines], expected, rtol=1e-12)
        assert sum(isinstance(c, PolyCollection) for c in axis.collections) == len(lines)
        assert axis.get_yscale() == "log"
        assert "dimensionless" in axis.get_xlabel()
        assert "dimensionless" in axis.get_ylabel()


def test_w2_marks_the_median_turnaround(panels):
    axis = w2_curves(panels).axes[ALIGNED_2]
    (dots,) = marked(axis, MARKS["turnaround"][1])
    when = panels[ALIGNED_2].median_event("turnaround")
    assert np.array_equal(dots.get_xdata(), when[np.isfinite(when)])
    assert dots.get_xdata().size > 0


def test_the_legend_names_every_beta_and_colours_darken_in_order(panels):
    figure = w2_curves(panels)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert {rf"$\beta={beta}$" for beta in ("4", "8", "16", "32", r"\infty")} <= set(labels)
    finite = marked(figure.axes[0], "None")[:-1]
    grey = [np.dot(mpl.colors.to_rgb(line.get_color()), (0.299, 0.587, 0.114)) for line in finite]
    assert (np.diff(grey) > 0.08).all()


def test_distances_are_solid_to_e_and_dashed_to_v(panels):
    for axis, panel in zip(distances(panels).axes, panels, strict=True):
        lines = marked(axis, "None")
        for style, name in (("-", "distance_dominant"), ("--", "distance_terminal")):
            drawn = [line.get_ydata() for line in lines if line.get_linestyle() == style]
            expected = np.median(panel.curves[name].transpose("beta", "seed", "time"), axis=1)
            assert np.allclose(drawn, expected, rtol=1e-12)


def test_panels_without_an_event_say_so(panels):
    assert said(w2_curves(panels).axes[IDENTITY_2]) == "no turnaround"
    assert "coincide" in said(distances(panels).axes[IDENTITY_2])
    assert "coincide" in said(titled(switch_times(panels))[IDENTITY_2])
    silent = panels[ALIGNED_2]
    for estimator in silent.switches.estimator.values:
        silent = with_status(silent, estimator, "absent")
    assert "30 absent" in said(switch_times([silent]).axes[0])


def test_cells_that_are_missing_leave_an_empty_panel_that_says_so(panels):
    panel = panels[ALIGNED_2]
    empty = replace(panel, curves=panel.curves * np.nan)
    assert "no cell has been measured" in said(w2_curves([empty]).axes[0])
    assert "no cell has been measured" in said(distances([empty]).axes[0])


def test_one_missing_seed_leaves_the_others_in_the_median(panels):
    panel = panels[ALIGNED_2]
    curves = panel.curves.copy(deep=True)
    curves.w2_metastable.loc[{"seed": 3}] = np.nan
    (line, *_) = marked(w2_curves([replace(panel, curves=curves)]).axes[0], "None")
    expected = np.median(panel.curves.w2_metastable[0].drop_sel(seed=3), axis=0)
    assert np.allclose(line.get_ydata(), expected, rtol=1e-12)


def test_switch_times_show_every_cell_by_status(panels):
    for axis, panel in zip(titled(switch_times(panels)), panels, strict=True):
        finite = np.isfinite(panel.shard.betas)
        for estimator in ("turnaround", "crossover"):
            value, status = (part[finite] for part in panel.events(estimator))
            lines = {line.get_label(): line for line in axis.lines}
            for name in ("observed", "under_resolved", "censored"):
                expected = np.sort(value[flagged(status, name)])
                line = lines.get(f"{estimator}, {name}")
                drawn = np.sort(line.get_ydata()) if line else []
                assert np.array_equal(drawn, expected)


def test_under_resolved_cells_are_open_and_observed_ones_filled(panels):
    axis = switch_times(panels).axes[ALIGNED_2]
    colour, marker = MARKS["turnaround"]
    faces = {line.get_label(): line.get_markerfacecolor() for line in marked(axis, marker)}
    assert to_hex(faces["turnaround, observed"]) == colour.lower()
    assert to_hex(faces["turnaround, under_resolved"]) == "#ffffff"


def test_censored_cells_are_arrows_at_their_bound_and_are_counted(panels):
    panel = with_status(panels[ALIGNED_2], "crossover", "censored", 16.0)
    axis, room = switch_times([panel]).axes
    arrows = [line for line in marked(axis, ARROW) if line.get_label() == "crossover, censored"]
    assert [line.get_ydata().tolist() for line in arrows] == [[16.0] * 24]
    assert np.unique(arrows[0].get_xdata()).size == 24
    labels = [text.get_text() for text in room.get_legend().get_texts()]
    assert "crossover: 30 censored" in labels


def test_fitted_and_predicted_lines_have_the_slopes_of_the_laws(panels):
    panel = panels[ALIGNED_2]
    law = panel.laws.sel(estimator="turnaround", law="log")
    axis, room = switch_times([panel]).axes
    colour = MARKS["turnaround"][0]
    fitted = next(
        line for line in axis.lines if line.get_color() == colour and line.get_ls() == "-"
    )
    predicted = next(line for line in axis.lines if line.get_color() == "black")
    for line, slope in ((fitted, law.slope), (predicted, law.predicted_slope)):
        assert np.polyfit(np.log(line.get_xdata()), line.get_ydata(), 1)[0] == pytest.approx(slope)
    value, status = panel.events("turnaround")
    seen = flagged(status, "observed", "under_resolved")[:4]
    centre = np.log(np.broadcast_to(np.c_[list(panel.shard.betas[:4])], seen.shape)[seen]).mean()
    height = np.interp(centre, np.log(predicted.get_xdata()), predicted.get_ydata())
    assert height == pytest.approx(value[:4][seen].mean())
    labels = " ".join(text.get_text() for text in room.get_legend().get_texts())
    for number in (law.slope, law.slope_low, law.slope_high, law.predicted_slope):
        assert f"{number.item():.3g}".replace("-", "\N{MINUS SIGN}") in labels


def test_the_law_in_beta_is_drawn_where_aic_prefers_it(panels):
    laws = panels[ALIGNED_2].laws.copy(deep=True)
    laws.aic.loc[{"estimator": "crossover", "law": "linear"}] = -1000.0
    axis, room = switch_times([replace(panels[ALIGNED_2], laws=laws)]).axes
    assert "by AIC" in " ".join(text.get_text() for text in room.get_legend().get_texts())
    dotted = next(line for line in axis.lines if line.get_ls() == ":")
    slope = np.polyfit(dotted.get_xdata(), dotted.get_ydata(), 1)[0]
    assert slope == pytest.approx(laws.slope.sel(estimator="crossover", law="linear").item())


def test_the_figure_grows_and_says_when_it_leaves_shards_out(panels):
    few, axes, _ = panel_grid(panels[:1] * 6, (2.0, 2.0))
    more, _, _ = panel_grid(panels[:1] * 12, (2.0, 2.0))
    assert len(axes) == 6
    assert tuple(more.get_size_inches()) == (7.0, 2 * few.get_size_inches()[1])
    capped, axes, _ = panel_grid(panels[:1] * 50, (2.0, 2.0))
    assert len(axes) == 48
    assert capped.get_suptitle() == "the first 48 of 50 shards"


def test_a_title_wider_than_its_panel_breaks_behind_the_family(panels):
    panel = panels[ALIGNED_2]
    long = replace(panel, shard=replace(panel.shard, family="a-head-of-an-encoder", gap=0.04836913))
    figure, axes, _ = panel_grid([panel, long, panel], (2.1, 1.9))
    figure.draw_without_rendering()
    assert "\n" not in axes[0].get_title()
    assert axes[1].get_title().startswith("a-head-of-an-encoder\n$d=2$, $\\gamma=0.04837$")
    for axis in axes:
        box = axis.title.get_window_extent().transformed(figure.transFigure.inverted())
        assert 0 <= box.x0 < box.x1 <= 1


def test_a_distance_that_hardly_moves_has_numbers_on_its_axis(panels):
    panel = panels[ALIGNED_2]
    curves = panel.curves.copy(deep=True)
    curves["w2_metastable"] = 1.4 + 0.01 * curves.w2_metastable / curves.w2_metastable.max()
    figure = w2_curves([replace(panel, curves=curves)])
    figure.draw_without_rendering()
    (axis,) = titled(figure)
    low, high = axis.get_ylim()
    assert sum(low <= tick <= high for tick in axis.get_yticks()) >= 3


def test_a_remark_stands_where_it_hides_least():
    axis = Figure().subplots()
    x = np.linspace(0, 1, 50)
    axis.plot(x, np.where(x < 0.5, 0.15, 0.75))  # low on the left, high on the right
    axis.set(xlim=(0, 1), ylim=(0, 1))
    say_in(axis, "nothing here", 0.8, 0.2)
    say_in(axis, "nor here", 0.95)
    assert [text.get_position()[1] for text in axis.texts] == [0.2, 0.95]


def test_legends_lengthen_the_figure_and_not_the_panels(panels):
    handles = beta_handles(beta_colours(panels))
    few, many = (panel_grid(panels[:1], (2.1, 1.9))[0] for _ in "ab")
    legend_below(few, handles[:1])
    legend_below(many, handles[:1] * 40)
    for figure in (few, many):
        figure.draw_without_rendering()
    heights = [f.axes[0].get_window_extent().height / f.dpi for f in (few, many)]
    assert heights[1] == pytest.approx(heights[0], rel=0.15)


def test_legends_name_only_what_is_drawn(panels):
    panel = panels[ALIGNED_2]
    one = replace(
        panel,
        shard=replace(panel.shard, seeds=panel.shard.seeds[:1]),
        bound=panel.bound.assign(predicted_decay_rate=np.nan * panel.bound.predicted_decay_rate),
    )
    for draw, name in ((w2_curves, "middle half of the seeds"), (bound_terms, "predicted decay")):
        for shown, expected in ((panel, True), (one, False)):
            (legend,) = draw([shown]).legends
            assert (name in [text.get_text() for text in legend.get_texts()]) == expected


@pytest.mark.parametrize(("width", "inches"), WIDTHS.items())
def test_figures_have_the_width_of_a_page_and_nothing_leaves_them(run, width, inches):
    for name, figure in draw_figures(*run, width=width):
        wide, high = figure.get_size_inches()
        assert 0.85 * inches < wide <= inches, name
        figure.draw_without_rendering()
        (legend,) = figure.legends
        box = legend.get_window_extent().transformed(figure.dpi_scale_trans.inverted())
        assert 0 <= box.x0 < box.x1 <= wide, name
        assert 0 <= box.y0 < box.y1 <= high, name


def test_a_width_that_is_none_is_refused(run):
    with pytest.raises(InputError, match="--width 3: must be one of single, double"):
        next(draw_figures(*run, width="3"))


def test_medians_take_censored_cells_as_later_than_everything(panels):
    panel = with_status(panels[ALIGNED_2], "exit", "observed", 2.0)
    censored = STATUSES.index("censored")
    panel.switches.status.loc[{"estimator": "exit", "seed": [0, 1]}] = censored
    assert (panel.median_event("exit") == 2.0).all()
    panel.switches.status.loc[{"estimator": "exit", "seed": [0, 1, 2]}] = censored
    assert np.isposinf(panel.median_event("exit")).all()
    assert np.isnan(with_status(panel, "exit", "absent").median_event("exit")).all()


# ---- tokens --------------------------------------------------------------------------------


def test_the_picture_shows_the_largest_beta_with_an_observed_crossover(run, panels):
    crossing = with_status(panels[ALIGNED_2], "crossover", "absent")
    at = {"estimator": "crossover", "beta": [8.0, 16.0], "seed": [2, 4]}
    crossing.switches.status.loc[at] = STATUSES.index("observed")
    crossing.switches.switch_time.loc[at] = 9.0
    orbit = read_orbit([crossing, *panels[1:]], 2, run[1])
    assert (orbit.shard.family, orbit.beta, orbit.seed) == ("aligned", 16.0, 2)
    assert orbit.crossover == 9.0
    never = with_status(panels[ALIGNED_2], "crossover", "absent")
    orbit = read_orbit([never, *panels[1:]], 2, run[1])
    assert (orbit.beta, orbit.seed) == (32.0, 0)
    assert [name for name, _ in orbit.moments()] == ["start", "metastable phase", "end"]


def test_tokens_are_told_apart_by_their_first_sign_along_e(run, panels):
    orbit = read_orbit(panels, 2, run[1])
    e = orbit.weights.dominant()[:, 0]
    assert np.array_equal(orbit.basin, orbit.tokens[0] @ e > 0)
    assert 0 < orbit.basin.sum() < len(orbit.basin)


@pytest.mark.parametrize(("d", "draw", "rows"), [(2, tokens_circle, 1), (3, tokens_sphere, 2)])
def test_markers_carry_the_mass_and_the_shape_of_their_basin(run, panels, d, draw, rows):
    orbit = read_orbit(panels, d, run[1])
    figure = draw(orbit)
    columns = len(orbit.moments())
    assert len(figure.axes) == rows * columns
    for column in np.reshape(figure.axes, (rows, columns)).T:
        areas = [np.sum(drawn.get_sizes()) for axis in column for drawn in axis.collections]
        area = np.reshape(areas, (rows, 2)).sum(axis=0)
        assert area[0] / area.sum() == pytest.approx(orbit.mass[orbit.basin].sum())
        shapes = [len(drawn.get_paths()[0].vertices) for drawn in column[0].collections]
        assert shapes[0] != shapes[1]


def test_a_dimension_without_cells_gives_a_picture_that_says_so(run, panels):
    empty = [replace(panel, curves=panel.curves * np.nan) for panel in panels]
    assert read_orbit(empty, 2, run[1]) is None
    assert "no cell" in said(tokens_circle(None).axes[0])
    assert "no cell" in said(tokens_sphere(None).axes[0])


def test_gathering_keeps_the_mass_and_the_unit_length():
    stream = np.random.default_rng(0)
    x = stream.standard_normal((500, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    mass = stream.dirichlet(np.ones(500))
    centre, total = gather(np.concatenate([x, x]), np.concatenate([mass, mass]) / 2)
    assert total.sum() == pytest.approx(1.0)
    assert np.linalg.norm(centre, axis=1) == pytest.approx(1.0)
    assert len(total) <= 500
    alone, one = gather(np.empty((0, 3)), np.empty(0))
    assert alone.shape == (0, 3)
    assert one.shape == (0,)


def test_the_projection_keeps_areas_and_the_camera_sees_both_spaces(panels):
    weights = panels[ALIGNED_3].weights
    view = camera(weights.dominant(), weights.terminal())
    assert view @ view.T == pytest.approx(np.eye(3))
    assert weights.dominant()[:, 0] @ view[2] > 0
    assert weights.terminal()[:, 0] @ view[2] > 0
    x = np.random.default_rng(1).standard_normal((100, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    height = 1.0 - np.abs(x @ view[2])  # Archimedes: the area of a cap is 2 pi times its height
    assert np.sum(project(x, view) ** 2, axis=1) == pytest.approx(height)
    assert camera(np.eye(3)[:, :1], np.eye(3)[:, :1]) @ np.eye(3)[0] == pytest.approx(
        camera(np.eye(3)[:, :1], np.eye(3)[:, 1:2]) @ np.eye(3)[0]
    )


def test_drawing_leaves_pyplot_alone():
    code = "import sys, mfsweep.plotting; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
