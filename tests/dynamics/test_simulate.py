import math

import numpy as np
import oracles
import pytest
from strategies import on_sphere

from mfsweep import Weights, initial_tokens, simulate, switch_times, weights_with_gap
from mfsweep._errors import InputError
from mfsweep.analysis.targets import distance_dominant, distance_terminal, separation

IDENTITY = {d: Weights(np.eye(d), np.eye(d)) for d in (2, 3, 4, 8, 32)}
TIMES = np.linspace(0.0, 10.0, 21)


def test_o1_one_token_follows_the_matrix_exponential():
    rng = np.random.default_rng(0)
    weights = Weights(rng.standard_normal((3, 3)), rng.standard_normal((3, 3)))
    x0 = on_sphere(rng, 1, 3)
    run = simulate(x0, weights, 7.0, times=TIMES, rtol=1e-9)
    expected = [oracles.one_token(x0[0], weights.V, t) for t in TIMES]
    np.testing.assert_allclose(run.tokens[:, 0], expected, atol=2e-7)


@pytest.mark.parametrize("beta", [0.0, 1.0, 8.0])
@pytest.mark.parametrize(("n", "d"), [(2, 2), (3, 3), (4, 4), (8, 8), (32, 32)])
def test_o2_o3_equal_inner_products_follow_their_scalar_equation(n, d, beta):
    s0 = 0.1
    run = simulate(oracles.simplex(n, d, s0), IDENTITY[d], beta, times=TIMES, rtol=1e-10)
    exact = oracles.equal_inner_products(s0, n, beta, TIMES)
    products = np.einsum("tid,tjd->tij", run.tokens, run.tokens)[:, *np.triu_indices(n, 1)]
    np.testing.assert_allclose(products, np.tile(exact[:, None], products.shape[1]), atol=2e-8)


@pytest.mark.parametrize("family", ["identity", "aligned", "generic"])
@pytest.mark.parametrize("d", [2, 3, 5])
def test_o5_zero_temperature_follows_the_flow_of_A_on_its_own_clock(family, d):
    weights = weights_with_gap(d, 0.4, family=family, seed=3)
    x0 = on_sphere(np.random.default_rng(d), 6, d)
    run = simulate(x0, weights, math.inf, times=TIMES, rtol=1e-9)
    for i in range(len(x0)):
        exact = oracles.zero_temperature(x0[i], weights.A, weights.B, TIMES)
        np.testing.assert_allclose(run.tokens[:, i], exact, atol=1e-7)
    assert np.isnan(run.ess_median).all()


@pytest.mark.parametrize("beta", [1.0, 30.0])
def test_o10_energy_never_decreases_for_the_identity(beta):
    x0, mass = initial_tokens(200, 3, seed=1)
    run = simulate(x0, IDENTITY[3], beta, times=np.linspace(0, 20, 81))
    energy = np.array([oracles.log_energy(x, mass, beta) for x in run.tokens])
    assert (np.diff(energy) > -1e-6 * beta).all()
    assert energy[-1] > energy[0] + 0.1


def test_tokens_are_on_the_sphere_and_the_first_are_the_given_ones():
    weights = weights_with_gap(3, 0.5, family="aligned", seed=0)
    x0, _ = initial_tokens(300, 3, seed=2)
    run = simulate(x0, weights, 64.0, times=TIMES)
    np.testing.assert_allclose(np.linalg.norm(run.tokens, axis=2), 1.0, atol=1e-15)
    np.testing.assert_allclose(run.tokens[0], x0, atol=1e-15)


def test_mirrored_start_runs_mirrored():
    weights = weights_with_gap(2, 0.5, family="generic", seed=0)
    x0, _ = initial_tokens(400, 2, seed=5)
    there, back = (simulate(x, weights, 16.0, times=TIMES).tokens for x in (x0, -x0))
    np.testing.assert_allclose(there, -back, atol=1e-5)


def test_two_halves_of_a_token_run_as_the_whole():
    weights = weights_with_gap(2, 0.5, family="generic", seed=0)
    x0, _ = initial_tokens(100, 2, seed=5)
    halves = np.concatenate([np.full(99, 0.01), [0.005, 0.005]])
    whole = simulate(x0, weights, 16.0, times=TIMES, rtol=1e-9)
    split = simulate(
        np.concatenate([x0, x0[-1:]]), weights, 16.0, times=TIMES, mass=halves, rtol=1e-9
    )
    np.testing.assert_allclose(split.tokens[:, :-1], whole.tokens, atol=1e-6)


@pytest.mark.parametrize(("name", "beta"), oracles.CROSSOVER_500)
def test_crossover_of_500_equispaced_tokens_is_the_tabulated_one(name, beta):
    weights = Weights(*(np.array(matrix) for matrix in oracles.GIVEN[name]))
    x0, mass = initial_tokens(500, 2, sampling="equispaced", seed=0)
    times = np.linspace(0, 45, 901)
    run = simulate(x0, weights, beta, times=times)
    dominant = distance_dominant(run.tokens, weights, mass)
    curves = {
        "w2_metastable": dominant,
        "distance_dominant": dominant,
        "distance_terminal": distance_terminal(run.tokens, weights, mass),
        "ess_median": run.ess_median,
    }
    crossover = switch_times(times, curves, separation=separation(weights))["crossover"]
    assert abs(crossover.value - oracles.CROSSOVER_500[name, beta]) < 0.02
    assert crossover.status == ("under_resolved" if beta >= 40 else "observed")


def test_euler_errs_in_the_crossover_as_scripts_do():
    # MATH: step 0.1 errs by 0.4 %, 0.01 by 0.02 %, at G0, beta = 20
    weights = Weights(*(np.array(matrix) for matrix in oracles.GIVEN["G0"]))
    x0, mass = initial_tokens(500, 2, sampling="equispaced", seed=0)
    times = np.linspace(0, 25, 501)

    def crossover(**options):
        run = simulate(x0, weights, 20.0, times=times, **options)
        dominant = distance_dominant(run.tokens, weights, mass)
        gap = dominant - distance_terminal(run.tokens, weights, mass)
        k = int(np.flatnonzero((gap[:-1] < 0) & (gap[1:] >= 0))[-1])
        return np.interp(0.0, gap[k : k + 2], times[k : k + 2])

    exact = crossover(rtol=1e-8)
    assert exact == pytest.approx(19.513, abs=0.002)
    assert 1e-3 < abs(crossover(method="euler", step=0.1) / exact - 1) < 1e-2
    assert abs(crossover(method="rk4", step=0.1) / exact - 1) < 1e-4


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"times": np.array([1.0, 1.0])}, "strictly increasing"),
        ({"times": np.array([-1.0, 1.0])}, ">= 0"),
        ({"times": np.array([])}, "expected"),
        ({"beta": math.nan}, "beta = nan"),
        ({"method": "euler9"}, "choose one of"),
        ({"rtol": 0.0}, "rtol = 0.0"),
        ({"method": "euler"}, "step = None"),
        ({"method": "rk4", "step": -0.1}, "step = -0.1"),
        ({"step": 0.1}, "other methods none"),
        ({"merge_radius": -1e-6}, "merge_radius = -1e-06"),
    ],
)
def test_bad_input_is_named(change, named):
    arguments = {"x0": np.eye(2), "weights": IDENTITY[2], "beta": 1.0, "times": TIMES} | change
    with pytest.raises(InputError, match=named):
        simulate(**arguments)
