import math

import numpy as np
import oracles
import pytest

from mfsweep import Weights, initial_tokens, simulate, switch_times, w2, weights_with_gap
from mfsweep._errors import InputError, IntegrationError
from mfsweep.analysis.targets import distance_dominant, distance_terminal, separation
from mfsweep.dynamics import continuum
from mfsweep.dynamics.continuum import certified_continuum, simulate_continuum
from mfsweep.dynamics.density import Mixture, VonMises

GIVEN = {
    name: Weights(*(np.array(matrix) for matrix in pair)) for name, pair in oracles.GIVEN.items()
}
IDENTITY = Weights(np.diag([1.0, 0.5]), np.eye(2))
ALIGNED = weights_with_gap(2, 0.5, family="aligned", seed=0)
GENERIC = weights_with_gap(2, 0.4, family="generic", seed=3)
UNIFORM, TILTED = VonMises(), VonMises(0.7, 1.0)
FROM_E = VonMises(math.atan2(*ALIGNED.dominant()[::-1, 0]) + 0.5, 1.0)
HORIZON = {20: 26.0, 40: 46.0, 80: 92.0}


def grid(end, step=0.05):
    return step * np.arange(round(end / step) + 1)


def curves(run, weights):
    """The three curves that switch times are read from."""
    target, plus = np.stack([run.e, -run.e]), np.array([run.plus, 1 - run.plus])
    rows = []
    for k in range(len(run.times)):
        kept = run.mass(k) > 0
        x, mass = run.tokens[k][kept], run.mass(k)[kept]
        distances = distance_dominant(x, weights, mass), distance_terminal(x, weights, mass)
        rows.append((w2(x, target, mass_x=mass, mass_y=plus), *distances))
    names = "w2_metastable", "distance_dominant", "distance_terminal"
    return dict(zip(names, np.array(rows).T, strict=True))


def events(run, weights):
    measured = curves(run, weights)
    return switch_times(
        run.times, measured, separation=separation(weights), ess_threshold=0.0
    ), measured


def crossover_of_particles(run, weights):
    measured = {
        "w2_metastable": np.ones_like(run.times),
        "distance_dominant": distance_dominant(run.tokens, weights, run.mass),
        "distance_terminal": distance_terminal(run.tokens, weights, run.mass),
    }
    separated = separation(weights)
    found = switch_times(run.times, measured, separation=separated, ess_threshold=0.0)
    return found["crossover"].value


def means(run):
    """<x_1>, <x_2>, <x_1^2>, <x_1 x_2>, <x_1^3> at each time, (time, 5)."""
    rows = []
    for k in range(len(run.times)):
        x, y = run.tokens[k].T
        rows.append(run.mass(k) @ np.stack([x, y, x * x, x * y, x**3], axis=1))
    return np.array(rows)


@pytest.mark.parametrize(
    ("name", "beta"),
    [
        pytest.param(name, beta, marks=[pytest.mark.slow] if beta == 80 else [])
        for name, beta in oracles.CONTINUUM
    ],
)
def test_crossover_and_least_w2_are_the_tabulated_ones(name, beta):
    expected, within = oracles.CONTINUUM[name, beta]
    run = simulate_continuum(UNIFORM, GIVEN[name], beta, times=grid(HORIZON.get(beta, 24.0)))
    found, measured = events(run, GIVEN[name])
    assert found["crossover"].status == "observed"
    assert abs(found["crossover"].value - expected) < within
    if (name, beta) in oracles.W2_MINIMUM:
        time, least = oracles.W2_MINIMUM[name, beta]
        before = run.times < expected
        at = int(np.argmin(np.where(before, measured["w2_metastable"], np.inf)))
        assert abs(measured["w2_metastable"][at] / least - 1) < 0.01
        if name == "G1":
            assert abs(run.times[at] - time) < 0.11


@pytest.mark.parametrize(("beta", "centre", "finest"), [(10, 1.474, 1e-2), (40, 1.543868, 1.6e-4)])
def test_particles_graded_towards_the_unstable_angle_cross_over_with_the_continuum(
    beta, centre, finest
):
    weights, times = GIVEN["G0"], grid(HORIZON.get(beta, 16.0))
    e = weights.dominant()[:, 0]
    tokens, mass = oracles.graded_particles(centre, finest, 15)
    x0 = tokens @ np.array([e, [-e[1], e[0]]])
    there = crossover_of_particles(simulate(x0, weights, beta, times=times, mass=mass), weights)
    here, _ = events(simulate_continuum(UNIFORM, weights, beta, times=times), weights)
    assert abs(here["crossover"].value / there - 1) < 1e-3


