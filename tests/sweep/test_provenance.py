"""What made the numbers is recorded, shown, and never mixed in silence."""

import json

import numpy as np
import pytest
import xarray as xr
import yaml
from tiny_run import changed, mfsweep, run_all, simulate, write_config

from mfsweep.sweep import grid, store
from mfsweep.sweep.config import Config, load_config
from mfsweep.sweep.folder import holds_stale, read_done
from mfsweep.sweep.grid import shards
from mfsweep.sweep.layout import CELL_STATS, DONE, MISSING, STALE
from mfsweep.sweep.status import shard_status
from mfsweep.sweep.store import cell_states, tokens


class Killed(BaseException):
    """What leaves on disk what was written so far."""


KEYS = {
    "config_digest",
    "config",
    "numerics_version",
    "mfsweep_version",
    "git_commit",
    "git_dirty",
    "library_versions",
}


@pytest.fixture
def later(monkeypatch):
    """Return a function that raises the numerics version everywhere it is known."""

    def raise_it(version):
        for module in (grid, store.trajectories, store.states):
            monkeypatch.setattr(module, "NUMERICS_VERSION", version)
        monkeypatch.setattr("mfsweep.sweep.folder.NUMERICS_VERSION", version)

    return raise_it


def versions(folder, config):
    path = folder / "shards" / shards(config)[0].id / "trajectories.zarr"
    stats = xr.open_zarr(path, consolidated=False).load().stats
    return stats.sel(stat="numerics_version").values.astype(int).tolist()


def states(folder, config):
    shard = shards(config)[0]
    return list(cell_states(folder / "shards" / shard.id / "trajectories.zarr", shard).values())


def test_every_store_says_what_made_it_and_holds_the_config_itself(tmp_path):
    file, folder = write_config(tmp_path), tmp_path / "results/tiny"
    run_all(file, folder)
    stores = [*folder.glob("*.zarr"), *folder.glob("shards/*/*.zarr")]
    assert len(stores) == 6
    for path in stores:
        attrs = xr.open_zarr(path, consolidated=False).attrs
        assert attrs.keys() >= KEYS
        again = tmp_path / "again.yaml"
        again.write_text(attrs["config"])  # JSON is YAML
        assert load_config(again) == load_config(file)


def test_show_prints_what_made_the_stores_and_a_config_that_runs_again(tmp_path, capsys):
    file, folder = write_config(tmp_path), tmp_path / "results/tiny"
    run_all(file, folder)
    assert mfsweep("show", folder) == 0
    out = capsys.readouterr().out
    attrs = xr.open_zarr(folder / "curves.zarr", consolidated=False).attrs
    for key in ("config_digest", "mfsweep_version", "git_commit"):
        assert attrs[key] in out
    assert f"zarr {json.loads(attrs['library_versions'])['zarr']}" in out
    assert ("with uncommitted changes" in out) is attrs["git_dirty"]
    made, _, config = out.partition("# config\n")
    assert made.count("git commit") == 1, "stores of one make are told together"
    assert all(path.name in made for path in folder.rglob("*.zarr"))
    (tmp_path / "again.yaml").write_text(config)
    assert load_config(tmp_path / "again.yaml") == load_config(file)


def test_show_tells_stores_of_another_make_apart(tmp_path, capsys, later):
    file, folder = write_config(tmp_path), tmp_path / "results/tiny"
    first = grid.NUMERICS_VERSION
    run_all(file, folder)
    later(9)
    simulate(load_config(file), folder)
    assert mfsweep("show", folder) == 0
    out = capsys.readouterr().out
    found = [line.split(maxsplit=1)[1] for line in out.splitlines() if line.startswith("numerics")]
    assert sorted(found) == sorted([str(first), f"{first}, 9"])


def test_show_of_a_folder_without_stores_is_refused(tmp_path, capsys):
    assert mfsweep("show", tmp_path) == 2
    assert "holds no stores: give a run's folder" in capsys.readouterr().err


