import hashlib
from functools import partial

import numpy as np
import pytest
import xarray as xr

from mfsweep import open_results, select
from mfsweep._errors import InputError, StoreError
from mfsweep.sweep import blocks, store
from mfsweep.sweep.cell import run_cell, start
from mfsweep.sweep.collect import collect
from mfsweep.sweep.execute import Workers, measure_shard, simulate_shard
from mfsweep.sweep.folder import shard_folder
from mfsweep.sweep.grid import shards
from mfsweep.sweep.layout import CURVES, DONE, FAILED, MISSING
from mfsweep.sweep.status import shard_status
from mfsweep.sweep.store.arrays import open_group

ONE = Workers(1)


def run(config, folder, ignore):
    """Simulate, measure and collect everything; return how many cells were computed."""
    folder.mkdir(exist_ok=True)
    computed = 0
    for shard in shards(config):
        computed += simulate_shard(config, shard, folder, ONE, ignore).computed
        measure_shard(config, shard, folder, ONE, ignore)
    collect(config, folder)
    return computed


def chunk_hashes(path):
    """Content of every chunk file of the data arrays, by path."""
    return {
        file.relative_to(path): hashlib.sha256(file.read_bytes()).hexdigest()
        for name in ("tokens", "status", "stats", "ess_median", "ess_min")
        for file in (path / name / "c").rglob("*")
        if file.is_file()
    }


@pytest.fixture
def prepared(make_config, tmp_path):
    config = make_config()
    shard = shards(config)[0]
    path = tmp_path / "trajectories.zarr"
    store.prepare(path, config, shard, {seed: start(config, shard, seed)[1] for seed in (0, 1)})
    return config, shard, path


def test_unwritten_cells_read_as_nan_and_missing(prepared):
    _, shard, path = prepared
    dataset = xr.open_zarr(path, consolidated=False)
    assert (dataset.status == MISSING).all()
    for name in ("tokens", "stats", "ess_median", "ess_min"):
        assert np.isnan(dataset[name]).all(), name
    assert set(store.cell_states(path, shard).values()) == {MISSING}
    assert store.read_cell(path, 4.0, 0) is None


def test_a_written_cell_reads_back_bit_for_bit(prepared):
    config, shard, path = prepared
    cell = next(c for c in shard.cells() if (c.beta, c.seed) == (16.0, 1))
    trajectory, _ = run_cell(config, cell)
    store.write_cell(path, cell, partial(run_cell, config, cell))
    back = store.read_cell(path, 16.0, 1)
    assert np.array_equal(back["tokens"], trajectory.tokens)
    assert np.array_equal(back["mass"], trajectory.mass)
    assert np.array_equal(back["ess_median"], trajectory.ess_median)
    assert store.cell_states(path, shard) == {
        (4.0, 0): MISSING,
        (4.0, 1): MISSING,
        (16.0, 0): MISSING,
        (16.0, 1): DONE,
    }


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_blocks_of_time_make_the_file_that_zarr_makes_of_the_whole_cell(
    make_config, tmp_path, monkeypatch, dtype
):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 5 * 8 * 40 * 2)
    config = make_config(store={"dtype": dtype})
    shard, path = shards(config)[0], tmp_path / "trajectories.zarr"
    store.prepare(path, config, shard, {0: start(config, shard, 0)[1]})
    assert open_group(path, "r")["tokens"].chunks[2] == 5
    cell = next(iter(shard.cells()))
    store.write_cell(path, cell, partial(run_cell, config, cell))
    file = path / "tokens/c/0/0/0/0/0"
    written = file.read_bytes()
    file.unlink()
    open_group(path, "r+")["tokens"][0, 0] = tokens = run_cell(config, cell)[0].tokens
    assert file.read_bytes() == written
    part = store.read_cell(path, 4.0, 0, slice(3, 12))
    np.testing.assert_allclose(part["tokens"], tokens[3:12], atol=1e-7 if dtype == "float32" else 0)
    assert len(part["ess_min"]) == 9


def test_curves_measured_block_by_block_are_those_of_the_whole_cell(
    make_config, tmp_path, ignore, monkeypatch, in_process
):
    config = make_config()
    run(config, tmp_path / "whole", ignore)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 3 * 8 * 40 * 2)
    run(config, tmp_path / "blocks", ignore)
    one, other = (
        xr.open_zarr(tmp_path / name / "curves.zarr", consolidated=False).load()
        for name in ("whole", "blocks")
    )
    xr.testing.assert_allclose(one, other, rtol=0, atol=1e-15)
    assert one.w2_metastable.notnull().any()


def test_a_partial_file_that_a_kill_left_is_removed_by_the_next_writer(prepared):
    _, shard, path = prepared
    cell = next(iter(shard.cells()))
    left = path / "tokens/c/0/0/0/0/0.123.partial"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")

    def failing(keep):
        assert not left.exists()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.write_cell(path, cell, failing)
    assert list(left.parent.iterdir()) == []


