import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import xarray as xr
from tiny_run import changed, mfsweep, run_all, write_config

from mfsweep import open_results
from mfsweep.sweep.config import Config, load_config
from mfsweep.sweep.folder import simulate_mark, simulated
from mfsweep.sweep.grid import shards, simulate_digest
from mfsweep.sweep.unasked import leftovers, prune, unasked
from mfsweep.sweep.verify import damage, repair

INF = float("inf")
WIDE = {"gap": [0.25, 0.5], "beta": [1.0, 4.0, INF], "seed": [0, 1, 7]}
NARROW = {"gap": [0.5], "beta": [1.0, INF], "seed": [0, 7]}


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wide")
    assert run_all(write_config(folder, grid=WIDE), folder / "results/tiny") == 18
    return folder


@pytest.fixture
def shrunk(wide, tmp_path):
    """The config file and run folder of the wide run, whose config now asks for less."""
    shutil.copytree(wide, tmp_path, dirs_exist_ok=True)
    (tmp_path / "results/tiny/logs").mkdir()
    gone, stays = shards(Config.model_validate(changed(grid=WIDE)))
    for shard in (gone, stays):
        (tmp_path / f"results/tiny/logs/simulate-{shard.id}.log").write_text("")
    return write_config(tmp_path, grid=NARROW), tmp_path / "results/tiny"


def contents(folder):
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def tokens(folder, config):
    path = folder / "shards" / shards(config)[0].id / "trajectories.zarr"
    data = xr.open_zarr(path, consolidated=False).load().drop_vars("stats").drop_attrs()
    return data.sortby(["beta", "seed"])


def test_removing_values_computes_nothing_and_results_show_what_is_asked(shrunk):
    file, run = shrunk
    assert run_all(file, run) == 0
    curves = open_results(run)["curves"].to_dataset()
    assert curves.gap.values.tolist() == [0.5]
    assert curves.beta.values.tolist() == [1.0, INF]
    assert curves.seed.values.tolist() == [0, 7]


def test_the_tree_shows_no_shard_and_no_cell_that_is_not_asked(shrunk):
    file, run = shrunk
    run_all(file, run)
    tree = open_results(run)
    (shard,) = tree["shards"].children.values()
    assert shard.gap.item() == 0.5
    assert shard.beta.values.tolist() == [1.0, INF]
    assert shard.seed.values.tolist() == [0, 7]


def test_status_lists_what_lies_there_unasked_and_prune_removes_just_that(shrunk, capsys):
    file, run = shrunk
    config = load_config(file)
    gone, stays = shards(Config.model_validate(changed(grid=WIDE)))
    before, kept = tokens(run, config), contents(run / "shards" / stays.id / "trajectories.zarr")
    results = ["--config", file, "--results", run.parent]
    assert mfsweep("status", *results) == 0
    said = [line for line in capsys.readouterr().out.splitlines() if "unasked:" in line]
    assert len(said) == 3
    assert f"shards/{gone.id}: a shard that the config does not ask for" in said[0]
    assert f"{stays.id}/trajectories.zarr: 5 cells at beta = 4 and seed = 1" in said[1]
    assert f"logs/simulate-{gone.id}.log" in said[2]
    (run / "shards" / stays.id / ".trajectories.zarr.123").mkdir()
    assert mfsweep("prune", *results, "--yes") == 0
    assert "4 removed" in capsys.readouterr().out
    assert unasked(config, run) == leftovers(run) == []
    assert {p.name for p in (run / "shards").iterdir()} == {stays.id}
    assert {p.name for p in (run / "logs").iterdir()} == {f"simulate-{stays.id}.log"}
    wanted = before.sel(beta=[1.0, INF], seed=[0, 7])
    xr.testing.assert_identical(tokens(run, config), wanted)
    chunks = {data for p, data in kept.items() if "tokens/c" in str(p)}
    now = contents(run / "shards" / stays.id / "trajectories.zarr/tokens/c")
    assert set(now.values()) < chunks
    assert len(now) == 4
    assert list(damage(config, run)) == []
    assert run_all(file, run) == 0


