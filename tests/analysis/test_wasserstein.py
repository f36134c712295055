import math

import numpy as np
import oracles
import ot
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from strategies import on_sphere, seeds

from mfsweep import Weights, initial_tokens, project_dominant, simulate, w2
from mfsweep._errors import InputError, TransportError
from mfsweep.analysis import wasserstein
from mfsweep.analysis.wasserstein import coupling_distance, w2_curve

METRICS = st.sampled_from(["chordal", "geodesic"])
POWER = {"chordal": lambda c: c, "geodesic": lambda c: 2 * np.arcsin(np.minimum(c / 2, 1))}


def by_linear_program(x, y, mass_x, mass_y, metric):
    """W2 by scipy's general linear programming, an independent route."""
    from scipy.optimize import linprog

    cost = POWER[metric](np.linalg.norm(x[:, None] - y, axis=2)) ** 2
    n, k = cost.shape
    rows = np.kron(np.eye(n), np.ones(k))
    columns = np.kron(np.ones(n), np.eye(k))
    run = linprog(
        cost.ravel(), A_eq=np.vstack([rows, columns]), b_eq=np.concatenate([mass_x, mass_y])
    )
    return math.sqrt(max(run.fun, 0.0))


@given(seeds, st.integers(1, 12), st.integers(1, 12), st.sampled_from([2, 3, 5]), METRICS)
def test_w2_equals_the_linear_program(seed, n, k, d, metric):
    rng = np.random.default_rng(seed)
    x, y = on_sphere(rng, n, d), on_sphere(rng, k, d)
    mass_x, mass_y = rng.dirichlet(np.ones(n) * 5), rng.dirichlet(np.ones(k) * 5)
    ours = w2(x, y, mass_x=mass_x, mass_y=mass_y, metric=metric)
    assert ours == pytest.approx(by_linear_program(x, y, mass_x, mass_y, metric), abs=1e-6)


@given(seeds, st.integers(4, 12), st.integers(3, 6), METRICS)
def test_tokens_that_have_met_are_transported_as_the_linear_program_does(seed, n, k, metric):
    rng = np.random.default_rng(seed)
    places = rng.integers(0, k, n)
    x, y = on_sphere(rng, k, 3)[places], on_sphere(rng, n, 3)
    mass_x, mass_y = rng.dirichlet(np.ones(n) * 5), rng.dirichlet(np.ones(n) * 5)
    ours = w2(x, y, mass_x=mass_x, mass_y=mass_y, metric=metric)
    assert ours == pytest.approx(by_linear_program(x, y, mass_x, mass_y, metric), abs=1e-6)


@given(seeds, st.integers(2, 60), METRICS)
def test_o8_sorting_equals_network_simplex_for_two_atoms(seed, n, metric):
    rng = np.random.default_rng(seed)
    x, mass = on_sphere(rng, n, 3), rng.dirichlet(np.ones(n))
    e = on_sphere(rng, 1, 3)
    up = rng.uniform(0.05, 0.95)
    atoms, atom_mass = np.concatenate([e, -e]), np.array([up, 1 - up])
    cost = POWER[metric](np.linalg.norm(x[:, None] - atoms, axis=2)) ** 2
    expected = math.sqrt(ot.emd2(mass, atom_mass, cost))
    ours = w2(x, atoms, mass_x=mass, mass_y=atom_mass, metric=metric)
    assert ours == pytest.approx(expected, abs=1e-9)
    back = w2(atoms, x, mass_x=atom_mass, mass_y=mass, metric=metric)
    assert back == pytest.approx(expected, abs=1e-9)


@given(seeds, st.integers(3, 40), METRICS)
def test_equal_masses_are_transported_as_by_an_assignment(seed, n, metric):
    rng = np.random.default_rng(seed)
    x, y = on_sphere(rng, n, 3), on_sphere(rng, n, 3)
    cost = POWER[metric](np.linalg.norm(x[:, None] - y, axis=2)) ** 2
    expected = math.sqrt(cost[linear_sum_assignment(cost)].mean())
    assert w2(x, y, metric=metric) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("equal", [True, False])
def test_costs_computed_when_needed_give_the_same_distance(monkeypatch, equal):
    rng = np.random.default_rng(4)
    x, y = on_sphere(rng, 200, 4), on_sphere(rng, 150, 4)
    mass = None if equal else rng.dirichlet(np.ones(200))
    whole = w2(x, y, mass_x=mass)
    monkeypatch.setattr(wasserstein, "LARGEST_PLAN", 149)
    monkeypatch.setattr(ot, "emd2", None)
    assert w2(x, y, mass_x=mass) == pytest.approx(whole, rel=1e-12)


@given(seeds, st.integers(2, 6))
def test_a_curve_is_w2_at_each_time_whether_solved_or_read_off_the_coupling(seed, n):
    rng = np.random.default_rng(seed)
    target, mass = on_sphere(rng, n + 2, 3), rng.dirichlet(np.ones(n + 2))
    near, far = (on_sphere(rng, n + 2, 3) for _ in range(2))
    near = target + 1e-3 * near
    near /= np.linalg.norm(near, axis=1, keepdims=True)
    expected = [w2(x, target, mass_x=mass, mass_y=mass) for x in (near, far)]
    assert w2_curve(np.stack([near, far]), target, mass) == pytest.approx(expected, abs=1e-9)