def test_equispaced_particles_approach_the_continuum():
    weights, times = GIVEN["G1"], grid(22.0)
    limit = events(simulate_continuum(UNIFORM, weights, 20.0, times=times), weights)[0]
    errors = []
    for n in (125, 500, 2000):
        x0, mass = initial_tokens(n, 2, sampling="equispaced", seed=0)
        run = simulate(x0, weights, 20.0, times=times, mass=mass)
        errors.append(abs(crossover_of_particles(run, weights) - limit["crossover"].value))
    assert errors[0] > 2 * errors[1] > 4 * errors[2]
    assert errors[2] < 0.03


def test_o6_w2_to_the_metastable_target_at_zero_temperature():
    times = np.linspace(0.0, 60.0, 61)
    exact = oracles.w2_identity_uniform(times, 0.5, 2)
    errors = []
    for resolution in (1.0, 0.5, 0.25):
        run = simulate_continuum(UNIFORM, IDENTITY, math.inf, times=times, resolution=resolution)
        errors.append(np.abs(curves(run, IDENTITY)["w2_metastable"] - exact).max())
    assert errors[1] < 2e-5
    assert 2.2 < np.log2(errors[0] / errors[2]) / 2 < 2.8  # the density has a pole there: below 4


def test_o5_zero_temperature_pushes_the_density_forward():
    times = np.linspace(0.0, 8.0, 5)
    theta = 2 * np.pi * (np.arange(480) + 0.5) / 480
    x0 = np.stack([np.cos(theta), np.sin(theta)], axis=1)
    images = np.stack(
        [oracles.zero_temperature(x, GENERIC.A, GENERIC.B, times) for x in x0], axis=1
    )
    weight = np.exp(TILTED.log(theta)) * 2 * np.pi / 480
    run = simulate_continuum(TILTED, GENERIC, math.inf, times=times)
    x, y = images[..., 0], images[..., 1]
    exact = np.stack([x, y, x * x, x * y, x**3], axis=-1)
    np.testing.assert_allclose(means(run), np.einsum("i,tij->tj", weight, exact), atol=1e-5)


def test_stored_density_is_the_exact_push_forward_at_zero_temperature():
    t, bins = 4.0, 90
    run = simulate_continuum(
        TILTED, IDENTITY, math.inf, times=np.array([t]), resolution=0.25, grid=bins
    )
    edges = 2 * np.pi * np.arange(bins + 1) / bins
    q = math.exp(-0.5 * t)  # tan(theta) shrinks by q
    start = np.unwrap(np.arctan2(np.sin(edges), q * np.cos(edges)))
    fine = np.linspace(start[:-1], start[1:], 2001)
    rho = np.exp(TILTED.log(fine))
    exact = np.sum((rho[1:] + rho[:-1]) / 2 * np.diff(fine, axis=0), axis=0) * bins / (2 * np.pi)
    np.testing.assert_allclose(run.density[0], exact, atol=1e-4)


@pytest.mark.parametrize("law", [UNIFORM, TILTED])
def test_convergence_has_fourth_order_in_the_mesh_width(law):
    times = np.array([2.0])

    def at(resolution):
        settings = {"times": times, "rtol": 1e-10, "widest": 0.4}
        return means(simulate_continuum(law, GIVEN["G0"], 80.0, resolution=resolution, **settings))

    reference = at(0.1)[0, 2:4]
    errors = [np.abs(at(resolution)[0, 2:4] - reference).max() for resolution in (0.8, 0.4, 0.2)]
    assert 3.3 < np.log2(errors[0] / errors[2]) / 2 < 4.7
    assert errors[2] < 2e-8


@pytest.mark.parametrize("beta", [30.0, math.inf])
@pytest.mark.parametrize("law", [UNIFORM, TILTED, Mixture((TILTED, VonMises(3.0, 9.0)), (1, 3))])
def test_mass_is_conserved(law, beta):
    run = simulate_continuum(law, GENERIC, beta, times=np.linspace(0, 30, 7), grid=123)
    for k in range(7):
        assert abs(np.exp(run.log_mass[k]).sum() - 1) < 1e-12
        assert abs(np.exp(run.cell_log_mass[k]).sum() - 1) < 1e-12
        assert abs(run.edges[k][-1] - run.edges[k][0] - 2 * np.pi) < 1e-12
        assert (np.diff(run.edges[k]) > 0).all()
    np.testing.assert_allclose(run.density.sum(axis=1) * 2 * np.pi / 123, 1.0, atol=1e-12)


