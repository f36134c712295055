"""The page of a run in a real browser, by keyboard and by mouse."""

import csv
import re
import shutil

import numpy as np
import pytest
from playwright.sync_api import sync_playwright
from shown import assert_shows_the_laws, in_csv

from mfsweep.report.moving import frame_indices, read_orbits

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
SWITCHES = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
CONTROLS = "a, button, input, select, summary, [tabindex='0']"
TABLES = ("laws", "assumptions", "terminal", "bound")
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no Chromium: apt-get install chromium")

DRAWN = """plot => [...plot.querySelectorAll(".scatterlayer .trace")].map(node => {
  const trace = node.__data__[0].trace, { xaxis, yaxis } = plot._fullLayout;
  const of = ([x, y]) => [xaxis.p2d(Number(x)), yaxis.p2d(Number(y))];
  const pairs = text => text.match(/-?[\\d.]+,-?[\\d.]+/g).map(pair => of(pair.split(",")));
  const points = [...node.querySelectorAll(".point")];
  return {
    name: trace.name,
    line: [...node.querySelectorAll(".js-line")].flatMap(line => pairs(line.getAttribute("d"))),
    dash: [...node.querySelectorAll(".js-line")].map(line => line.style.strokeDasharray),
    points: points.flatMap(point => pairs(point.getAttribute("transform"))),
    shapes: [...new Set(points.map(point => point.getAttribute("d")))],
  };
})"""
"""The traces of a plot as they stand in its SVG, in the units of its axes."""

COLOURS = """() => [...document.querySelectorAll("body *")].filter(element => {
  const own = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
  return own && element.checkVisibility() && !element.closest("script, style");
}).map(element => {
  let behind = element;
  const ground = () => getComputedStyle(behind).backgroundColor;
  while (behind.parentElement && ground() === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
  const style = getComputedStyle(element);
  return [element instanceof SVGElement ? style.fill : style.color, ground()];
})"""
"""Colour and background of every element that has text of its own."""


@pytest.fixture(scope="module")
def heard():
    """Errors of the page, and what it asks the network for."""
    return []


@pytest.fixture(scope="module")
def page(report, heard):
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=SWITCHES)
        page = browser.new_page(viewport={"width": 1600, "height": 900})
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: heard.append(f"uncaught {error}"))
        page.on("console", lambda said: said.type == "error" and heard.append(said.text))
        page.on("request", lambda request: heard.append(request.url))
        page.goto(report.as_uri())
        yield page
        browser.close()


@pytest.fixture(autouse=True)
def _quiet(page, heard):
    """Whatever a test does, the page makes no error and asks the network for nothing."""
    yield
    told, heard[:] = [one for one in heard if not one.startswith(("data:", page.url))], []
    assert told == []


def seen(page, plot):
    """A plot that is drawn when it comes near the window, once it is drawn."""
    picture = page.locator(f"#{plot}")
    picture.scroll_into_view_if_needed()
    ready = "plot => plot.drawn ? plot.drawn.then(() => true) : false"
    page.wait_for_function(ready, arg=picture.element_handle())
    return picture


def drawn(page, plot="w2"):
    if plot != "w2":
        seen(page, plot)
    return {trace["name"]: trace for trace in page.locator(f"#{plot}").evaluate(DRAWN)}


def form(page, d):
    seen(page, f"tokens-{d}")
    controls = page.locator(f"form[data-plot=tokens-{d}]")
    return (
        controls.get_by_role("button"),
        controls.get_by_role("slider"),
        controls.locator("output"),
    )


def press(page, control, key, times=1):
    control.focus()
    for _ in range(times):
        page.keyboard.press(key)


def table(page, name):
    rows = "table => [...table.rows].map(row => [...row.cells].map(cell => cell.textContent))"
    return page.locator(f"#{name}").evaluate(rows)


def download(page, name):
    with page.expect_download() as waiting:
        page.get_by_role("link", name=f"{name}.csv").click()
    assert waiting.value.suggested_filename == f"{name}.csv"
    with waiting.value.path().open(newline="") as file:
        return list(csv.reader(file))


def test_the_page_opens_from_disk_with_the_answer_in_view(page, report):
    assert page.url == report.as_uri()
    page.evaluate("scrollTo(0, 0)")
    for shown in (page.locator(".answer"), page.get_by_role("columnheader", name="verdict")):
        assert shown.bounding_box()["y"] < 900
        assert shown.bounding_box()["x"] < 1600 - 200


