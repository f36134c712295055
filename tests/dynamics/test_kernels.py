import math

import numpy as np
import oracles
import pytest
from hypothesis import given
from strategies import betas, on_sphere, systems

from mfsweep.dynamics import kernels


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


@pytest.mark.parametrize("d", [2, 3, 8, 16, 64])
@pytest.mark.parametrize("beta", [0.0, 1.0, 1e3, 1e8])
def test_many_tiles_equal_the_full_matrix(d, beta):
    rng = np.random.default_rng(d)
    x = on_sphere(rng, 1500, d)
    x = x[kernels.neighbour_order(x)]
    mass = rng.uniform(0.5, 1.0, len(x))
    q = beta * x @ rng.standard_normal((d, d))
    result = kernels.softmax_average(q, x, mass)
    logits = q @ x.T
    weights = mass * np.exp(logits - logits.max(axis=1, keepdims=True))
    total = weights.sum(axis=1)
    slack = 1e-12 + 1e-15 * beta
    np.testing.assert_allclose(result.average, weights @ x / total[:, None], atol=slack)
    np.testing.assert_allclose(result.ess, total**2 / (weights**2).sum(axis=1), rtol=4 * slack)


@pytest.mark.parametrize("d", [2, 3])
def test_skipped_tiles_change_nothing(d, monkeypatch):
    rng = np.random.default_rng(1)
    x = on_sphere(rng, 3000, d)
    x = x[kernels.neighbour_order(x)]
    mass = np.full(len(x), 1 / len(x))
    q = 5000.0 * x @ rng.standard_normal((d, d))
    skipping = kernels.softmax_average(q, x, mass)
    monkeypatch.setattr(kernels, "BLAS_FROM_DIMENSION", 2)
    dense = kernels.softmax_average(q, x, mass)
    assert skipping.pairs < 0.4 * dense.pairs == 0.4 * len(x) ** 2
    np.testing.assert_allclose(skipping.average, dense.average, atol=1e-12)
    np.testing.assert_allclose(skipping.ess, dense.ess, rtol=1e-12)


def test_exponential_is_exact_to_1e_15():
    exact = [(x, math.exp(x)) for x in np.linspace(-700.0, 0.0, 4001)]
    assert max(abs(kernels._exp(x) / value - 1) for x, value in exact) < 1e-15


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


def test_neighbour_order_is_a_permutation_with_compact_tiles():
    rng = np.random.default_rng(3)
    x = on_sphere(rng, 5000, 3)
    order = kernels.neighbour_order(x)
    assert np.array_equal(np.sort(order), np.arange(5000))
    tiles = [x[order[i : i + kernels.TILE]] for i in range(0, 5000, kernels.TILE)]
    radius = np.mean([np.linalg.norm(tile - tile.mean(axis=0), axis=1).max() for tile in tiles])
    assert radius < 0.8  # 20 tiles cover a sphere; tiles in random order have radius 1