def test_an_antipodal_start_stays_antipodal():
    law = Mixture((VonMises(0.4, 3.0), VonMises(0.4 + np.pi, 3.0)), (1.0, 1.0))
    run = simulate_continuum(law, GIVEN["G0"], 40.0, times=np.array([0.0, 20.0, 45.0]))
    assert any("antipodal" in note for note in run.notes)
    for k in range(3):
        half = len(run.tokens[k]) // 2
        np.testing.assert_allclose(run.tokens[k][:half], -run.tokens[k][half:], atol=1e-10)
        np.testing.assert_array_equal(run.log_mass[k][:half], run.log_mass[k][half:])
    np.testing.assert_allclose(run.density[:, :360], run.density[:, 360:], atol=1e-10)


def test_keeping_a_symmetry_changes_nothing_else(monkeypatch):
    times = np.array([3.0, 8.0])
    kept = simulate_continuum(UNIFORM, ALIGNED, 20.0, times=times)
    monkeypatch.setattr(continuum, "is_antipodal", lambda *_: False)
    monkeypatch.setattr(continuum, "is_mirrored", lambda *_: False)
    whole = simulate_continuum(UNIFORM, ALIGNED, 20.0, times=times)
    assert kept.notes
    assert not whole.notes
    np.testing.assert_allclose(means(kept), means(whole), atol=2e-5)


@pytest.mark.parametrize("angle", [0.5, 2.0, 4.0])
@pytest.mark.parametrize(("mean", "kappa"), [(0.0, 0.0), (0.7, 1.0)])
def test_turning_density_and_weights_turns_the_run(angle, mean, kappa):
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    weights = GIVEN["G1"]
    turned = Weights(turn @ weights.V @ turn.T, turn @ weights.B @ turn.T)
    times = np.array([4.0, 16.0])
    one = simulate_continuum(VonMises(mean, kappa), weights, 40.0, times=times)
    other = simulate_continuum(VonMises(mean + angle, kappa), turned, 40.0, times=times)
    for k in range(2):
        first, second = (run.tokens[k] @ np.array([1, 1j]) for run in (one, other))
        for p in (1, 2, 3):
            moment = one.mass(k) @ first**p * np.exp(1j * p * angle)
            assert abs(moment - other.mass(k) @ second**p) < 1e-10


def test_aligned_weights_from_a_uniform_start_never_leave_e():
    run = simulate_continuum(UNIFORM, ALIGNED, 64.0, times=np.linspace(0.0, 60.0, 241))
    found, measured = events(run, ALIGNED)
    assert found["turnaround"].status == found["crossover"].status == "absent"
    assert measured["distance_dominant"][-1] < 1e-10
    assert len(run.notes) == 2


@pytest.mark.parametrize(
    ("beta", "expected", "within"),
    [
        (100.0, 16.05, 0.02),
        (400.0, 20.20, 0.02),
        (640.0, 21.61, 0.02),  # 500 to 16,000 equispaced particles
        pytest.param(905.0, 27.297, 0.1, marks=pytest.mark.slow),  # benchmarks/continuum.py tail
    ],
)
def test_aligned_weights_from_a_tilted_start_cross_over_like_particles(beta, expected, within):
    run = simulate_continuum(FROM_E, ALIGNED, beta, times=grid(32.0, 0.1))
    found, _ = events(run, ALIGNED)
    assert found["turnaround"].status == found["crossover"].status == "observed"
    assert abs(found["crossover"].value - expected) < within


def test_origin_of_the_mass_is_known():
    run = simulate_continuum(TILTED, GIVEN["G0"], 20.0, times=np.array([0.0, 9.0]))
    dual = GIVEN["G0"].dual[:, 0] * np.sign(run.e @ GIVEN["G0"].dominant()[:, 0])
    x = run.tokens[0]
    side = x @ dual > 0
    assert np.count_nonzero(np.abs(run.plus_share[0] - side) > 1e-9) <= 4
    start = np.linspace(0, 2 * np.pi, 200_001)
    on_side = np.stack([np.cos(start), np.sin(start)], axis=1) @ dual > 0
    exact = np.trapezoid(np.exp(TILTED.log(start)) * on_side, start)
    for k in range(2):
        assert abs(run.mass(k) @ run.plus_share[k] - run.plus) < 1e-12
    assert abs(run.plus - exact) < 1e-4


