import math

import numpy as np
import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import on_sphere, seeds

from mfsweep import initial_tokens, weights_with_gap
from mfsweep.dynamics.condense import condensed_average
from mfsweep.dynamics.kernels import softmax_average
from mfsweep.dynamics.patches import nodes_needed


@st.composite
def clusters(draw):
    """Tokens in clusters of many widths, with stragglers: (x (n, d), mass, form (d, d))."""
    rng = np.random.default_rng(draw(seeds))
    d, n = draw(st.sampled_from([2, 3])), draw(st.sampled_from([30, 300, 2000]))
    centres = on_sphere(rng, draw(st.integers(1, 4)), d)
    width = 10.0 ** rng.uniform(-12, -0.5, len(centres))
    cluster = rng.integers(0, len(centres), n)
    x = centres[cluster] + width[cluster, None] * rng.standard_normal((n, d))
    stragglers = rng.random(n) < draw(st.sampled_from([0.0, 0.05]))
    x[stragglers] = rng.standard_normal((stragglers.sum(), d))
    mass = rng.uniform(0.1, 1.0, n)
    beta = 10.0 ** draw(st.floats(-2, 4))
    form = np.eye(d) if draw(st.booleans()) else rng.standard_normal((d, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True), mass / mass.sum(), beta * form


@given(clusters())
def test_nodes_give_the_sums_of_the_tokens(system):
    x, mass, form = system
    result = condensed_average(x, form, mass)
    average, ess = oracles.full_softmax_average(x @ form, x, mass)
    roundoff = 1e-15 * np.linalg.norm(form, 2)  # of a logit
    np.testing.assert_allclose(result.average, average, atol=1e-12 + 4 * roundoff)
    np.testing.assert_allclose(result.ess, ess, rtol=1e-5 + 8 * roundoff)


@given(clusters(), st.integers(2, 9))
def test_a_token_may_stand_for_several(system, copies):
    x, mass, form = system
    square = mass**2 / copies  # of `copies` tokens with an equal share of the mass
    result = condensed_average(x, form, mass, square)
    apart = condensed_average(np.repeat(x, copies, 0), form, np.repeat(mass, copies) / copies)
    roundoff = 1e-15 * np.linalg.norm(form, 2)
    np.testing.assert_allclose(result.average, apart.average[::copies], atol=1e-12 + 8 * roundoff)
    np.testing.assert_allclose(result.ess, apart.ess[::copies], rtol=2e-5 + 8 * roundoff)


@pytest.mark.parametrize("d", [2, 3])
def test_a_cluster_costs_as_much_as_its_nodes(d):
    rng = np.random.default_rng(0)
    x = np.eye(d)[0] + 0.01 * rng.standard_normal((4000, d))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    mass = np.full(4000, 1 / 4000)
    result = condensed_average(x, 128.0 * np.eye(d), mass)
    assert result.pairs < 0.02 * 4000**2
    np.testing.assert_allclose(
        result.average, softmax_average(128.0 * x, x, mass).average, atol=1e-13
    )


@pytest.mark.parametrize("beta", [1.0, 64.0, 1e4])
def test_spread_tokens_are_summed_one_by_one(beta):
    x, mass = initial_tokens(3000, 3, seed=0)
    form = beta * weights_with_gap(3, 0.5, family="generic", seed=0).B
    plain = oracles.full_softmax_average(x @ form, x, mass)
    result = condensed_average(x, form, mass)
    np.testing.assert_allclose(result.average, plain[0], atol=1e-12)
    np.testing.assert_allclose(result.ess, plain[1], rtol=1e-10)


@pytest.mark.parametrize(("size", "half"), [(1.0, 0.4), (100.0, 0.1), (1e4, 0.01), (1e6, 1e-6)])
@pytest.mark.parametrize("angle", [0.0, 0.7, 2.0])
def test_the_nodes_that_are_asked_for_leave_the_stated_error(size, half, angle):
    digits, inward = math.log(1e10), size * math.cos(angle)
    needed = nodes_needed(digits, size * math.sin(angle), max(0.0, inward), abs(inward), half, 0.0)
    p = math.ceil(needed)
    node = np.cos(np.pi * (2 * np.arange(p) + 1) / (2 * p))
    weight = np.sin(np.pi * (2 * np.arange(p) + 1) / (2 * p)) * (-1.0) ** np.arange(p)
    t = np.linspace(-1, 1, 1001)[1:-1] + 1e-7
    lagrange = weight / (t[:, None] - node)
    lagrange /= lagrange.sum(axis=1, keepdims=True)

    def exponent(t):
        a = half * t
        return inward * np.sqrt(1 - a * a) + size * math.sin(angle) * a

    top = exponent(np.linspace(-1, 1, 4001)).max()
    error = np.abs(lagrange @ np.exp(exponent(node) - top) - np.exp(exponent(t) - top)).max()
    assert error < math.exp(-digits) + 1e-15 * size
    assert p == 1 or math.exp(-digits) < 1e12 * error  # not absurdly many
