import math

import numpy as np
import oracles
import pytest
from hypothesis import given
from numba import njit
from strategies import betas, on_sphere, systems

from mfsweep.dynamics import kernels
from mfsweep.dynamics.tiles import neighbour_tree
from mfsweep.dynamics.vectorised import exponential


def in_order(x):
    return x[neighbour_tree(x, kernels.TILE).order]


@given(systems(), betas)
def test_average_and_ess_equal_two_plain_loops(system, beta):
    x, mass, weights = system
    q = beta * x @ weights.B
    result = kernels.softmax_average(q, x, mass)
    average, ess = oracles.softmax_average(q, x, mass)
    # a logit of size l is known to l * 2^-53, and so is the logarithm of a weight
    slack = 1e-13 + 4e-16 * np.abs(q).max() * x.shape[1]
    np.testing.assert_allclose(result.average, average, atol=4 * slack)
    np.testing.assert_allclose(result.ess, ess, rtol=8 * slack)


@pytest.mark.parametrize("d", [2, 3, 4, 8, 16, 64])
@pytest.mark.parametrize("beta", [0.0, 1.0, 1e3, 1e8])
def test_many_tiles_equal_the_full_matrix(d, beta):
    rng = np.random.default_rng(d)
    x = in_order(on_sphere(rng, 1500, d))
    mass = rng.uniform(0.5, 1.0, len(x))
    q = beta * x @ rng.standard_normal((d, d))
    result = kernels.softmax_average(q, x, mass)
    average, ess = oracles.full_softmax_average(q, x, mass)
    slack = 1e-12 + 1e-15 * beta
    np.testing.assert_allclose(result.average, average, atol=slack)
    np.testing.assert_allclose(result.ess, ess, rtol=4 * slack)


@pytest.mark.parametrize("d", [2, 3, 5])
def test_skipped_tiles_change_nothing(d):
    rng = np.random.default_rng(1)
    x = on_sphere(rng, 3072, d)
    if d == 5:  # so many dimensions need clusters
        x = np.repeat(x[:12], 256, axis=0) + 0.01 * x
        x /= np.linalg.norm(x, axis=1, keepdims=True)
    x = in_order(x)
    mass = rng.uniform(0.5, 1.0, len(x)) / len(x)
    q = 5000.0 * x @ rng.standard_normal((d, d))
    skipping = kernels.softmax_average(q, x, mass)
    average, ess = oracles.full_softmax_average(q, x, mass)
    assert skipping.pairs < 0.3 * len(x) ** 2
    np.testing.assert_allclose(skipping.average, average, atol=1e-12)
    np.testing.assert_allclose(skipping.ess, ess, rtol=3e-12)


@pytest.mark.parametrize("d", [2, 3, 5, 40])
def test_float32_gives_float32_to_its_own_accuracy(d):
    rng = np.random.default_rng(d)
    x = in_order(on_sphere(rng, 700, d))
    mass = rng.uniform(0.5, 1.0, len(x)) / len(x)
    single = kernels.softmax_average(*(a.astype(np.float32) for a in (20.0 * x, x, mass)))
    double = kernels.softmax_average(20.0 * x, x, mass)
    assert single.average.dtype == single.ess.dtype == np.float32
    np.testing.assert_allclose(single.average, double.average, atol=3e-6)
    np.testing.assert_allclose(single.ess, double.ess, rtol=3e-5)


def test_a_row_whose_largest_logit_comes_late_loses_nothing():
    # tiles in an order that keeps the best key out of the first tile looked at
    rng = np.random.default_rng(7)
    x = on_sphere(rng, 640, 3)
    q, mass = 1e6 * x[rng.permutation(640)], np.full(640, 1 / 640)
    result = kernels.softmax_average(q, x, mass)
    np.testing.assert_allclose(
        result.average, oracles.full_softmax_average(q, x, mass)[0], atol=1e-9
    )


@njit
def _of_each(x):
    return np.array([exponential(value) for value in x])


def test_exponential_is_exact_to_1e_15():
    x = np.linspace(-700.0, 300.0, 4001)
    exact = np.array([math.exp(value) for value in x])
    np.testing.assert_allclose(_of_each(x), exact, rtol=1e-15)
    single = np.linspace(-87.0, 60.0, 4001, dtype=np.float32)
    np.testing.assert_allclose(_of_each(single), np.exp(single.astype(np.float64)), rtol=3e-7)


def test_ess_counts_original_tokens_of_a_merged_key():
    rng = np.random.default_rng(2)
    for d in (2, 3, 20):
        x = on_sphere(rng, 60, d)
        heavy = np.concatenate([x, np.repeat(x[:1], 4, axis=0)])
        q = 3.0 * x
        apart = kernels.softmax_average(q, heavy, np.full(64, 1 / 64))
        mass, square_mass = np.full(60, 1 / 64), np.full(60, 1 / 64**2)
        mass[0], square_mass[0] = 5 / 64, 5 / 64**2
        merged = kernels.softmax_average(q, x, mass, square_mass)
        np.testing.assert_allclose(merged.average, apart.average, atol=1e-14)
        np.testing.assert_allclose(merged.ess, apart.ess, rtol=1e-12)