@given(seeds, METRICS)
def test_w2_is_a_metric_below_every_coupling(seed, metric):
    rng = np.random.default_rng(seed)
    x, y, z = (on_sphere(rng, 9, 3) for _ in range(3))
    assert w2(x, x[::-1], metric=metric) == pytest.approx(0, abs=1e-12)
    assert w2(x, y, metric=metric) == pytest.approx(w2(y, x, metric=metric), rel=1e-12)
    there = w2(x, y, metric=metric) + w2(y, z, metric=metric)
    assert w2(x, z, metric=metric) <= there + 1e-12
    coupled = coupling_distance(x, y, np.full(9, 1 / 9), metric=metric)
    assert w2(x, y, metric=metric) <= coupled + 1e-12


def test_clusters_1e_9_apart_keep_their_digits():
    x = np.array([[1.0, 0.0], [np.cos(1e-9), np.sin(1e-9)], [0.0, 1.0]])
    y = np.array([[np.cos(2e-9), np.sin(2e-9)], [1.0, 0.0], [0.0, 1.0]])
    assert w2(x, y) == pytest.approx(1e-9 / math.sqrt(3), rel=1e-6)


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize("phase", [0.0, 1.0, 3.0])
def test_o6_uniform_start_at_zero_temperature(d, phase):
    gap, n = 0.5, 20_000
    weights = Weights(np.diag([1.0] + [1 - gap] * (d - 1)), np.eye(d))
    x0, mass = initial_tokens(n, d, sampling="qmc", seed=d)
    times = np.array([phase / gap])
    tokens = simulate(x0, weights, math.inf, times=times).tokens
    curve = w2_curve(tokens, project_dominant(x0, weights), mass)
    exact = oracles.w2_identity_uniform(times, gap, d)
    np.testing.assert_allclose(curve, exact, atol=2e-3)


@pytest.mark.parametrize(("multiplicity", "rate"), [(1, 0.48), (2, 0.97), (3, 1.0)])
def test_o7_rate_of_decay_by_multiplicity(multiplicity, rate):
    gap, d, n = 0.5, 4, 600
    mu = np.full(d, 1 - gap)
    mu[:multiplicity] = 1.0
    weights = Weights(np.diag(mu), np.eye(d))
    x0, mass = initial_tokens(n, d, sampling="qmc", seed=0)
    times = np.array([6.0, 14.0])
    tokens = simulate(x0, weights, math.inf, times=times, rtol=1e-8).tokens
    w = w2_curve(tokens, project_dominant(x0, weights), mass)
    measured = -np.log(w[1] / w[0]) / (gap * np.diff(times)[0])
    assert measured == pytest.approx(rate, abs=0.1)


def test_at_zero_temperature_the_coupling_is_optimal():
    weights = Weights(np.diag([1.0, 0.6, 0.4]), np.eye(3))
    x0, mass = initial_tokens(500, 3, seed=0)
    tokens = simulate(x0, weights, math.inf, times=np.linspace(0, 10, 6)).tokens
    target = project_dominant(x0, weights)
    np.testing.assert_allclose(
        w2_curve(tokens, target, mass), coupling_distance(tokens, target, mass), rtol=1e-10
    )


@pytest.mark.parametrize("largest", [2048, 10])
def test_a_solve_that_did_not_converge_is_an_error_that_names_the_time(monkeypatch, largest):
    rng = np.random.default_rng(0)
    x, y = on_sphere(rng, 30, 3), on_sphere(rng, 30, 3)
    mass = rng.dirichlet(np.ones(30))
    monkeypatch.setattr(wasserstein, "LARGEST_PLAN", largest)
    monkeypatch.setattr(wasserstein, "_MOST_PIVOTS", 1)
    with pytest.raises(TransportError, match="time index 1: network simplex for 30 and 30 points"):
        w2_curve(np.stack([y, x]), y, mass)


@pytest.mark.parametrize(
    ("x", "y", "options", "named"),
    [
        (np.full((3, 2), np.nan), np.eye(2), {}, "x has shape"),
        (np.eye(2), np.eye(3), {}, "dimension 2 and y in 3"),
        (np.eye(2), np.eye(2), {"mass_x": np.array([1.0, 0.0])}, "mass_x"),
        (np.eye(2), np.eye(2), {"metric": "euclid"}, "metric = 'euclid'"),
    ],
)
def test_bad_input_is_named(x, y, options, named):
    with pytest.raises(InputError, match=named):
        w2(x, y, **options)


def test_the_geodesic_metric_past_the_largest_plan_is_refused(monkeypatch):
    monkeypatch.setattr(wasserstein, "LARGEST_PLAN", 10)
    x, y = (on_sphere(np.random.default_rng(seed), 11, 3) for seed in (0, 1))
    with pytest.raises(InputError, match="use chordal, coupling_distance, or fewer tokens"):
        w2(x, y, metric="geodesic")