def test_the_slider_and_the_choice_of_shard_move_the_curve(page, panels):
    slider, choice = (
        page.get_by_role("slider", name="beta"),
        page.get_by_role("combobox", name="Shard"),
    )
    for k, panel in enumerate(panels):
        press(page, slider, "Home")
        choice.select_option(index=k)
        for beta in panel.shard.betas:
            assert page.locator("#w2-value").text_content() == f"beta = {beta:g}"
            assert slider.get_attribute("aria-valuetext") == f"beta = {beta:g}"
            t, w2 = np.transpose(drawn(page)["median over seeds"]["line"])
            median = panel.curves.w2_metastable.sel(beta=beta).median("seed")
            expected = np.interp(t, panel.curves.time, np.log(median))
            assert np.allclose(np.log(w2), expected, atol=0.03)
            assert (t.min(), t.max()) == pytest.approx((0, 16), abs=0.05)
            press(page, slider, "ArrowRight")
    choice.select_option(index=0)


def test_the_terms_of_the_bound_and_the_switch_times_are_drawn(page, panels):
    press(page, page.get_by_role("slider", name="beta"), "Home")
    traces = drawn(page)
    t, guide = np.transpose(traces["guide e<sup>\N{MINUS SIGN}ct</sup>"]["line"])
    rate = panels[0].weights.assumptions().rate
    assert np.polyfit(t, np.log(guide), 1)[0] == pytest.approx(-rate, rel=0.02)
    level = traces["guide √(log(β+1)/β)"]["line"]
    assert [w2 for _, w2 in level] == pytest.approx([np.sqrt(np.log(5) / 4)] * len(level), rel=0.02)
    marks = {name.split()[1]: trace["points"] for name, trace in traces.items() if trace["points"]}
    assert marks.keys() == {"turnaround:", "exit:", "crossover:"}
    for name, ((when, _),) in marks.items():
        assert when == pytest.approx(panels[0].median_event(name[:-1])[0], abs=0.05)
    assert page.locator("#w2 .ytitle").text_content() == "W2 (dimensionless)"
    assert page.locator("#w2 .xtitle").text_content() == "time t (dimensionless)"


@pytest.mark.parametrize("d", [2, 3])
def test_tokens_are_drawn_when_they_come_near_the_window_and_not_before(page, report, d):
    other = page.context.browser.new_page(viewport={"width": 1600, "height": 900})
    other.goto(report.as_uri())
    other.wait_for_timeout(300)
    assert other.locator(".later svg, .later canvas").count() == 0
    assert seen(other, f"tokens-{d}").locator("svg").count() > 0
    other.close()


def test_tokens_that_nobody_has_seen_can_be_played(page, report):
    other = page.context.browser.new_page(viewport={"width": 1600, "height": 900})
    other.goto(report.as_uri())
    controls = other.locator("form[data-plot=tokens-3]")
    controls.get_by_role("button").evaluate("button => button.click()")
    other.wait_for_function("() => document.querySelector('#tokens-3 canvas')")
    slider = controls.get_by_role("slider").element_handle()
    other.wait_for_function("slider => slider.value > 1", arg=slider)
    other.close()


def test_the_tokens_on_the_circle_stand_where_they_are_stored_(page, run, panels):
    orbit = read_orbits(panels, run[1])[2]
    _, time, said = form(page, 2)
    frames = frame_indices(orbit)
    for key, k in (("Home", 0), ("ArrowRight", frames[1]), ("End", frames[-1])):
        press(page, time, key)
        assert (
            said.text_content()
            == time.get_attribute("aria-valuetext")
            == f"t = {orbit.times[k]:.4g}"
        )
        traces = drawn(page, "tokens-2")
        for name, basin in (("+e", orbit.basin), ("\N{MINUS SIGN}e", ~orbit.basin)):
            x = np.array(traces[f"bound for {name}"]["points"])
            x /= np.linalg.norm(x, axis=1)[:, None]
            assert np.allclose(x, orbit.tokens[k][basin], atol=0.02)


@pytest.mark.parametrize("d", [2, 3])
def test_the_time_can_be_moved_faster_than_tokens_are_drawn(page, d):
    _, time, said = form(page, d)
    time.evaluate(
        "slider => { for (const t of [0, 20, 5, 30, 9]) {"
        " slider.value = t; slider.dispatchEvent(new Event('input')); } }"
    )
    page.wait_for_timeout(300)
    assert said.text_content() == "t = 4.5"


