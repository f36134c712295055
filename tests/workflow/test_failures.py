"""What fails in Snakemake: a cell, of which the rest goes on; a profile, which runs nothing."""

import shutil
import subprocess
import sys

import pytest
from snake import ROOT, planned, snakemake
from tiny_run import write_config

from mfsweep.sweep.config import load_config
from mfsweep.sweep.grid import shards

pytestmark = pytest.mark.workflow
BREAK = """
import sys
if "simulate" in sys.orig_argv:
    from mfsweep.sweep import execute
    run_cell = execute.run_cell
    def failing(config, cell, keep):
        if (cell.family, cell.beta, cell.seed) == ("a", 4.0, 1):
            raise ValueError("no luck")
        return run_cell(config, cell, keep)
    execute.run_cell = failing
"""


def test_a_failed_cell_leaves_the_rest_and_a_page_that_names_it_and_is_planned_again(tmp_path):
    families = {"a": {"kind": "aligned"}, "i": {"kind": "identity"}}
    file = write_config(tmp_path, grid={"family": ["a", "i"]}, families=families)
    first, second = shards(load_config(file))
    (tmp_path / "sitecustomize.py").write_text(BREAK)
    python = {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    run = snakemake(tmp_path, "--keep-going", check=False, env=python)
    assert run.returncode == 1
    assert f"mfsweep: {first.id} beta = 4 seed = 1: ValueError: no luck" in run.stderr
    results = tmp_path / "results/tiny"
    done = {path.parent.name + path.name for path in results.glob("shards/*/*.done")}
    assert done == {f"{second.id}{name}.done" for name in ("simulate", "measure")}
    page = (results / "report.html").read_text()
    assert "1 of 8 cells failed" in page
    assert "ValueError: no luck" in page
    command = [sys.executable, "-m", "mfsweep", "status", "--config", "config.yaml"]
    status = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert f"failed: {first.id} beta = 4 seed = 1: ValueError: no luck" in status.stdout
    assert planned(tmp_path) == {*("simulate", "measure", "collect", "figures", "report", "all")}


def test_the_profile_of_slurm_without_sbatch_is_refused_in_one_line_and_nothing_runs(tmp_path):
    write_config(tmp_path)
    for program in ("sh", "bash", "which"):  # the last is the executor's
        (tmp_path / program).symlink_to(shutil.which(program))
    options = ("--workflow-profile", ROOT / "workflow/profiles/slurm")
    run = snakemake(tmp_path, *options, check=False, env={"PATH": str(tmp_path)})
    assert run.returncode == 1
    (line,) = (line for line in run.stderr.splitlines() if line.startswith("mfsweep: "))
    assert line.startswith("mfsweep: --workflow-profile: there is no sbatch on the path: run this")
    assert "rule simulate" not in run.stderr
    assert not [*tmp_path.glob("results/tiny/locks/*.json")]
