"""One worker or several, one order or another, fresh or resumed: the same bits."""

from contextlib import nullcontext

import pytest
import xarray as xr
from small_run import _connect
from tiny_run import run_all, write_config

from mfsweep.sweep import execute
from mfsweep.sweep.collect import collect
from mfsweep.sweep.config import load_config
from mfsweep.sweep.grid import shards
from mfsweep.sweep.layout import MISSING
from mfsweep.sweep.store import mark_cell

GRID = {"gap": [0.25, 0.5], "beta": [2.0, 4.0, float("inf")], "n_tokens": [16]}


def results(folder):
    """Tokens of every shard and all that is collected; seconds differ and are left out."""
    stores = [*folder.glob("shards/*/*.zarr"), *folder.glob("*.zarr")]
    found = {}
    for path in sorted(stores):
        data = xr.open_zarr(path, consolidated=False).load().drop_vars("stats", errors="ignore")
        grown = [name for name in ("beta", "seed") if name in data]
        found[path.relative_to(folder)] = data.sortby(grown) if grown else data
    assert len(found) == 8
    return found


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference")
    file = write_config(folder, grid=GRID)
    run_all(file, folder / "tiny")
    return file, results(folder / "tiny")


def assert_same(folder, expected):
    found = results(folder)
    assert found.keys() == expected.keys()
    for name in expected:
        xr.testing.assert_identical(found[name], expected[name])


def run_with(config, folder, workers, order=1):
    for task in (execute.simulate_shard, execute.measure_shard):
        for shard in shards(config)[::order]:
            task(config, shard, folder, execute.Workers(workers), lambda *_: None)
    collect(config, folder)


@pytest.mark.parametrize("workers", [1, 3])
def test_any_number_of_dask_workers_gives_the_same_bits(reference, tmp_path, monkeypatch, workers):
    file, expected = reference
    with execute.connect(execute.Workers(workers)) as client:  # one start for every shard
        monkeypatch.setattr(execute, "connect", lambda _: nullcontext(client))
        run_with(load_config(file), tmp_path, workers)
        assert len(client.scheduler_info()["workers"]) == workers
    assert_same(tmp_path, expected)


def test_any_order_of_shards_and_cells_gives_the_same_bits(reference, tmp_path, monkeypatch):
    file, expected = reference
    monkeypatch.setattr(execute, "connect", _connect)
    monkeypatch.setattr(execute, "as_completed", lambda futures: list(futures)[::-1])
    run_with(load_config(file), tmp_path, 1, order=-1)
    assert_same(tmp_path, expected)


def test_a_run_that_grew_and_was_resumed_gives_the_same_bits(reference, tmp_path):
    _, expected = reference
    run_all(write_config(tmp_path, grid={**GRID, "gap": [0.5], "beta": [4.0]}), tmp_path / "tiny")
    file = write_config(tmp_path, grid=GRID)
    run_all(file, tmp_path / "tiny")
    shard = shards(load_config(file))[0]
    for cell in list(shard.cells())[1:3]:
        mark_cell(
            tmp_path / "tiny/shards" / shard.id / "trajectories.zarr", cell.beta, cell.seed, MISSING
        )
    assert run_all(file, tmp_path / "tiny") == 2
    assert_same(tmp_path / "tiny", expected)
