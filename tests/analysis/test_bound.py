"""The two terms of Theorem 1 against closed forms and curves of known rates."""

import math

import numpy as np
import oracles
import pytest

from mfsweep import Weights, initial_tokens, project_dominant, simulate, weights_with_gap
from mfsweep.analysis.bound import decay_rate, growth_rate, power_of_beta, predicted_decay_rate
from mfsweep.analysis.wasserstein import w2_curve

TIMES = np.linspace(0.0, 40.0, 81)


def given(name):
    return Weights(*(np.array(matrix) for matrix in oracles.GIVEN[name]))


def diagonal(d, multiplicity, gap=0.5):
    mu = np.full(d, 1 - gap)
    mu[:multiplicity] = 1.0
    return Weights(np.diag(mu), np.eye(d))


@pytest.mark.parametrize(("multiplicity", "share"), [(1, 0.5), (2, 1.0), (3, 1.0)])
def test_o7_for_the_identity_the_rate_is_min_1_m_over_2_times_the_gap(multiplicity, share):
    assert predicted_decay_rate(diagonal(4, multiplicity)) == pytest.approx(0.5 * share)


def test_for_aligned_weights_the_cluster_contracts_more_slowly_than_tokens_arrive():
    weights = weights_with_gap(3, 0.5, family="aligned", seed=0, b=(2.0, 0.5))
    assert predicted_decay_rate(weights) == pytest.approx(0.5 / 2.0)
    swapped = weights_with_gap(3, 0.5, family="aligned", seed=0, b=(0.5, 2.0))
    assert predicted_decay_rate(swapped) == pytest.approx(0.5 * 0.5 / 2.0)


@pytest.mark.parametrize(
    "weights",
    [Weights(np.array([[1.0, 0.3], [0.0, 0.5]]), np.eye(2)), Weights(np.eye(2), np.eye(2))],
)
def test_no_rate_is_predicted_without_symmetry_or_gap(weights):
    assert math.isnan(predicted_decay_rate(weights))


@pytest.mark.parametrize(
    "weights",
    [
        diagonal(2, 1),
        diagonal(3, 1),
        weights_with_gap(2, 0.5, family="aligned", seed=0, b=(2.0, 0.5)),
        weights_with_gap(2, 0.5, family="aligned", seed=0, b=(0.5, 2.0)),
        given("G0"),
    ],
)
def test_the_zero_temperature_flow_decays_at_the_predicted_rate(weights):
    x0, mass = initial_tokens(8000, weights.d, sampling="qmc", seed=0)
    tokens = simulate(x0, weights, math.inf, times=TIMES).tokens
    w2 = w2_curve(tokens, project_dominant(x0, weights), mass)
    rate = decay_rate(TIMES, w2[None], len(x0)).value
    assert rate == pytest.approx(predicted_decay_rate(weights), rel=0.08)


def test_the_decay_is_read_between_its_start_and_the_last_few_tokens():
    w2 = np.where(TIMES <= 1, np.exp(-1.3 * TIMES), np.exp(-1.3 - 0.25 * (TIMES - 1)))
    w2 = np.where(w2 < 0.005, 1e-9, w2)
    assert decay_rate(TIMES, w2[None], 25 / 0.005**2).value == pytest.approx(0.25, rel=0.01)
    assert math.isnan(decay_rate(TIMES, w2[None], 100).value)


def test_rates_are_means_over_seeds_with_a_t_interval():
    rates = np.array([0.2, 0.3, 0.4])
    found = decay_rate(TIMES, np.exp(-rates[:, None] * TIMES), 1e6)
    reach = 4.302653 * 0.1 / math.sqrt(3)
    assert found == pytest.approx((0.3, 0.3 - reach, 0.3 + reach), rel=1e-6)
    alone = decay_rate(TIMES, np.exp(-0.3 * TIMES)[None], 1e6)
    assert alone.value == pytest.approx(0.3)
    assert np.isnan([alone.low, alone.high]).all()


def test_growth_is_read_before_it_saturates():
    rates = np.array([0.4, 0.6])[:, None]
    w = np.minimum(1e-4 * np.exp(rates * TIMES), 1.0)
    assert growth_rate(TIMES, w).value == pytest.approx(0.5, rel=1e-6)
    assert math.isnan(growth_rate(TIMES, np.zeros((2, 81))).value)


def test_the_power_of_beta_is_that_of_each_seeds_line():
    beta = np.geomspace(8, 512, 5)
    w = np.stack([beta**-0.4, 7 * beta**-0.6], axis=1)
    assert power_of_beta(beta, w).value == pytest.approx(-0.5)
    for few, curve in ((beta[:2], w[:2]), (beta, 0 * w), (beta, np.nan * w)):
        assert np.isnan(power_of_beta(few, curve)).all()
