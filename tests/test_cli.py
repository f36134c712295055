import io
import json
import re
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pytest
import tiny_run
import yaml
from conftest import SMALL

ROOT = Path(__file__).parent.parent


def mfsweep(*arguments, folder):
    """Run the command line in a folder, with no environment activated."""
    return subprocess.run(
        [sys.executable, "-m", "mfsweep", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        check=False,
    )


def told(*arguments, folder):
    """Run the command line in this process; return what `mfsweep` returns."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), chdir(folder):
        code = tiny_run.mfsweep(*arguments)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def write(folder, name="config.yaml", **changes):
    """Write the small config with some keys changed; return its path."""
    path = folder / name
    path.write_text(yaml.safe_dump({**SMALL, **changes}))
    return path


def files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_a_starter_config_is_written_once_and_can_be_planned(tmp_path):
    assert told("init", folder=tmp_path).stdout.startswith("wrote my.yaml; next: mfsweep plan")
    assert "1 shards, 30 cells" in told("plan", "--config", "my.yaml", folder=tmp_path).stdout
    (tmp_path / "my.yaml").write_text("mine")
    again = told("init", "my.yaml", folder=tmp_path)
    assert again.returncode == 2
    assert again.stderr == "mfsweep: my.yaml exists and is kept: name another file\n"
    assert (tmp_path / "my.yaml").read_text() == "mine"


def test_a_key_is_explained(tmp_path):
    assert (
        "meaning  number of saved times" in told("explain", "time.n_times", folder=tmp_path).stdout
    )
    assert told("explain", "nothing", folder=tmp_path).returncode == 2


def test_one_run_through_every_verb_on_dask_workers(tmp_path):
    config = write(tmp_path)
    plan = mfsweep("plan", "--config", config, "--cores", 2, folder=tmp_path)
    assert "2 shards, 8 cells" in plan.stdout
    assert files(tmp_path) == [config]
    simulate = mfsweep("simulate", "--config", config, "--cores", 2, folder=tmp_path)
    assert simulate.returncode == 0, simulate.stderr
    assert (
        len(re.findall(r"4/4 done, 0 in flight, 0 failed, \S+ pairs/s, 0 s left", simulate.stderr))
        == 2
    )
    assert simulate.stderr.count("dashboard: http://127.0.0.1:") == 2
    status = mfsweep("status", "--config", config, folder=tmp_path)
    assert len(re.findall(r" 4 +0 +0 +no", status.stdout)) == 2
    again = mfsweep("simulate", "--config", config, folder=tmp_path)
    assert len(re.findall(r": 0 computed, 4 already done, 0 failed", again.stderr)) == 2
    log = tmp_path / "logs" / "measure.log"
    measure = mfsweep("measure", "--config", config, "--cores", 1, "--log", log, folder=tmp_path)
    assert measure.returncode == 0, measure.stderr
    assert log.read_text() == measure.stderr
    watched = mfsweep("status", "--config", config, "--watch", folder=tmp_path)
    assert len(re.findall(r" 4 +0 +0 +yes", watched.stdout)) == 2
    assert mfsweep("collect", "--config", config, folder=tmp_path).returncode == 0
    for name in ("curves", "switch_times", "laws", "bound"):
        assert (tmp_path / "results/small" / f"{name}.zarr/zarr.json").exists()
    done = json.loads(next(tmp_path.glob("results/small/shards/*/simulate.done")).read_text())
    assert done["cells"] == 4
    assert done["digest"]
    assert done["versions"]["mfsweep_version"]


BAD = {
    "unknown key": ({"gird": {}}, "gird"),
    "wrong type": ({"time": {"t_end": "long", "n_times": 17}}, "time.t_end"),
    "negative beta": ({"grid": {**SMALL["grid"], "beta": [4.0, -3.0]}}, "grid.beta[1] = -3.0"),
    "gap outside (0, 1)": ({"grid": {**SMALL["grid"], "gap": [1.5]}}, "grid.gap[0] = 1.5"),
    "d < 2": ({"grid": {**SMALL["grid"], "d": [1]}}, "grid.d[0] = 1"),
    "empty grid": ({"grid": {**SMALL["grid"], "beta": []}}, "grid.beta"),
    "duplicates": ({"grid": {**SMALL["grid"], "seed": [3, 3]}}, "grid.seed[1] = 3"),
}


@pytest.mark.parametrize("verb", ["plan", "simulate", "collect"])
@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_and_exit_2_and_writes_nothing(name, verb, tmp_path):
    changes, named = BAD[name]
    config = write(tmp_path, **changes)
    run = told(verb, "--config", config, folder=tmp_path)
    assert run.returncode == 2
    assert run.stdout == ""
    assert len(run.stderr.splitlines()) == 1
    assert named in run.stderr
    assert files(tmp_path) == [config]


def test_a_results_folder_of_another_config_is_refused_untouched(tmp_path):
    owner = write(tmp_path)
    assert told("simulate", "--config", owner, "--cores", 1, folder=tmp_path).returncode == 0
    other = write(tmp_path, "other.yaml", solver={"rtol": 1e-9})
    before = {path: path.stat().st_mtime_ns for path in files(tmp_path)}
    for verb in ("plan", "simulate", "measure", "collect", "status"):
        run = told(verb, "--config", other, folder=tmp_path)
        assert run.returncode == 2
        assert "run = 'small'" in run.stderr
        assert "config.yaml" in run.stderr
        assert len(run.stderr.splitlines()) == 1
    assert {path: path.stat().st_mtime_ns for path in files(tmp_path)} == before


def test_an_unwritable_results_folder_is_refused(tmp_path):
    config = write(tmp_path)
    (tmp_path / "results").write_text("a file where the folder should be")
    run = told("simulate", "--config", config, folder=tmp_path)
    assert run.returncode == 2
    assert "cannot be written" in run.stderr
    assert (tmp_path / "results").read_text() == "a file where the folder should be"


def test_a_plan_that_cannot_fit_is_refused(tmp_path):
    grid = {**SMALL["grid"], "n_tokens": [100_000], "seed": 10_000}
    config = write(tmp_path, grid=grid, time={"t_end": 1.0, "n_times": 1000})
    run = told("plan", "--config", config, folder=tmp_path)
    assert run.returncode == 2
    assert "GB on disk" in run.stderr
    assert "time.n_times" in run.stderr


def test_a_scheduler_that_does_not_answer_is_one_line(tmp_path):
    config = write(tmp_path)
    run = mfsweep(
        "simulate", "--config", config, "--dask-address", "tcp://127.0.0.1:9", folder=tmp_path
    )
    assert run.returncode == 2
    (line,) = run.stderr.splitlines()
    assert "the scheduler at tcp://127.0.0.1:9 does not answer" in line


def test_a_running_scheduler_is_used(tmp_path):
    from distributed import LocalCluster

    config = write(tmp_path)
    with LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        protocol="tcp",
        host="127.0.0.1",
        dashboard_address=None,
    ) as cluster:
        run = mfsweep(
            "simulate",
            "--config",
            config,
            "--dask-address",
            cluster.scheduler_address,
            folder=tmp_path,
        )
    assert run.returncode == 0, run.stderr
    assert len(re.findall("4 computed", run.stderr)) == 2


def test_an_unknown_shard_is_named(tmp_path):
    run = told("simulate", "--config", write(tmp_path), "--shard", "nowhere", folder=tmp_path)
    assert run.returncode == 2
    assert "--shard nowhere: not in this config" in run.stderr


def test_debug_shows_the_traceback(tmp_path):
    run = mfsweep("collect", "--config", write(tmp_path), "--debug", folder=tmp_path)
    assert run.returncode == 1
    assert "Traceback" in run.stderr
    plain = mfsweep("collect", "--config", write(tmp_path), folder=tmp_path)
    assert plain.returncode == 1
    assert plain.stderr.count("\n") == 1
    assert "no shard is measured" in plain.stderr


def test_a_file_family_runs_with_its_measured_d_and_gap(tmp_path):
    np.savez(tmp_path / "head.npz", V=np.diag([1.0, 0.5, 0.25]), B=np.eye(3))
    families = {"head": {"kind": "file", "path": "head.npz"}}
    config = write(tmp_path, grid={**SMALL["grid"], "family": ["head"]}, families=families)
    run = told("simulate", "--config", config, "--cores", 1, folder=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "head-d3-" in run.stderr


VERBS = (
    *("plan", "simulate", "measure", "collect", "plot", "report"),
    *("status", "prune", "verify", "show", "cluster", "init", "explain"),
)


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_every_verb_has_an_example_that_parses(verb, capsys):
    import typer

    from mfsweep.cli import app

    command = typer.main.get_command(app).commands[verb]
    (example,) = [line for line in command.help.splitlines() if line.startswith("Example: ")]
    program, named, *arguments = example.removeprefix("Example: ").split()
    assert (program, named) == ("mfsweep", verb)
    command.make_context(verb, arguments)


def test_every_verb_is_in_the_readme_and_tested_for_its_help():
    import typer

    from mfsweep.cli import app

    readme = (ROOT / "README.md").read_text()
    commands = typer.main.get_command(app).commands
    assert set(commands) == {*VERBS, "weights"}, "tests/test_heads.py looks after weights"
    assert all(f"\nmfsweep {verb} " in readme for verb in commands)
