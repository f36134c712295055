import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
import typer
import xarray as xr
import zarr

import mfsweep
from mfsweep.cli import app

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "README.md", ROOT / "config/README.md", *sorted(ROOT.glob(".github/*.md")))
VERBS = typer.main.get_command(app).commands
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
README = (ROOT / "README.md").read_text()
SPANS = SPAN.findall(FENCE.sub("", README))


def blocks(*languages):
    """The code blocks of README.md that are marked with one of these languages."""
    return [text for language, text in FENCE.findall(README) if language in languages]


# ---- Python --------------------------------------------------------------------------------------


@pytest.fixture
def demo(run, tmp_path, monkeypatch):
    """A folder that holds a small finished run under the name and the token number of the demo."""
    from mfsweep.sweep.config import load_config
    from mfsweep.sweep.grid import shards

    shutil.copytree(run[1], tmp_path / "results/demo")
    config = load_config(ROOT / "config/config.yaml")
    (tokens,) = {one.n_tokens for one in shards(config) if (one.family, one.d) == ("aligned", 2)}
    for name in ("curves", "switch_times", "laws", "bound"):
        zarr.open_group(tmp_path / f"results/demo/{name}.zarr")["n_tokens"][:] = tokens
    monkeypatch.chdir(tmp_path)
    return tmp_path / "results/demo"


def test_the_python_of_the_readme_runs_on_a_finished_run(demo, capsys):
    names = {}
    for block in blocks("python"):
        exec(block, names)
    assert names["w2"].dims == ("beta", "time")
    assert np.isfinite(names["w2"]).all()
    assert (names["switches"].switch_time > 0).any()
    assert "slope_high" in capsys.readouterr().out


def test_the_stores_of_the_readme_have_the_dims_and_the_names_it_tells(demo):
    rows = re.findall(r"^\| `(\w+)\.zarr` \| (.*?) \| (.*) \|$", README, re.MULTILINE)
    assert [name for name, _, _ in rows] == ["curves", "switch_times", "laws", "bound"]
    for name, dims, holds in rows:
        store = xr.open_zarr(demo / f"{name}.zarr", consolidated=False)
        assert set(dims.split(", ")) == set(store.sizes) - {"cell_status"}
        assert {word for word in SPAN.findall(holds) if word[0] != "_"} <= set(store.data_vars)


def test_the_names_of_the_package_in_the_readme_are_public():
    named = {name for span in SPANS for name in re.findall(r"\bmfsweep\.([a-z_]\w*)", span)}
    assert {"open_results", "select", "simulate", "switch_times"} <= named <= set(mfsweep.__all__)


# ---- the command line ----------------------------------------------------------------------------


def options(verb):
    return {name for parameter in VERBS[verb].params for name in parameter.opts}


def commands():
    """Yield the verb and the arguments of each mfsweep command, environment variables left out."""
    shell = [part for block in blocks("bash") for part in re.split("&&|\n", block)]
    for text in (*SPANS, *shell):
        if "mfsweep " in text:
            program, *words = shlex.split(re.sub(r"^\s*([A-Z_]+=\S+ )*", "", text))
            if Path(program).name == "mfsweep":
                yield words[0], words[1:]


def test_the_commands_of_the_readme_parse():
    found = list(commands())
    assert {verb for verb, _ in found} >= {"simulate", "cluster", "explain", "show", "verify"}
    for verb, arguments in found:
        assert verb in VERBS
        if arguments:  # else it is only named
            VERBS[verb].make_context(verb, arguments)


def test_the_list_of_verbs_in_the_readme_names_options_that_they_have():
    lines = [line for block in blocks("") for line in block.splitlines()]
    listed = [line.removeprefix("mfsweep ") for line in lines if line.startswith("mfsweep ")]
    assert {line.split()[0] for line in listed} == set(VERBS)
    for line in listed:
        assert set(re.findall(r"--[a-z-]+", line)) <= options(line.split()[0])


def test_every_option_of_mfsweep_in_the_readme_exists():
    every = set().union(*map(options, VERBS)) | {"--unlock", "--rerun-incomplete"}  # Snakemake's
    named = {found[0] for span in SPANS if (found := re.match(r"--[a-z-]+", span))}
    assert {"--dask", "--memory", "--sbatch"} <= named
    assert named <= every


# ---- links ---------------------------------------------------------------------------------------


def anchors(text):
    """The anchors that GitHub gives to the headings of a page."""
    lines = re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).strip().replace(" ", "-") for line in lines}


def broken(page, text):
    """Return the links and paths of a page that lead to nothing in this repository."""
    prose = FENCE.sub("", text)
    links = re.findall(r"\]\(([^)\s]+)[^)]*\)", SPAN.sub("", prose))
    links += re.findall(r"(?:src|href)=\"([^\"]+)\"", prose)
    lost = []
    for link in links:
        path, _, anchor = link.partition("#")
        target = page.parent / path
        there = target.read_text() if path and anchor and target.is_file() else text
        found = target.exists() and (not anchor or anchor in anchors(there))
        if not found and not re.match("[a-z]+:", link):
            lost.append(link)
    inside = r"(?:config|examples|mfsweep|tests|workflow|\.github)/[\w./-]+"
    paths = [span for span in SPAN.findall(prose) if re.fullmatch(inside, span)]
    return lost + [path for path in paths if not (ROOT / path).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_figure_and_path_leads_somewhere(page):
    assert broken(page, page.read_text()) == []


def test_what_leads_nowhere_is_found():
    text = """# A title, with `code`
        [here](#a-title-with-code) [key](config/README.md#run) [web](https://example.org)
        `config/config.yaml` [1](#another) ![2](.github/figures/none.png)
        [3](config/README.md#runs) <img src="4.png"> `tests/5.py`
    """
    lost = ["#another", ".github/figures/none.png", "config/README.md#runs", "4.png", "tests/5.py"]
    assert broken(ROOT / "README.md", text) == lost
