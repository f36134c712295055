import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import xarray as xr
import yaml
from snake import ROOT, planned, snakemake

TINY = yaml.safe_load((ROOT / "tests/workflow/tiny.yaml").read_text())

pytestmark = pytest.mark.workflow


def write(folder, **changes):
    (folder / "config.yaml").write_text(yaml.safe_dump({**TINY, **changes}))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder in which the tiny sweep has run."""
    folder = tmp_path_factory.mktemp("sweep")
    write(folder)
    return folder, snakemake(folder)


def test_one_command_makes_stores_figures_and_the_page(finished):
    folder, run = finished
    results = folder / "results/tiny"
    assert (results / "report.html").stat().st_size > 10_000
    for name in ("curves", "switch_times", "laws", "bound"):
        assert xr.open_zarr(results / f"{name}.zarr", consolidated=False).sizes["d"] == 2
    names = {path.name for path in (results / "figures").iterdir()}
    expected = ("w2_curves", "distances", "switch_times", "bound_terms", "continuum")
    expected += ("tokens_circle", "tokens_sphere")
    assert names == {f"{name}.png" for name in expected}
    last = run.stdout.splitlines()[-6:]
    assert [line.split()[0] for line in last] == ["report", "figures", *4 * ["store"]]


def test_snakemakes_own_report_holds_every_result_with_caption_category_and_labels(
    finished, tmp_path
):
    folder, _ = finished
    snakemake(folder, "--report", tmp_path / "report.zip")
    with zipfile.ZipFile(tmp_path / "report.zip") as file:
        held = {name: file.read(name) for name in file.namelist()}
    page = held["report/report.html"].decode()

    def told(name):
        return json.JSONDecoder().raw_decode(page.rpartition(f"var {name} = ")[2])[0]

    figures = [
        f"results/tiny/figures/{path.name}" for path in folder.glob("results/tiny/figures/*")
    ]
    assert told("categories") == {
        "Figures": {"Other": sorted(figures)},
        "Page": {"Other": ["results/tiny/report.html"]},
    }
    labels = {path: Path(path).stem.replace("_", " ") for path in figures}
    labels["results/tiny/report.html"] = "report page"
    results = told("results")
    assert set(results) == set(labels)
    for path, result in results.items():
        assert held[f"report/{result['data_uri']}"] == (folder / path).read_bytes()
        assert result["labels"] == {"figure": labels[path], "format": Path(path).suffix[1:]}
        assert len(re.sub("<.*?>", "", result["caption"] or "").split()) > 10, path
    assert "sweep of mean-field self-attention" in told("workflow_desc")


def test_a_second_run_does_nothing(finished):
    folder, _ = finished
    assert planned(folder) == set()


def test_a_figure_setting_runs_figures_only(finished):
    folder, _ = finished
    write(folder, figures={"formats": ["png"], "dpi": 81})
    assert planned(folder) == {"figures", "all"}
    write(folder)
    assert planned(folder) == set()


def test_a_comment_runs_nothing(finished):
    folder, _ = finished
    write(folder)
    with (folder / "config.yaml").open("a") as file:
        file.write("# a thought\n")
    assert planned(folder) == set()


def test_another_tolerance_runs_the_simulations(finished):
    folder, _ = finished
    write(folder, solver={"rtol": 1e-7})
    assert {"simulate", "measure", "collect", "figures", "report"} <= planned(folder)
    write(folder)


def test_the_snakefile_and_the_command_line_agree_on_every_digest(finished):
    from mfsweep.sweep.config import load_config
    from mfsweep.sweep.grid import measure_digest, shards, simulate_digest

    folder, _ = finished
    config = load_config(folder / "config.yaml")
    for shard in shards(config):
        for rule, digest in (("simulate", simulate_digest), ("measure", measure_digest)):
            done = folder / "results/tiny/shards" / shard.id / f"{rule}.done"
            assert json.loads(done.read_text())["digest"] == digest(config, shard)


def jobs(folder):
    """How many jobs of each rule a dry run would run."""
    out = snakemake(folder, "--dry-run").stdout
    return {rule: int(count) for rule, count in re.findall(r"^(\w+) +(\d+)$", out, re.MULTILINE)}


def care(folder, *arguments):
    command = [sys.executable, "-m", "mfsweep", *arguments, "--config", "config.yaml"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def test_the_dry_run_of_a_finished_sweep_plans_what_repair_takes_away(finished, tmp_path):
    shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)
    run = tmp_path / "results/tiny"
    after, planned = ["simulate", "measure", "collect", "figures", "report", "all", "total"], []
    for first, path in (
        (2, run / "laws.zarr/slope/c/0/0/0/0/0/0"),
        (1, next(run.glob("shards/*/curves.zarr/ess_median/c/*/*/*"))),
        (0, next(run.glob("shards/*/trajectories.zarr/tokens/c/0/1/0/0/0"))),
    ):
        flip(path)
        assert list(jobs(tmp_path)) == planned
        assert care(tmp_path, "verify", "--repair").returncode == 1
        planned = after[first:]
        assert list(jobs(tmp_path)) == planned


def test_the_dry_run_of_a_smaller_grid_plans_no_simulation_and_prune_changes_nothing(
    finished, tmp_path
):
    shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)
    write(tmp_path, grid={**TINY["grid"], "beta": {"geom": [4, 16, 3]}})
    before = jobs(tmp_path)
    assert before["measure"] == 4
    assert "simulate" not in before
    pruned = care(tmp_path, "prune", "--yes")
    assert "cells at beta = 32" in pruned.stdout
    assert jobs(tmp_path) == before
    write(tmp_path)
    assert jobs(tmp_path)["simulate"] == 4


def test_bad_input_is_one_line_and_exit_2(tmp_path):
    write(tmp_path, grid={**TINY["grid"], "beta": [-1.0]})
    run = snakemake(tmp_path, check=False)
    assert run.returncode == 2
    ours = [line for line in run.stderr.splitlines() if line.startswith("mfsweep:")]
    assert len(ours) == 1
    assert "grid.beta[0] = -1.0" in ours[0]
    assert "Traceback" not in run.stderr
    assert not (tmp_path / "results").exists()


def test_config_values_on_the_command_line_are_refused(tmp_path):
    write(tmp_path)
    run = snakemake(tmp_path, "--config", "run=other", check=False)
    assert run.returncode == 2
    assert "--config and several --configfile are not taken" in run.stderr


def test_lint_and_format_are_clean():
    lint = subprocess.run(
        [sys.executable, "-m", "snakemake", "--lint"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert lint.returncode == 0, lint.stdout + lint.stderr