def test_mass_elements_are_followed_to_where_particles_go():
    run = simulate_continuum(TILTED, GIVEN["G0"], 20.0, times=np.array([0.0, 9.0]))
    np.testing.assert_allclose(run.followed(0), run.element_angle, atol=1e-3)
    start, now = (
        np.stack([np.cos(angle), np.sin(angle)], axis=-1)
        for angle in (run.element_angle, run.followed(1))
    )
    particles = simulate(start, GIVEN["G0"], 20.0, times=run.times, mass=run.element_mass)
    away = np.linalg.norm(particles.tokens[1] - now, axis=1)
    assert np.sqrt(run.element_mass @ away**2) < 2e-3


def test_certification_runs_at_two_widths():
    pair = certified_continuum(UNIFORM, GIVEN["G1"], 20.0, times=grid(22.0))
    fine, coarse = (
        events(run, GIVEN["G1"])[0]["crossover"].value for run in (pair.fine, pair.coarse)
    )
    assert 1.5 < len(pair.fine.tokens[0]) / len(pair.coarse.tokens[0]) < 2.5
    assert 0 < abs(fine - coarse) < 0.002 * fine


def test_one_density_in_four_forms_runs_the_same():
    times = np.array([0.0, 5.0])
    theta = 2 * np.pi * np.arange(40_000) / 40_000

    def function(angle):
        return np.exp(TILTED.log(angle))

    forms = [TILTED, function, function(theta), Mixture((TILTED, TILTED), (2.0, 1.0))]
    runs = [means(simulate_continuum(form, GENERIC, 20.0, times=times)) for form in forms]
    for run in runs[1:]:
        np.testing.assert_allclose(run, runs[0], atol=1e-7)


def test_what_is_unusual_about_a_density_is_noted():
    values = np.where(np.arange(400) < 100, 0.0, 1.0)
    run = simulate_continuum(values, GENERIC, 20.0, times=np.array([0.0, 5.0, 20.0]))
    assert any("Assumption 3" in note for note in run.notes)
    assert any("integrates to 4.7" in note for note in run.notes)
    np.testing.assert_allclose(run.density.sum(axis=1) * 2 * np.pi / 720, 1.0, atol=1e-12)
    assert not any(
        "integrates" in n for n in simulate_continuum(TILTED, GENERIC, 1.0, times=[0.0]).notes
    )


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"density": np.cos}, r"density\(1\.57.*>= 0"),
        ({"density": np.array([1.0, np.nan, 1.0])}, "= nan"),
        ({"density": np.zeros(8)}, "zero everywhere"),
        ({"density": np.ones(2)}, "at least 3"),
        ({"density": lambda _: 1.0}, "vectorise"),
        ({"beta": 0.0}, "beta = 0.0"),
        ({"beta": math.nan}, "beta = nan"),
        ({"weights": Weights(np.eye(3), np.eye(3))}, "d = 3.*d = 2"),
        ({"beta": 1e9}, "beta = 1e.09 .*200000"),
        ({"resolution": 0.0}, "resolution = 0.0"),
        ({"widest": 2.0}, "widest = 2.0"),
        ({"rtol": 0.0}, "rtol = 0.0"),
        ({"grid": 0}, "grid = 0"),
        ({"times": np.array([2.0, 1.0])}, "strictly increasing"),
    ],
)
def test_bad_input_is_named_in_one_line(change, named):
    arguments = {"density": UNIFORM, "weights": GENERIC, "beta": 8.0, "times": grid(1.0)} | change
    with pytest.raises(InputError, match=named) as refusal:
        simulate_continuum(
            arguments.pop("density"), arguments.pop("weights"), arguments.pop("beta"), **arguments
        )
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("make", [lambda: VonMises(0.0, -1.0), lambda: Mixture((TILTED,), (0.0,))])
def test_laws_out_of_range_are_refused(make):
    with pytest.raises(InputError, match="need"):
        make()


def test_a_step_that_underflows_is_refused():
    with pytest.raises(IntegrationError, match="loosen rtol"):
        simulate_continuum(UNIFORM, GIVEN["G0"], 20.0, times=np.array([5.0]), rtol=1e-60, atol=0.0)