def test_every_array_has_crc32c_zstd_units_and_a_long_name(prepared):
    _, _, path = prepared
    group = open_group(path, "r")
    for name, array in group.arrays():
        codecs = [type(codec).__name__ for codec in array.compressors]
        assert codecs == ["ZstdCodec", "Crc32cCodec"], name
        assert array.attrs["units"] == "1"
        assert array.attrs["long_name"]
    assert group.attrs["config_digest"]


def test_a_cell_owns_at_most_six_files(prepared):
    config, shard, path = prepared
    before = {file for file in path.rglob("*") if file.is_file()}
    cell = next(iter(shard.cells()))
    store.write_cell(path, cell, partial(run_cell, config, cell))
    assert len({file for file in path.rglob("*") if file.is_file()} - before) <= 6


def test_a_store_whose_cells_share_a_chunk_is_refused(prepared):
    config, shard, path = prepared
    group = open_group(path, "r+")
    del group["status"]
    group.create_array("status", shape=(2, 2), chunks=(2, 2), dtype="uint8")
    with pytest.raises(StoreError, match="one cell a file"):
        store.prepare(path, config, shard, {})


@pytest.mark.usefixtures("in_process")
def test_growing_by_a_beta_or_a_seed_computes_only_the_new_cells(make_config, tmp_path, ignore):
    config = make_config(grid={"family": ["aligned"]}, families={"aligned": {"kind": "aligned"}})
    assert run(config, tmp_path, ignore) == 4
    path = shard_folder(tmp_path, shards(config)[0]) / "trajectories.zarr"
    old = chunk_hashes(path)
    grown = make_config(
        grid={"family": ["aligned"], "beta": [2.0, 4.0, 8.0, 16.0], "seed": [0, 1, 5]},
        families={"aligned": {"kind": "aligned"}},
    )
    assert run(grown, tmp_path, ignore) == 8
    new = chunk_hashes(path)
    assert {file: new[file] for file in old} == old
    fresh_folder = tmp_path / "fresh"
    assert run(grown, fresh_folder, ignore) == 12
    for name in ("curves", "switch_times", "laws", "bound"):
        one, other = (
            xr.open_zarr(folder / f"{name}.zarr", consolidated=False).drop_attrs()
            for folder in (tmp_path, fresh_folder)
        )
        xr.testing.assert_identical(one, other)


@pytest.mark.usefixtures("in_process")
def test_failed_and_missing_cells_are_computed_again(make_config, tmp_path, ignore):
    config = make_config()
    assert run(config, tmp_path, ignore) == 8
    shard = shards(config)[0]
    cells = list(shard.cells())
    path = shard_folder(tmp_path, shard) / "trajectories.zarr"
    store.mark_cell(path, cells[0].beta, cells[0].seed, FAILED)
    store.mark_cell(path, cells[3].beta, cells[3].seed, MISSING)
    outcome = simulate_shard(config, shard, tmp_path, ONE, ignore)
    assert (outcome.computed, outcome.already_done) == (2, 2)
    assert run(config, tmp_path, ignore) == 0


@pytest.mark.usefixtures("in_process")
def test_another_solver_tolerance_computes_everything_again(make_config, tmp_path, ignore):
    assert run(make_config(), tmp_path, ignore) == 8
    assert run(make_config(solver={"rtol": 1e-7}), tmp_path, ignore) == 8
    assert run(make_config(figures={"dpi": 99}, solver={"rtol": 1e-7}), tmp_path, ignore) == 0


@pytest.mark.usefixtures("in_process")
def test_a_cell_that_fails_is_marked_named_and_does_not_stop_the_others(
    make_config, tmp_path, ignore, monkeypatch
):
    from mfsweep.sweep import execute

    def failing(config, cell, keep):
        if (cell.beta, cell.seed) == (4.0, 1):
            message = "no luck"
            raise ValueError(message)
        return run_cell(config, cell, keep)

    monkeypatch.setattr(execute, "run_cell", failing)
    config = make_config()
    shard = shards(config)[0]
    outcome = simulate_shard(config, shard, tmp_path, ONE, ignore)
    assert outcome.computed == 3
    assert outcome.failures == [f"{shard.id} beta = 4 seed = 1: ValueError: no luck"]
    path = shard_folder(tmp_path, shard) / "trajectories.zarr"
    assert store.cell_states(path, shard)[4.0, 1] == FAILED
    assert not (path.parent / "simulate.done").exists()
    (row,) = [row for row in shard_status(config, tmp_path) if row.id == shard.id]
    assert row.failures == (("beta = 4 seed = 1", "ValueError: no luck"),)
    measured = measure_shard(config, shard, tmp_path, ONE, ignore)
    assert measured.failures == [f"{shard.id} beta = 4 seed = 1 failed and is left out"]
    assert not (path.parent / "measure.done").exists()
    curves = xr.open_zarr(path.parent / "curves.zarr", consolidated=False)
    assert np.isnan(curves.w2_metastable.sel(beta=4.0, seed=1)).all()
    assert np.isfinite(curves.w2_metastable.sel(beta=4.0, seed=0)).all()


