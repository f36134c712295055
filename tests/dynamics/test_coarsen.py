import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import on_sphere, seeds

from mfsweep import initial_tokens, simulate, softmax_drift, switch_times, weights_with_gap
from mfsweep.analysis.targets import (
    distance_dominant,
    distance_terminal,
    project_dominant,
    separation,
)
from mfsweep.analysis.wasserstein import w2_curve
from mfsweep.dynamics.coarsen import coarsen, single_tokens
from mfsweep.dynamics.drift import attend
from mfsweep.dynamics.sphere import normalise


@given(seeds, st.sampled_from([2, 3, 6]), st.floats(-9, -1))
def test_no_token_moves_farther_than_the_radius_and_the_mean_stays(seed, d, power):
    rng = np.random.default_rng(seed)
    x = normalise(
        on_sphere(rng, 3, d)[rng.integers(0, 3, 60)] + 1e-4 * rng.standard_normal((60, d))
    )
    mass, radius = rng.uniform(0.5, 1.0, 60), 10.0**power
    clusters = single_tokens(mass)
    place = x
    for _ in range(3):  # what has merged may merge again
        place, clusters = coarsen(place, np.zeros_like(place), clusters, radius)
        assert np.linalg.norm(x - place[clusters.member], axis=1).max() <= radius * (1 + 1e-9)
    for c in range(len(place)):
        members = clusters.member == c
        assert clusters.mass[c] == pytest.approx(mass[members].sum())
        assert clusters.square[c] == pytest.approx((mass[members] ** 2).sum())
        mean = normalise(mass[members] @ x[members])
        np.testing.assert_allclose(place[c], mean, atol=radius**3 + 1e-15)


def test_tokens_that_part_do_not_merge():
    x = normalise(np.array([[1.0, 1e-8], [1.0, -1e-8], [0.0, 1.0]]))
    clusters = single_tokens(np.full(3, 1 / 3))
    apart = np.array([[0.0, 1.0], [0.0, -1.0], [0.0, 0.0]])
    assert len(coarsen(x, apart, clusters, 1e-6)[0]) == 3
    assert len(coarsen(x, -apart, clusters, 1e-6)[0]) == 2


def test_merged_tokens_attend_as_they_did_to_second_order():
    weights = weights_with_gap(3, 0.5, family="generic", seed=1)
    rng = np.random.default_rng(0)
    errors = []
    for radius in (1e-3, 1e-4):
        cluster = normalise(np.eye(3)[0] + 0.3 * radius * rng.standard_normal((50, 3)))
        x = np.concatenate([cluster, on_sphere(rng, 50, 3)])
        mass = np.full(100, 0.01)
        merged, clusters = coarsen(x, np.zeros_like(x), single_tokens(mass), 2 * radius)
        assert len(merged) < 60
        before = attend(x, weights, 32.0, mass)
        after = attend(merged, weights, 32.0, clusters.mass, clusters.square)
        errors.append(np.abs(after.average[clusters.member[50:]] - before.average[50:]).max())
        np.testing.assert_allclose(
            after.ess[clusters.member[50:]], before.ess[50:], rtol=1e4 * radius
        )
    assert errors[1] < 0.05 * errors[0]


def curves(run, weights, x0):
    dominant = distance_dominant(run.tokens, weights, run.mass)
    return {
        "w2_metastable": w2_curve(run.tokens, project_dominant(x0, weights), run.mass),
        "distance_dominant": dominant,
        "distance_terminal": distance_terminal(run.tokens, weights, run.mass),
        "ess_median": run.ess_median,
    }


@pytest.mark.parametrize(
    ("family", "d", "beta", "end"),
    [("aligned", 2, 64.0, 40), ("aligned", 3, 32.0, 40), ("generic", 2, 16.0, 70)],
)
def test_switch_times_and_statuses_are_those_of_single_tokens(family, d, beta, end):
    weights = weights_with_gap(d, 0.5, family=family, seed=0)
    x0, _ = initial_tokens(600, d, seed=3)
    times = np.linspace(0, end, 161)
    merged, single = (
        simulate(x0, weights, beta, times=times, **options) for options in ({}, {"merge_radius": 0})
    )
    assert merged.stats.pairs_computed < single.stats.pairs_computed
    here, there = (
        switch_times(times, curves(run, weights, x0), separation=separation(weights))
        for run in (merged, single)
    )
    for name, switch in here.items():
        assert switch.status == there[name].status
        assert math.isnan(switch.value) or switch.value == pytest.approx(
            there[name].value, abs=5e-4
        )
    np.testing.assert_allclose(merged.ess_median, single.ess_median, rtol=2e-3)


def test_a_merged_run_saves_every_token():
    weights = weights_with_gap(2, 0.5, family="aligned", seed=0)
    x0, mass = initial_tokens(500, 2, seed=0)
    run = simulate(x0, weights, 32.0, times=np.array([0.0, 5.0, 40.0]))
    assert run.tokens.shape == (3, 500, 2)
    assert len(np.unique(run.tokens[-1], axis=0)) < 20
    assert np.abs(softmax_drift(run.tokens[-1], weights, 32.0)).max() < 1e-3
    assert mass.sum() == pytest.approx(1.0)
