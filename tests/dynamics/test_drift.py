from itertools import pairwise

import numpy as np
import oracles
import pytest
from hypothesis import given
from strategies import betas, on_sphere, seeds, systems

from mfsweep import Weights, softmax_drift, zero_temperature_drift
from mfsweep._errors import InputError
from mfsweep.dynamics.drift import attend
from mfsweep.dynamics.sphere import normalise


def _slack(x, weights, beta):
    return 1e-12 * (1 + beta * np.abs(x @ weights.B).max()) * (1 + np.abs(weights.V).sum())


@given(systems(), betas)
def test_drift_is_tangent(system, beta):
    x, mass, weights = system
    velocity = softmax_drift(x, weights, beta, mass=mass)
    radial = np.sum(x * velocity, axis=1)
    np.testing.assert_allclose(radial, 0, atol=1e-13 * (1 + np.abs(weights.V).sum()))


@given(systems(), betas, seeds)
def test_rotating_tokens_and_weights_rotates_the_drift(system, beta, seed):
    x, mass, weights = system
    rng = np.random.default_rng(seed)
    r, _ = np.linalg.qr(rng.standard_normal((weights.d, weights.d)))
    turned = Weights(r @ weights.V @ r.T, r @ weights.B @ r.T)
    expected = softmax_drift(x, weights, beta, mass=mass) @ r.T
    np.testing.assert_allclose(
        softmax_drift(x @ r.T, turned, beta, mass=mass), expected, atol=_slack(x, weights, beta)
    )


@given(systems(), betas, seeds)
def test_permuting_tokens_permutes_the_drift(system, beta, seed):
    x, mass, weights = system
    order = np.random.default_rng(seed).permutation(len(x))
    expected = softmax_drift(x, weights, beta, mass=mass)[order]
    np.testing.assert_allclose(
        softmax_drift(x[order], weights, beta, mass=mass[order]),
        expected,
        atol=_slack(x, weights, beta),
    )


@given(systems(), betas)
def test_mirrored_tokens_have_the_mirrored_drift(system, beta):
    x, mass, weights = system
    expected = -softmax_drift(x, weights, beta, mass=mass)
    np.testing.assert_allclose(
        softmax_drift(-x, weights, beta, mass=mass), expected, atol=_slack(x, weights, beta)
    )


@given(systems(), betas)
def test_splitting_a_token_in_two_halves_changes_nothing(system, beta):
    x, mass, weights = system
    halves = np.concatenate([mass, mass[:1] / 2])
    halves[0] /= 2
    expected = softmax_drift(x, weights, beta, mass=mass)
    split = softmax_drift(np.concatenate([x, x[:1]]), weights, beta, mass=halves)
    np.testing.assert_allclose(split[:-1], expected, atol=_slack(x, weights, beta))


@pytest.mark.parametrize("d", [2, 3, 20])
def test_drift_is_the_written_equation_for_unsymmetric_matrices(d):
    rng = np.random.default_rng(d)
    x, mass = on_sphere(rng, 30, d), rng.uniform(0.5, 1, 30)
    mass /= mass.sum()
    V, B = rng.standard_normal((2, d, d))
    expected = np.zeros_like(x)
    for i in range(30):
        weight = [mass[j] * np.exp(2.0 * x[i] @ B @ x[j]) for j in range(30)]
        push = V @ sum(w * y for w, y in zip(weight, x, strict=True)) / sum(weight)
        expected[i] = push - (x[i] @ push) * x[i]
    np.testing.assert_allclose(
        softmax_drift(x, Weights(V, B), 2.0, mass=mass), expected, atol=1e-12
    )
    query = x @ B  # rows are B^T x
    push = query / np.linalg.norm(query, axis=1, keepdims=True) @ V.T
    limit = push - np.sum(x * push, axis=1, keepdims=True) * x
    np.testing.assert_allclose(zero_temperature_drift(x, Weights(V, B)), limit, atol=1e-13)


