"""Two heads of a real encoder through Snakemake: one with a metastable target, one without."""

import re
from shutil import copy

import numpy as np
import pytest
import tiny_run
import yaml
from encoders import minilm
from snake import ROOT, snakemake

from mfsweep import open_results
from mfsweep._types import STATUSES
from mfsweep.sweep.config import load_config
from mfsweep.sweep.grid import shards

pytestmark = pytest.mark.workflow
CONFIG = {
    "run": "encoder",
    "grid": {
        "family": ["mini"],
        "d": [384],
        "gap": [0.5],
        "n_tokens": [64],
        "beta": [13, 27],
        "seed": 1,
    },
    "families": {"mini": {"kind": "file", "path": "heads/head?.npz"}},
    "initial": {"distribution": "file", "path": "tokens.npz"},
    "time": {"t_end": 10.0, "n_times": 21},
    "figures": {"formats": ["png"], "dpi": 60},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder in which the sweep has run."""
    model, folder = minilm(), tmp_path_factory.mktemp("encoder")
    (folder / "heads").mkdir()
    for head in (0, 2):
        asked = ("--layer", 0, "--head", head, "--out", folder / f"heads/head{head}.npz")
        assert tiny_run.mfsweep("weights", "extract", model, *asked) == 0
    asked = ("--rows", 100, "--out", folder / "tokens.npz")
    assert tiny_run.mfsweep("weights", "tokens", model, *asked) == 0
    (folder / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    snakemake(folder, env={"OPENBLAS_NUM_THREADS": "1"})  # more wait longer than they work
    return folder


def part(folder, store, family):
    """One family's part of a collected store, at its own d and gap."""
    found = open_results(folder / "results/encoder")[store].to_dataset().sel(family=family)
    held = found["w2_stability" if store == "curves" else "misalignment"]
    for dim in ("d", "gap"):
        known = np.isfinite(held).any([name for name in held.dims if name != dim])
        found, held = found.sel({dim: held[dim][known]}), held.sel({dim: held[dim][known]})
    return found


def test_a_head_that_breaks_assumption_1_has_curves_and_statuses_and_no_prediction(folder):
    curves = part(folder, "curves", "mini-head0")
    assert curves.d == [384]
    for name in ("w2_coupling", "w2_metastable", "distance_dominant", "distance_terminal"):
        assert np.isfinite(curves[name]).all(), name
    laws = part(folder, "laws", "mini-head0")
    assert np.isnan(laws.predicted_slope).all()
    assert laws.counts.sel(cell_status="missing").sum() == 0
    assert laws.counts.isel(law=0).sum("cell_status").values.ravel().tolist() == 4 * [2]


def test_a_head_without_a_metastable_target_has_what_does_not_speak_of_one(folder):
    curves = part(folder, "curves", "mini-head2")
    assert np.isfinite(curves.distance_terminal).all()
    assert np.isfinite(curves.w2_stability).all()
    assert np.isnan(curves.w2_coupling).all()
    switches = open_results(folder / "results/encoder")["switch_times"].to_dataset()
    status = switches.status.sel(family="mini-head2").values
    assert set(status[status != 0]) == {STATUSES.index("absent")}
    assert (status != 0).sum() == 8


def test_the_page_says_what_of_assumption_1_does_not_hold(folder):
    page = (folder / "results/encoder/report.html").read_text()
    table = page[page.index('<table id="assumptions">') :]
    rows = {
        name: re.findall("<td>(.*?)</td>", table[: table.index("</table>")].split(name)[1])
        for name in ("mini-head0", "mini-head2")
    }
    assert rows["mini-head0"][3] == rows["mini-head2"][3] == "32"
    assert rows["mini-head0"][11] == "0.1376, real"
    assert rows["mini-head2"][11] == "7.136 ± 0.1945 i, complex"
    assert rows["mini-head0"][13] == "violated: B invertible, A symmetric"


@pytest.mark.parametrize("name", ["encoder", "encoder_uniform"])
def test_the_configs_that_come_along_ask_for_what_the_readme_tells(tmp_path, name):
    (tmp_path / "heads").mkdir()
    rng = np.random.default_rng(0)
    for head in ("0-head0", "0-head5", "2-head4", "3-head10", "5-head0"):
        V, B = rng.standard_normal((2, 6, 6))
        np.savez(tmp_path / f"heads/layer{head}.npz", V=V, B=B)
    np.savez(tmp_path / "heads/tokens.npz", tokens=rng.standard_normal((9000, 6)))
    copy(ROOT / f"config/{name}.yaml", tmp_path)
    asked = shards(load_config(tmp_path / f"{name}.yaml"))
    assert sum(len(shard.betas) for shard in asked) == 55
    large = [shard.family for shard in asked if shard.n_tokens == 8000]
    assert large == ["L0H5", "L2H4"]
    assert {shard.betas for shard in asked} == {(32, 64, 128, 256, 512)}
