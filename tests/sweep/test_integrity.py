import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from tiny_run import mfsweep, run_all, write_config

from mfsweep._errors import StoreError
from mfsweep.sweep.config import load_config
from mfsweep.sweep.grid import shards
from mfsweep.sweep.store import axes, cell_states, read_cell
from mfsweep.sweep.verify import damage, repair, told

FLIPS = 500


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    run_all(write_config(folder), folder / "results/tiny")
    return folder


@pytest.fixture
def place(finished, tmp_path):
    """A copy of the finished run: its config file, config, run folder and shard folder."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "config.yaml"
    config = load_config(file)
    run = tmp_path / "results/tiny"
    return file, config, run, run / "shards" / shards(config)[0].id


def flip(path, bit):
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def files(path):
    return sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]


def values(path):
    """What a reader of a store sees; what makes it fail is no silent change."""
    return xr.open_zarr(path, consolidated=False).load()


def test_an_intact_run_has_no_damage(place):
    _, config, run, _ = place
    assert list(damage(config, run)) == []


def test_every_flipped_bit_is_found_or_reads_back_equal(place):
    _, config, run, shard = place
    rng = random.Random(0)
    # together, yet apart: a flip in a mark does not hide what a store's own check would miss
    marks = [run / "run.json", run / "collect.done", shard / "measure.done"]
    units = [
        [shard / "trajectories.zarr"] * 5 + [shard / "simulate.done"],
        [shard / "curves.zarr"],
        *([run / f"{name}.zarr"] for name in ("curves", "switch_times", "laws", "bound")),
        marks,
    ]
    flips = 0
    while flips < FLIPS:
        chosen = [rng.choice(files(rng.choice(unit))) for unit in units]
        kept = {file: file.read_bytes() for file in chosen}
        bits = {file: rng.randrange(8 * len(data)) for file, data in kept.items()}
        for file, bit in bits.items():
            flip(file, bit)
        found = {one.path for one in damage(config, run)}
        for file, data in kept.items():
            store = next((p for p in (file, *file.parents) if p.suffix == ".zarr"), file)
            if store not in found:
                changed = values(store)
                file.write_bytes(data)
                xr.testing.assert_identical(changed, values(store))
            file.write_bytes(data)
            flips += 1
    assert list(damage(config, run)) == []


@pytest.mark.parametrize("variable", ["tokens", "stats", "ess_median", "ess_min", "status"])
def test_a_damaged_cell_is_named_and_is_the_only_one_computed_again(place, variable):
    file, config, run, shard = place
    before = values(shard / "trajectories.zarr").drop_vars("stats")
    flip(next(p for p in files(shard / "trajectories.zarr" / variable / "c/0/1")), 37)
    (found,) = damage(config, run)
    assert (found.variable, found.beta, found.seed) == (variable, 4.0, 1)
    assert told(found, run).startswith(
        f"shards/{shard.name}/trajectories.zarr: {variable} beta = 4 seed = 1: "
    )
    repair([found], config, file, run)
    assert list(cell_states(shard / "trajectories.zarr", shards(config)[0]).values()) == [
        1,
        0,
        1,
        1,
    ]
    assert not (shard / "simulate.done").exists()
    assert run_all(file, run) == 1
    assert list(damage(config, run)) == []
    xr.testing.assert_identical(values(shard / "trajectories.zarr").drop_vars("stats"), before)


def test_a_chunk_that_is_gone_is_named(place):
    _, config, run, shard = place
    shutil.rmtree(shard / "trajectories.zarr/tokens/c/1/0")
    (shard / "trajectories.zarr/status/c/0/0").unlink()
    found = [(one.variable, one.beta, one.seed) for one in damage(config, run)]
    assert found == [("status", 4.0, 0), ("tokens", np.inf, 0)]


def test_damaged_masses_are_written_again_and_nothing_is_computed(place):
    file, config, run, shard = place
    flip(files(shard / "trajectories.zarr/mass/c/1")[0], 50)
    (found,) = damage(config, run)
    assert (found.variable, found.beta, found.seed) == ("mass", None, 1)
    repair([found], config, file, run)
    assert run_all(file, run) == 0
    assert np.array_equal(read_cell(shard / "trajectories.zarr", 4.0, 1)["mass"], np.full(8, 1 / 8))


@pytest.mark.parametrize(
    "part", ["zarr.json", "tokens/zarr.json", "beta/zarr.json", "beta/c/0", "time/c/0", "stat/c/0"]
)
def test_damaged_metadata_and_coordinates_make_the_shard_again(place, part):
    file, config, run, shard = place
    flip(shard / "trajectories.zarr" / part, 301 if part.endswith("json") else 60)
    (found,) = damage(config, run)
    assert found.variable.split("/")[0] == part.split("/")[0]
    repair([found], config, file, run)
    assert run_all(file, run) == 4
    assert list(damage(config, run)) == []


def test_a_coordinate_that_lost_its_end_does_not_relabel_cells(place):
    file, config, run, shard = place
    path = shard / "trajectories.zarr/beta/zarr.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"shape": [1]}))
    (shard / "simulate.done").unlink()
    assert [one.variable for one in damage(config, run)] != []
    with pytest.raises(StoreError, match="run mfsweep verify --repair"):
        run_all(file, run)


def test_metadata_of_an_unfinished_shard_may_be_ahead_of_the_names(place):
    """So a kill between two resizes leaves them; the next run cuts them off or names them."""
    file, config, run, shard = place
    path = shard / "trajectories.zarr/tokens/zarr.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"shape": [3, 2, 5, 8, 2]}))
    assert [one.variable for one in damage(config, run)] == ["tokens/zarr.json"]
    (shard / "simulate.done").unlink()
    assert list(damage(config, run)) == []
    assert run_all(file, run) == 0
    assert json.loads(path.read_text()) == document


def test_verify_exits_1_names_the_cell_and_repair_marks_it(place, capsys):
    file, _, run, shard = place
    results = ["--config", file, "--results", run.parent]
    assert mfsweep("verify", *results) == 0
    flip(files(shard / "trajectories.zarr/tokens/c/1/1")[0], 99)
    flip(run / "run.json", 250)
    flip(shard / "curves.zarr/zarr.json", 500)
    capsys.readouterr()
    assert mfsweep("verify", *results) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("run.json: ")
    assert "trajectories.zarr: tokens beta = inf seed = 1: ValueError" in lines[1]
    assert lines[2].startswith(f"shards/{shard.name}/curves.zarr: zarr.json: ")
    assert lines[3] == "3 damaged; --repair marks them to be made again"
    assert mfsweep("verify", *results, "--repair") == 1
    assert not (shard / "simulate.done").exists()
    assert not (shard / "measure.done").exists()
    assert mfsweep("verify", *results) == 0
    assert run_all(file, run) == 1


def test_a_damaged_store_is_one_line_with_the_remedy_everywhere(place, capsys):
    file, _, run, shard = place
    flip(shard / "trajectories.zarr/status/c/0/0", 20)
    for verb in ("status", "simulate"):
        assert mfsweep(verb, "--config", file, "--results", run.parent, "--cores", 1) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert "is damaged" in line
        assert "mfsweep verify --repair" in line


def test_verify_of_a_folder_that_is_not_there_is_refused(tmp_path, capsys):
    file = write_config(tmp_path)
    assert mfsweep("verify", "--config", file, "--results", tmp_path / "none") == 2
    assert "nothing to verify" in capsys.readouterr().err
    assert not Path(tmp_path / "none").exists()


def test_axes_keep_the_order_of_arrival(place):
    file, _, run, shard = place
    grown = write_config(file.parent, grid={"beta": [1.0, 4.0, float("inf")], "seed": [0, 1]})
    assert run_all(grown, run) == 2
    assert axes(shard / "trajectories.zarr") == ([4.0, float("inf"), 1.0], [0, 1])
    assert list(damage(load_config(grown), run)) == []
