import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from mfsweep.dynamics.circle import condense, nodes_needed


def full_sums(q, y, mass):
    """Averages, effective sample sizes and normalisation by the full matrix; y (2, n)."""
    logits = q @ y
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    total = weights @ mass[0]
    return (weights * mass[0]) @ y.T / total[:, None], total**2 / (weights**2 @ mass[1])


@st.composite
def circles(draw):
    """Tokens in clusters of many widths, sorted by angle: (y (2, n), mass (2, n), q (rows, 2))."""
    rng = np.random.default_rng(draw(seeds))
    n = draw(st.sampled_from([30, 300, 2000]))
    width = 10.0 ** draw(st.floats(-16, 0.8))
    centres = rng.uniform(-math.pi, math.pi, draw(st.integers(1, 4)))
    angle = rng.choice(centres, n) + width * rng.uniform(-0.5, 0.5, n)
    y = np.stack([np.cos(angle), np.sin(angle)])
    y = y[:, np.argsort(np.arctan2(y[1], y[0]), kind="stable")]
    mass = rng.uniform(0.1, 1.0, n)
    mass /= mass.sum()
    beta = 10.0 ** draw(st.floats(-2, 4))
    q = beta * rng.standard_normal((20, 2))
    return y, np.stack([mass, mass**2]), np.concatenate([q, beta * y.T[:: n // 20]])


@given(circles())
def test_nodes_give_the_sums_of_the_tokens(circle):
    y, mass, q = circle
    reach = np.linalg.norm(q, axis=1).max()
    nodes, weights = condense(y, mass, reach)
    average, ess = full_sums(q, y, mass)
    near, near_ess = full_sums(q, nodes, weights)
    slack = 1e-12 + 1e-14 * reach  # a logit of size reach has that much roundoff
    np.testing.assert_allclose(near, average, atol=slack)
    np.testing.assert_allclose(near_ess, ess, rtol=20 * slack)


@given(circles())
def test_nodes_keep_the_mass_and_stay_on_the_circle(circle):
    y, mass, q = circle
    nodes, weights = condense(y, mass, np.linalg.norm(q, axis=1).max())
    assert nodes.shape == weights.shape
    assert nodes.shape[1] <= y.shape[1]
    np.testing.assert_allclose(weights.sum(axis=1), mass.sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(np.sum(nodes**2, axis=0), 1.0, atol=1e-14)


def test_a_cluster_needs_few_nodes_however_many_tokens():
    angle = np.sort(1.0 + 0.01 * np.random.default_rng(0).uniform(-1, 1, 5000))
    y = np.stack([np.cos(angle), np.sin(angle)])
    mass = np.stack([np.full(5000, 1 / 5000), np.full(5000, 1 / 5000**2)])
    nodes, _ = condense(y, mass, 128.0)
    assert nodes.shape[1] < 50


def test_a_gap_wider_than_the_peak_splits_the_group():
    reach = 1e3
    angle = np.concatenate([np.linspace(0, 0.2, 500), np.linspace(0.5, 0.7, 500)])
    y = np.stack([np.cos(angle), np.sin(angle)])
    mass = np.stack([np.full(1000, 1e-3), np.full(1000, 1e-6)])
    nodes, weights = condense(y, mass, reach)
    assert nodes.shape[1] < 1000
    q = reach * np.array([[math.cos(0.35), math.sin(0.35)]])  # its peak lies in the gap
    np.testing.assert_allclose(
        full_sums(q, nodes, weights)[0], full_sums(q, y, mass)[0], atol=1e-11
    )


@pytest.mark.parametrize(("reach", "half"), [(1.0, 0.5), (100.0, 0.1), (1e4, 0.01), (1e4, 0.3)])
def test_the_bound_on_the_nodes_holds(reach, half):
    p = nodes_needed(reach, half, 1)
    fine = np.linspace(-1, 1, 2001)
    for peak in np.linspace(0, 1.5, 7):
        f = lambda z, peak=peak: np.exp(reach * (np.cos(half * (z - peak)) - 1))  # noqa: E731
        series = np.polynomial.chebyshev.chebinterpolate(f, p - 1)
        error = np.abs(np.polynomial.chebyshev.chebval(fine, series) - f(fine)).max()
        assert error < 1e-13 * f(fine).max() * p