@pytest.mark.usefixtures("in_process")
def test_float32_store_says_its_floor_and_is_read_as_unit_float64(make_config, tmp_path, ignore):
    config = make_config(store={"dtype": "float32"})
    run(config, tmp_path, ignore)
    path = shard_folder(tmp_path, shards(config)[0]) / "trajectories.zarr"
    dataset = xr.open_zarr(path, consolidated=False)
    assert dataset.tokens.dtype == np.float32
    assert dataset.attrs["distance_floor"] == 6e-8
    tokens = store.read_cell(path, 4.0, 0)["tokens"]
    assert tokens.dtype == np.float64
    np.testing.assert_allclose(np.linalg.norm(tokens, axis=-1), 1.0, atol=1e-15)


@pytest.mark.usefixtures("in_process")
def test_results_open_with_the_stated_dims_and_names(make_config, tmp_path, ignore):
    run(make_config(), tmp_path, ignore)
    shard_dims = ("family", "d", "gap", "n_tokens")
    curves = xr.open_zarr(tmp_path / "curves.zarr", consolidated=False)
    assert set(curves.data_vars) == set(CURVES)
    assert all(a.dims == (*shard_dims, "beta", "seed", "time") for a in curves.data_vars.values())
    switches = xr.open_zarr(tmp_path / "switch_times.zarr", consolidated=False)
    names = {"switch_time", "switch_time_low", "switch_time_high", "status"}
    assert set(switches.data_vars) == names
    assert switches.switch_time.dims == ("estimator", *shard_dims, "beta", "seed")
    assert switches.status.dtype == np.uint8
    assert switches.status.attrs["flag_meanings"].split()[2] == "censored"
    laws = xr.open_zarr(tmp_path / "laws.zarr", consolidated=False)
    assert laws.slope.dims == ("estimator", "law", *shard_dims)
    assert {"slope_low", "slope_high", "intercept", "aic", "predicted_slope"} <= set(laws.data_vars)
    assert laws.n_tokens.dtype == np.float64


@pytest.mark.usefixtures("in_process")
def test_select_finds_floats_by_tolerance_and_says_what_exists(make_config, tmp_path, ignore):
    run(make_config(grid={"gap": [0.1 + 0.2, 0.5]}), tmp_path, ignore)
    tree = open_results(tmp_path)
    curves = tree["curves"].to_dataset()
    assert select(curves, gap=0.3).gap.item() == 0.1 + 0.2
    assert select(curves, beta=[16.0 + 1e-9, 4.0]).beta.values.tolist() == [16.0, 4.0]
    hot_and_cold = curves.assign_coords(beta=[4.0, np.inf])
    assert select(hot_and_cold, beta=np.inf).beta.item() == np.inf
    assert select(curves, family="identity", beta=4).w2_metastable.dims[0] == "d"
    assert select(tree, beta=4.0)["laws"].to_dataset().equals(tree["laws"].to_dataset())
    with pytest.raises(InputError, match=r"beta = 5.0: not in these results; there are 4.0, 16.0"):
        select(curves, beta=5.0)
    for whole in (curves, tree):
        with pytest.raises(InputError, match="temperature: no such coordinate"):
            select(whole, temperature=1)
    shards_left = select(tree, gap=[0.3], beta=16.0)["shards"].children.values()
    assert [shard.gap.item() for shard in shards_left] == [0.1 + 0.2] * 2
    assert all(shard.tokens.dims[0] == "seed" for shard in shards_left)


@pytest.mark.usefixtures("in_process")
def test_the_tree_is_lazy_and_names_every_coordinate(make_config, tmp_path, ignore):
    run(make_config(), tmp_path, ignore)
    tree = open_results(tmp_path)
    for node in tree.leaves:
        assert all(not array.variable._in_memory for array in node.data_vars.values()), node.path
        for name in ("gap", "d", "n_tokens", "family"):
            assert node[name].attrs["units"] == "1"
            assert node[name].attrs["long_name"]
    for node in (tree["curves"], *tree["shards"].children.values()):
        for name in ("beta", "log_beta", "seed", "time"):
            assert node[name].attrs["units"] == "1"
            assert node[name].attrs["long_name"]
        assert (node["log_beta"] == np.log(node["beta"])).all()


def test_a_folder_without_stores_is_named(tmp_path):
    with pytest.raises(InputError, match="holds no stores"):
        open_results(tmp_path)
