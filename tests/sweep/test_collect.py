import numpy as np
import oracles
import pytest

from mfsweep import open_results
from mfsweep._errors import StoreError
from mfsweep._types import STATUSES
from mfsweep.sweep.collect import collect
from mfsweep.sweep.execute import Workers, measure_shard, simulate_shard
from mfsweep.sweep.folder import shard_folder
from mfsweep.sweep.grid import shards
from mfsweep.sweep.layout import MISSING
from mfsweep.sweep.plan import plan
from mfsweep.sweep.status import shard_status
from mfsweep.sweep.store import mark_cell

pytestmark = pytest.mark.usefixtures("in_process")
ONE = Workers(1)


def run(config, folder, ignore, skip=()):
    for shard in shards(config):
        if shard.family not in skip:
            simulate_shard(config, shard, folder, ONE, ignore)
            measure_shard(config, shard, folder, ONE, ignore)
    collect(config, folder)
    return open_results(folder)


def test_cells_that_no_override_asks_for_are_missing(make_config, tmp_path, ignore):
    config = make_config(overrides=[{"family": "identity", "seed": 1, "beta": [8.0]}])
    tree = run(config, tmp_path, ignore)
    switches = tree["switch_times"].to_dataset()
    assert switches.beta.values.tolist() == [4.0, 8.0, 16.0]
    asked = switches.status.sel(family="identity", beta=8.0, seed=0)
    assert (asked != STATUSES.index("missing")).all()
    assert (switches.status.sel(family="identity", seed=1) == 0).all()
    assert (switches.status.sel(family="aligned", beta=8.0) == 0).all()
    assert np.isnan(switches.switch_time.sel(family="aligned", beta=8.0)).all()
    counts = tree["laws"].to_dataset().counts.sel(family="identity")
    assert (counts.sum("cell_status") == 1).all()


def test_a_family_that_was_not_run_is_missing(make_config, tmp_path, ignore):
    tree = run(make_config(), tmp_path, ignore, skip=("identity",))
    assert np.isnan(tree["curves"].dataset.w2_metastable.sel(family="identity")).all()
    assert (tree["switch_times"].dataset.status.sel(family="identity") == 0).all()
    assert (tree["laws"].dataset.status.sel(family="identity") == 0).all()


def test_nothing_to_collect_is_an_error(make_config, tmp_path):
    with pytest.raises(StoreError, match="no shard is measured for this config"):
        collect(make_config(), tmp_path)


def test_curves_made_under_another_config_are_not_collected(make_config, tmp_path, ignore):
    run(make_config(), tmp_path, ignore)
    with pytest.raises(StoreError, match="no shard is measured"):
        collect(make_config(solver={"rtol": 1e-7}), tmp_path)


def test_predicted_slope_is_given_for_the_turnaround_against_log_beta_only(
    make_config, tmp_path, ignore
):
    laws = run(make_config(), tmp_path, ignore)["laws"].to_dataset()
    predicted = laws.predicted_slope.sel(family="aligned").squeeze()
    assert predicted.sel(estimator="turnaround", law="log") == pytest.approx(2.0)
    assert np.isfinite(predicted).sum() == 1


def test_the_control_never_switches(make_config, tmp_path, ignore):
    config = make_config(grid={"n_tokens": [200]}, time={"t_end": 30.0, "n_times": 61})
    switches = run(config, tmp_path, ignore)["switch_times"].to_dataset()
    for estimator in ("turnaround", "exit", "crossover"):
        found = switches.status.sel(family="identity", estimator=estimator)
        assert (found == STATUSES.index("absent")).all()


@pytest.mark.parametrize("d", [2, 3])
def test_o6_holds_through_the_whole_pipeline(make_config, tmp_path, ignore, d):
    config = make_config(
        grid={"family": ["identity"], "d": [d], "n_tokens": [4096], "beta": [np.inf], "seed": 1},
        families={"identity": {"kind": "identity"}},
        initial={"sampling": "qmc"},
    )
    curves = run(config, tmp_path, ignore)["curves"].to_dataset()
    exact = oracles.w2_identity_uniform(curves.time.values, 0.5, d)
    np.testing.assert_allclose(curves.w2_metastable.values.squeeze(), exact, atol=4e-3)


