import numpy as np
import pytest
from hypothesis import given
from strategies import on_sphere, seeds

from mfsweep import Weights, project_dominant, weights_with_gap
from mfsweep._errors import InputError
from mfsweep.analysis.targets import distance_dominant, distance_terminal, separation
from mfsweep.dynamics.sphere import distance_to_subspace


@given(seeds)
def test_projection_is_the_nearest_point_of_the_eigenspace(seed):
    rng = np.random.default_rng(seed)
    weights = weights_with_gap(4, 0.4, family="generic", seed=seed, multiplicity=2)
    x = on_sphere(rng, 20, 4)
    target = project_dominant(x, weights)
    basis = weights.dominant()
    circle = np.linspace(0, 2 * np.pi, 20_001)
    points = np.stack([np.cos(circle), np.sin(circle)], axis=1) @ basis.T
    nearest = points[np.argmax(x @ points.T, axis=1)]
    np.testing.assert_allclose(target, nearest, atol=2e-4)


def test_with_one_dimension_the_target_has_exactly_two_atoms():
    weights = weights_with_gap(3, 0.4, family="generic", seed=1)
    target = project_dominant(on_sphere(np.random.default_rng(0), 500, 3), weights)
    assert len(np.unique(target, axis=0)) == 2


def test_the_oblique_projection_is_where_the_flow_goes():
    A = np.array([[1.0, 0.8], [0.0, 0.3]])
    x = on_sphere(np.random.default_rng(0), 50, 2)
    image = x @ np.linalg.matrix_power(A, 200).T
    expected = image / np.linalg.norm(image, axis=1, keepdims=True)
    np.testing.assert_allclose(project_dominant(x, Weights(A, np.eye(2))), expected, atol=1e-9)


def test_a_token_orthogonal_to_the_eigenspace_is_refused():
    with pytest.raises(InputError, match="1 tokens lie orthogonal to E"):
        project_dominant(np.eye(2), Weights(np.diag([1.0, 0.5]), np.eye(2)))


def test_a_complex_dominant_eigenvalue_has_no_target():
    turn = np.array([[1.0, -0.5], [0.5, 1.0]])
    with pytest.raises(InputError, match="complex or defective"):
        project_dominant(np.eye(2), Weights(turn, np.eye(2)))


def test_distance_keeps_its_digits_near_the_subspace():
    tilt = np.array([1e-9, 1e-12])
    x = np.stack([np.cos(tilt), np.sin(tilt)], axis=1)
    np.testing.assert_allclose(distance_to_subspace(x, np.eye(2)[:, :1]), tilt, rtol=1e-12)


def test_rms_distances_weigh_by_mass():
    weights = Weights(np.diag([1.0, 0.5]), np.eye(2))
    mass = np.array([0.75, 0.25])
    assert distance_dominant(np.eye(2), weights, mass) == pytest.approx(np.sqrt(0.25 * 2))


def test_the_two_readings_differ_where_they_should():
    V = np.diag([0.5, -2.0])
    weights = Weights(V, np.diag([2.0, -0.1]))  # A = diag(1, 0.2)
    x, mass = np.array([[0.0, 1.0]]), np.ones(1)
    assert distance_terminal(x, weights, mass, "real") == pytest.approx(np.sqrt(2))
    assert distance_terminal(x, weights, mass, "modulus") == pytest.approx(0.0)


def test_separation_is_the_chord_between_the_axes():
    angle = 0.3
    V = np.diag([1.0, 3.0])
    e = np.array([np.cos(angle), np.sin(angle)])
    A = np.outer(e, e) + 0.2 * np.eye(2)
    weights = Weights(V, np.linalg.solve(V, A).T)
    expected = 2 * np.sin((np.pi / 2 - angle) / 2)
    assert separation(weights) == pytest.approx(expected, rel=1e-12)
    assert separation(weights_with_gap(5, 0.5, family="identity", seed=0)) < 1e-6