def test_basins_and_eigenspaces_differ_in_shape_and_dash(page, run, panels):
    orbit, traces = read_orbits(panels, run[1])[2], drawn(page, "tokens-2")
    (disc,), (diamond,) = (
        traces[f"bound for {name}"]["shapes"] for name in ("+e", "\N{MINUS SIGN}e")
    )
    assert disc != diamond
    of_a, of_v = (
        traces[f"{name}"] for name in ("A's dominant eigenspace E", "V's dominant eigenspace")
    )
    assert of_a["dash"] != of_v["dash"]
    for trace, basis in ((of_a, orbit.dominant), (of_v, orbit.weights.terminal())):
        assert np.abs(trace["line"] @ np.array([[0, 1], [-1, 0]]) @ basis).max() < 0.02


@pytest.mark.parametrize("d", [2, 3])
def test_play_moves_the_tokens_and_pause_stops_them(page, d):
    button, time, said = form(page, d)
    press(page, time, "Home")
    picture = page.locator(f"#tokens-{d}")
    at_the_start = picture.screenshot()
    button.click()
    assert button.text_content() == "Pause"
    page.wait_for_function("slider => slider.value > 1", arg=time.element_handle())
    button.click()
    assert button.text_content() == "Play"
    when, stopped = said.text_content(), picture.screenshot()
    assert when != "t = 0"
    assert stopped != at_the_start
    page.wait_for_timeout(400)
    assert (said.text_content(), picture.screenshot()) == (when, stopped)


@pytest.mark.parametrize("d", [2, 3])
def test_play_stops_at_the_end_and_begins_again(page, d):
    button, time, said = form(page, d)
    press(page, time, "End")
    assert said.text_content() == "t = 16"
    press(page, time, "ArrowLeft")
    press(page, button, "Enter")
    page.wait_for_function("button => button.textContent === 'Play'", arg=button.element_handle())
    assert said.text_content() == "t = 16"
    press(page, button, "Space")
    page.wait_for_function(
        "slider => slider.value > 0 && slider.value < 9", arg=time.element_handle()
    )
    press(page, time, "End")
    assert button.text_content() == "Play"


def test_the_law_table_and_its_download_equal_the_store(page, run):
    assert_shows_the_laws(table(page, "laws"), run[1])
    assert_shows_the_laws(download(page, "laws"), run[1])


@pytest.mark.parametrize("name", TABLES)
def test_each_download_equals_its_table(page, name):
    assert page.locator("table").count() == len(TABLES)
    assert download(page, name) == [in_csv(row) for row in table(page, name)]


def test_the_tab_key_reaches_every_control_where_it_can_be_seen(page):
    controls = page.locator(CONTROLS)
    place = f"[...document.querySelectorAll({CONTROLS!r})].indexOf(document.activeElement)"
    seen = "e => e.checkVisibility({ opacityProperty: true, visibilityProperty: true })"
    controls.first.focus()
    for k in range(controls.count()):
        assert page.evaluate(place) == k
        assert page.evaluate(f"({seen})(document.activeElement)")
        assert (
            page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
            or k == 0
        )
        page.keyboard.press("Tab")
    assert page.evaluate(place) == -1


def test_every_control_and_plot_has_a_name(page):
    outline = page.locator("body").aria_snapshot()
    for role, names in (
        ("combobox", ["Shard"]),
        ("slider", ["beta", "time", "time"]),
        ("button", ["Play", "Play"]),
        ("link", [f"Download {name}.csv" for name in TABLES]),
    ):
        assert re.findall(rf'- {role} "(.*?)"', outline) == names
    assert len(re.findall(r'- .?img "', outline)) == 6
    assert len(re.findall(r'- .?group "(Interactive curves|Tokens moving) ', outline)) == 3


@pytest.mark.parametrize("width", [400, 1600])
def test_everything_is_within_reach_on_narrow_and_wide_screens(page, width):
    page.set_viewport_size({"width": width, "height": 900})
    page.wait_for_function(
        "[...document.querySelectorAll('.main-svg')].every("
        "svg => svg.getBoundingClientRect().right <= innerWidth)"
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for control in page.locator(CONTROLS).all():
        control.click(trial=True)
        box = control.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width


def test_all_text_stands_out_from_its_ground(page):
    def brightness(colour):
        channels = np.array([float(c) for c in re.findall(r"[\d.]+", colour)[:3]]) / 255
        linear = np.where(channels > 0.04045, ((channels + 0.055) / 1.055) ** 2.4, channels / 12.92)
        return linear @ [0.2126, 0.7152, 0.0722] + 0.05

    pairs = {tuple(pair) for pair in page.evaluate(COLOURS)}
    assert len(pairs) > 3
    for pair in pairs:
        dark, light = sorted(map(brightness, pair))
        assert light / dark >= 4.5, pair