def test_o7_holds_through_the_whole_pipeline(make_config, tmp_path, ignore):
    kinds = {f"m{m}": {"kind": "identity", "multiplicity": m} for m in (1, 2, 3)}
    config = make_config(
        grid={"family": [*kinds], "d": [4], "n_tokens": [2048], "beta": [np.inf], "seed": 1},
        families=kinds,
        initial={"sampling": "qmc"},
        time={"t_end": 6.0, "n_times": 7},
    )
    tree = run(config, tmp_path, ignore)
    curves, bound = (tree[name].to_dataset() for name in ("curves", "bound"))
    for m, rate in ((1, 0.25), (2, 0.5), (3, 0.5)):
        exact = oracles.w2_identity_uniform_any(curves.time.values, 0.5, 4, m)
        found = curves.w2_metastable.sel(family=f"m{m}").values.squeeze()
        np.testing.assert_allclose(found, exact, atol=4e-3)
        assert bound.predicted_decay_rate.sel(family=f"m{m}").item() == pytest.approx(rate)


def test_the_terms_of_the_bound_are_those_of_the_curves(make_config, tmp_path, ignore):
    grid = {"family": ["aligned"], "n_tokens": [300], "beta": [4.0, 8.0, 32.0, np.inf], "seed": 3}
    families = {"aligned": {"kind": "aligned"}}
    tree = run(make_config(grid=grid, families=families), tmp_path, ignore)
    curves, bound = (tree[name].to_dataset().squeeze() for name in ("curves", "bound"))
    stability = curves.w2_stability.sel(beta=[4.0, 8.0, 32.0], time=bound.time[5])
    slopes = np.polyfit(np.log([4.0, 8.0, 32.0]), np.log(stability.values), 1)[0]
    assert bound.beta_power.values[5] == pytest.approx(slopes.mean())
    assert bound.beta_power_low.values[5] < slopes.mean() < bound.beta_power_high.values[5]
    assert np.isfinite(bound.growth_rate.values[:3]).all()
    assert np.isnan(bound.growth_rate.values[3])
    zero = curves.w2_zero_temperature
    assert (zero.sel(beta=4.0) == zero.sel(beta=np.inf)).all()
    triangle = curves.w2_stability + zero - curves.w2_metastable
    assert (triangle > -1e-9).all()
    np.testing.assert_allclose(zero.sel(beta=np.inf), curves.w2_metastable.sel(beta=np.inf))


def test_status_counts_what_is_done_and_what_is_left(make_config, tmp_path, ignore):
    config = make_config()
    run(config, tmp_path, ignore)
    first, _ = shards(config)
    mark_cell(shard_folder(tmp_path, first) / "trajectories.zarr", first.betas[0], 0, MISSING)
    rows = shard_status(config, tmp_path)
    assert [(row.done, row.failed, row.pending, row.measured) for row in rows] == [
        (3, 0, 1, False),
        (4, 0, 0, True),
    ]
    assert rows[0].seconds_left > 0 == rows[1].seconds_left
    stale = shard_status(make_config(solver={"rtol": 1e-7}), tmp_path)
    assert [(row.done, row.pending, row.measured) for row in stale] == [(0, 4, False)] * 2
    assert all(row.unknown for row in stale)


def test_plan_counts_cells_and_bytes(make_config):
    costs = plan(make_config())
    assert [cost.cells for cost in costs] == [4, 4]
    assert costs[0].bytes_stored == 4 * 17 * 40 * 2 * 8
    assert all(cost.seconds > 0 for cost in costs)
    half = plan(make_config(store={"dtype": "float32"}))
    assert half[0].bytes_stored == costs[0].bytes_stored / 2