@pytest.mark.parametrize("ranks", [(0, 0), (1, 1), (3, 5), (4, 4), (5, 4), (8, 8)])
@pytest.mark.parametrize("d", [3, 8])
def test_drift_of_weights_of_low_rank_is_the_written_equation(d, ranks):
    rng = np.random.default_rng(d)
    x, mass = on_sphere(rng, 400, d), rng.uniform(0.5, 1.0, 400)
    B, V = (rng.standard_normal((d, k)) @ rng.standard_normal((k, d)) for k in np.minimum(ranks, d))
    weights = Weights(V, B)
    average, ess = oracles.full_softmax_average(9.0 * x @ B, x, mass / mass.sum())
    push = average @ V.T
    expected = push - np.sum(x * push, axis=1, keepdims=True) * x
    np.testing.assert_allclose(softmax_drift(x, weights, 9.0, mass=mass), expected, atol=1e-11)
    np.testing.assert_allclose(attend(x, weights, 9.0, mass / mass.sum()).ess, ess, rtol=1e-11)
    shapes = None if weights.spans is None else [basis.shape for basis in weights.spans]
    saved = d == 8 and sum(ranks) <= 8
    assert shapes == ([(8, max(1, rank)) for rank in ranks] if saved else None)


def test_clusters_are_skipped_where_weights_have_low_rank():
    rng = np.random.default_rng(2)
    x = normalise(np.repeat(on_sphere(rng, 6, 40), 1024, axis=0) + 0.01 * on_sphere(rng, 6144, 40))
    mass = np.full(len(x), 1 / len(x))
    B = rng.standard_normal((40, 3)) @ rng.standard_normal((3, 40))
    weights = Weights(np.outer(x[0], x[0]), B)
    found = attend(x, weights, 200.0, mass)
    average, ess = oracles.full_softmax_average(200.0 * x @ B, x, mass)
    assert found.pairs < 0.5 * len(x) ** 2
    np.testing.assert_allclose(found.average, average @ weights.V, atol=1e-10)
    np.testing.assert_allclose(found.ess, ess, rtol=1e-9)


def test_at_beta_zero_every_token_sees_the_mean():
    rng = np.random.default_rng(0)
    x, mass = on_sphere(rng, 30, 3), rng.uniform(0.5, 1, 30)
    weights = Weights(rng.standard_normal((3, 3)), rng.standard_normal((3, 3)))
    push = weights.V @ (mass @ x / mass.sum())
    expected = push - np.outer(x @ push, np.ones(3)) * x
    np.testing.assert_allclose(softmax_drift(x, weights, 0.0, mass=mass), expected, atol=1e-14)


def test_zero_temperature_is_the_limit_on_a_dense_circle():
    weights = Weights(*(np.array(matrix) for matrix in oracles.G0))
    angle = 2 * np.pi * np.arange(20_000) / 20_000
    x = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    limit = zero_temperature_drift(x, weights)
    errors = [np.abs(softmax_drift(x, weights, beta) - limit).max() for beta in (50, 100, 200)]
    assert errors[-1] < 5e-3
    # Laplace's method: the error falls like 1 / beta
    assert all(1.8 < a / b < 2.2 for a, b in pairwise(errors))


@given(seeds)
def test_nothing_overflows_from_beta_0_to_1e8(seed):
    rng = np.random.default_rng(seed)
    for d in (2, 3, 16):
        x = on_sphere(rng, 50, d)
        weights = Weights(rng.standard_normal((d, d)), rng.standard_normal((d, d)))
        for beta in (0.0, 1e-8, 709.0, 1e4, 1e8):
            assert np.isfinite(softmax_drift(x, weights, beta)).all()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"beta": -1.0}, "beta = -1.0"),
        ({"beta": np.inf}, "beta = inf"),
        ({"x": np.ones((3, 2))}, "unit sphere"),
        ({"x": np.eye(3)}, r"shape \(3, 3\)"),
        ({"mass": np.array([1.0, -1.0])}, "positive"),
    ],
)
def test_bad_input_is_named(change, named):
    arguments = {"x": np.eye(2), "weights": Weights(np.eye(2), np.eye(2)), "beta": 1.0} | change
    with pytest.raises(InputError, match=named):
        softmax_drift(**arguments)