def test_prune_leaves_the_time_of_what_is_done(shrunk):
    file, run = shrunk
    config = load_config(file)
    run_all(file, run)
    done = run / "shards" / shards(config)[0].id / "simulate.done"
    before = done.stat().st_mtime_ns
    prune(unasked(config, run), config)
    assert done.stat().st_mtime_ns == before


def test_what_is_pruned_is_computed_again_when_it_is_asked_for_again(shrunk):
    file, run = shrunk
    before = tokens(run, Config.model_validate(changed(grid=WIDE)))
    run_all(file, run)
    prune(unasked(load_config(file), run), load_config(file))
    wide = Config.model_validate(changed(grid=WIDE))
    assert not any(simulated(run, wide, shard) for shard in shards(wide))
    write_config(file.parent, grid=WIDE)
    assert run_all(file, run) == 14  # 9 of the other gap, 5 of this
    xr.testing.assert_identical(tokens(run, wide), before)


def test_a_smaller_grid_has_nothing_to_simulate_and_a_damaged_cell_beside_it_is_found(shrunk):
    file, run = shrunk
    config = load_config(file)
    gone, stays = shards(Config.model_validate(changed(grid=WIDE)))
    done = run / "shards" / stays.id / "simulate.done"
    digest = json.loads(done.read_text())["digest"]
    assert simulate_mark(run, config, shards(config)[0]) == digest
    assert digest != simulate_digest(config, shards(config)[0])
    assert list(damage(config, run)) == []
    for shard, beta, at in ((gone, 1.0, "0/1"), (stays, 4.0, "1/2")):
        store = run / "shards" / shard.id / "trajectories.zarr"
        chunk = store / "tokens/c" / at / "0/0/0"
        data = bytearray(chunk.read_bytes())
        data[len(data) // 2] ^= 16
        chunk.write_bytes(data)
        (found,) = damage(config, run)
        assert (found.path, found.variable) == (store, "tokens")
        assert found.beta == beta
        repair([found], config, file, run)
        assert list(damage(config, run)) == []


def test_a_kill_in_the_middle_of_prune_loses_nothing(shrunk, monkeypatch):
    from mfsweep.sweep.store import arrays

    file, run = shrunk
    config = load_config(file)
    before = tokens(run, config).sel(beta=[1.0, INF], seed=[0, 7])
    rename = Path.rename

    def killed(path, target):
        if path.name.startswith(".trajectories.zarr.") and path.name != ".trajectories.zarr.old":
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(arrays.Path, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        prune(unasked(config, run), config)
    monkeypatch.undo()
    store = run / "shards" / shards(config)[0].id / "trajectories.zarr"
    assert not store.exists()
    assert not store.with_name("simulate.done").exists()
    assert run_all(file, run) == 0
    xr.testing.assert_identical(tokens(run, config).sel(beta=[1.0, INF], seed=[0, 7]), before)


def test_prune_where_nobody_can_answer_is_refused_and_removes_nothing(shrunk, capsys, monkeypatch):
    file, run = shrunk
    before = contents(run)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    assert mfsweep("prune", "--config", file, "--results", run.parent) == 2
    assert "add --yes" in capsys.readouterr().err
    assert contents(run) == before | {run / "locks/.clearing": b""} or contents(run) == before


@pytest.mark.parametrize(("answer", "removed"), [(b"n\n", False), (b"y\n", True)])
def test_prune_asks_on_a_terminal(shrunk, answer, removed):
    file, run = shrunk
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "mfsweep", "prune", "--config", file, "--results", run.parent]
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, text=True) as process:
        os.write(ours, answer)
        out, _ = process.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)
    assert "Remove all of these?" in out
    assert (len(list((run / "shards").iterdir())) == 1) is removed
    assert process.returncode == 0


def test_a_file_that_someone_else_put_there_stays(shrunk):
    file, run = shrunk
    (run / "notes.txt").write_text("mine")
    (run / "figures").mkdir(exist_ok=True)
    (run / "figures/tokens_sphere.png").write_bytes(b"")
    (run / "figures/mine.png").write_bytes(b"")
    config = load_config(file)
    prune([*unasked(config, run), *leftovers(run)], config)
    assert (run / "notes.txt").exists()
    assert (run / "figures/mine.png").exists()
    assert not (run / "figures/tokens_sphere.png").exists()
