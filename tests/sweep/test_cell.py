import math

import numpy as np
import oracles
import pytest

from mfsweep import Weights, initial_tokens, simulate
from mfsweep.sweep.cell import measure_cell, run_cell, start, weights_of, zero_temperature_flow
from mfsweep.sweep.grid import shards
from mfsweep.sweep.layout import CURVES, STAT_NAMES


def test_tokens_are_paired_over_beta_and_differ_between_seeds(make_config):
    config = make_config()
    shard = shards(config)[0]
    cells = {(cell.beta, cell.seed): cell for cell in shard.cells()}
    one, other = (run_cell(config, cells[beta, 0])[0].tokens for beta in (4.0, 16.0))
    np.testing.assert_array_equal(one[0], other[0])
    assert np.abs(one[-1] - other[-1]).max() > 1e-3
    assert np.abs(start(config, shard, 0)[0] - start(config, shard, 1)[0]).max() > 0.1


def test_families_of_one_d_and_gap_start_from_the_same_tokens(make_config):
    config = make_config()
    aligned, identity = shards(config)
    np.testing.assert_array_equal(start(config, aligned, 0)[0], start(config, identity, 0)[0])
    np.testing.assert_allclose(
        weights_of(config, aligned).A, weights_of(config, identity).A, atol=1e-14
    )


def test_a_tilted_start_has_the_asked_mean_direction(make_config):
    initial = {"distribution": "vmf", "kappa": 20.0, "tilt": 0.7}
    config = make_config(initial=initial, grid={"d": [3], "n_tokens": [5000]})
    shard = shards(config)[0]
    tokens, _ = start(config, shard, 0)
    mean = tokens.mean(axis=0) / np.linalg.norm(tokens.mean(axis=0))
    e = weights_of(config, shard).dominant()[:, 0]
    assert math.acos(mean @ e) == pytest.approx(0.7, abs=0.02)


def test_every_curve_but_ess_is_measured_and_bounded_as_theory_says(make_config):
    config = make_config(grid={"n_tokens": [200], "beta": [32.0]})
    shard = shards(config)[0]
    trajectory, stats = run_cell(config, next(iter(shard.cells())))
    reference = zero_temperature_flow(config, shard, 0).tokens
    weights = weights_of(config, shard)
    curves = measure_cell(
        trajectory.tokens, trajectory.mass, weights, trajectory.tokens[0], reference, 32.0
    )
    assert set(curves) == set(CURVES) - {"ess_median", "ess_min", "w2_zero_temperature"}
    assert (curves["w2_metastable"] <= curves["w2_coupling"] + 1e-12).all()
    assert (curves["distance_dominant"] <= curves["w2_metastable"] + 1e-12).all()
    assert curves["w2_stability"][0] < 1e-14
    assert (curves["distance_terminal_modulus"] == curves["distance_terminal"]).all()
    assert np.isnan(curves["log_energy"]).all()
    counts = dict(zip(STAT_NAMES, stats, strict=True))
    pairs = counts["pairs_computed"] + counts["pairs_skipped"]
    assert pairs == counts["drift_evaluations"] * 200**2
    assert counts["seconds"] > 0


def test_log_energy_is_measured_where_all_matrices_are_the_identity():
    weights = Weights(np.eye(3), np.eye(3))
    x0, mass = initial_tokens(300, 3, seed=0)
    tokens = simulate(x0, weights, 5.0, times=np.array([0.0, 1.0])).tokens
    curves = measure_cell(tokens, mass, weights, x0, tokens, 5.0)
    expected = [oracles.log_energy(x, mass, 5.0) for x in tokens]
    np.testing.assert_allclose(curves["log_energy"], expected, rtol=1e-12)


def test_infinite_beta_is_the_reference_itself(make_config):
    config = make_config(grid={"beta": [math.inf]})
    shard = shards(config)[0]
    trajectory, _ = run_cell(config, next(iter(shard.cells())))
    np.testing.assert_array_equal(trajectory.tokens, zero_temperature_flow(config, shard, 0).tokens)


def test_a_mixture_tilts_each_part_from_the_dominant_direction(make_config):
    parts = [{"kappa": 200.0, "tilt": 0.7}, {"kappa": 200.0, "tilt": math.pi}]
    initial = {"distribution": "mixture", "components": parts}
    config = make_config(initial=initial, grid={"d": [3], "n_tokens": [4000]})
    shard = shards(config)[0]
    tokens, _ = start(config, shard, 0)
    along = tokens @ weights_of(config, shard).dominant()[:, 0]
    assert math.acos(along[along > 0].mean()) == pytest.approx(0.7, abs=0.03)
    assert (along < -0.9).mean() == pytest.approx(0.5, abs=0.04)


def test_without_a_metastable_target_nothing_is_invented():
    turn = Weights(np.array([[1.0, -0.5], [0.5, 1.0]]), np.eye(2))
    x0, mass = initial_tokens(30, 2, seed=0)
    tokens = simulate(x0, turn, 4.0, times=np.array([0.0, 1.0])).tokens
    curves = measure_cell(tokens, mass, turn, x0, tokens, 4.0)
    for name in ("w2_metastable", "w2_coupling", "distance_dominant"):
        assert np.isnan(curves[name]).all()
    assert np.isfinite(curves["distance_terminal"]).all()
    found = turn.assumptions()
    assert found.violated[0] == "dominant eigenvalue of A real and semisimple"
    assert found.multiplicity == 0
    assert np.isnan([found.norm_BTe, found.rate, found.misalignment, found.angle]).all()