def test_stale_cells_are_computed_again(tmp_path, later):
    file, folder = write_config(tmp_path), tmp_path / "results/tiny"
    assert run_all(file, folder) == 4
    config = load_config(file)
    later(7)
    assert states(folder, config) == [STALE] * 4
    (row,) = shard_status(config, folder)
    assert (row.done, row.stale, row.measured) == (0, 4, False)
    assert row.seconds_left > 0
    assert run_all(file, folder) == 4
    assert versions(folder, config) == [[7, 7], [7, 7]]
    assert xr.open_zarr(folder / "curves.zarr", consolidated=False).numerics_versions == [7]


def test_stale_cells_are_kept_on_request_and_every_result_says_so(tmp_path, later, capsys):
    file, folder = write_config(tmp_path), tmp_path / "results/tiny"
    first = grid.NUMERICS_VERSION
    run_all(file, folder)
    later(7)
    grown = write_config(tmp_path, grid={"beta": [2.0, 4.0, float("inf")]})
    config = load_config(grown)
    results = ["--config", grown, "--results", folder.parent]
    assert run_all(grown, folder, keep_stale=True) == 2
    assert versions(folder, config) == [[first] * 2, [first] * 2, [7, 7]]
    assert states(folder, config) == [DONE] * 2 + [STALE] * 4
    shard = shards(config)[0]
    assert read_done(folder / "shards" / shard.id / "simulate.done")["stale"] == 4
    assert holds_stale(folder, shard)
    for name in ("curves", "switch_times", "laws", "bound"):
        attrs = xr.open_zarr(folder / f"{name}.zarr", consolidated=False).attrs
        assert attrs["numerics_versions"] == [first, 7]
    capsys.readouterr()
    assert mfsweep("collect", *results) == 0
    assert f"the cells are of numerics versions {first}, 7" in capsys.readouterr().err
    assert mfsweep("status", *results) == 0
    (line,) = [s for s in capsys.readouterr().out.splitlines() if s.startswith(shard.id)]
    assert line.split()[1:] == ["2", "0", "0", "yes", "4"]
    assert run_all(grown, folder) == 4, "kept by this one request only"
    assert versions(folder, config) == [[7, 7]] * 3
    assert not holds_stale(folder, shard)


def test_measuring_stale_cells_unasked_is_refused(tmp_path, later):
    file, folder = write_config(tmp_path), tmp_path / "results/tiny"
    run_all(file, folder)
    later(7)
    assert mfsweep("measure", "--config", file, "--results", folder.parent) == 1


@pytest.mark.parametrize(("at", "left"), [("ess_median/c", MISSING), ("tokens.partial", STALE)])
def test_a_kill_while_a_stale_cell_is_computed_again_leaves_it_stale_or_missing(
    tmp_path, later, at, left
):
    from zarr.storage import LocalStore

    file, folder = write_config(tmp_path), tmp_path / "results/tiny"
    run_all(file, folder)
    config = load_config(file)
    later(7)
    written, encoded = LocalStore.set, tokens._encoded

    def killed(local, key, value):
        if at in key:
            raise Killed
        return written(local, key, value)

    def cut_off(array, block):
        if at == "tokens.partial":
            raise Killed
        return encoded(array, block)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalStore, "set", killed)
        patch.setattr(tokens, "_encoded", cut_off)
        with pytest.raises(Killed):
            simulate(config, folder)
    assert sorted(states(folder, config)) == sorted([left, STALE, STALE, STALE])


def test_cells_of_other_settings_are_never_kept(tmp_path):
    file, folder = write_config(tmp_path), tmp_path / "results/tiny"
    run_all(file, folder)
    other = write_config(tmp_path, solver={"rtol": 1e-7})
    assert run_all(other, folder, keep_stale=True) == 4


def test_infinite_numbers_survive_in_the_recorded_config():
    config = Config.model_validate(changed())
    document = yaml.safe_load(config.model_dump_json(exclude_none=True))
    assert Config.model_validate(document) == config
    assert np.isinf(config.grid.beta[-1])
    assert len(CELL_STATS) == 7
