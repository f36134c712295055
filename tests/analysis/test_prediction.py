import numpy as np
import oracles
import pytest

from mfsweep import Weights, weights_with_gap
from mfsweep.analysis.prediction import predicted_crossover_slope

GIVEN = {
    name: Weights(*(np.array(matrix) for matrix in pair)) for name, pair in oracles.GIVEN.items()
}


def turned(angle, gap=0.5):
    """A = diag(1, 1 - gap) and B = diag(2, 0.5) turned by an angle."""
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    B = turn @ np.diag([2.0, 0.5]) @ turn.T
    return Weights(np.diag([1.0, 1.0 - gap]) @ np.linalg.inv(B), B)


@pytest.mark.parametrize(("name", "expected"), [("G0", 1.2535), ("G1", 0.5134)])
def test_given_weights_have_the_slope_of_the_largest_misalignment_on_the_arc(name, expected):
    weights = GIVEN[name]
    assert predicted_crossover_slope(weights) == pytest.approx(expected, abs=1e-4)
    e, f = weights.dominant()[:, 0], weights.terminal()[:, 0]
    angles = np.arctan2(e[1], e[0]), np.arctan2(f[1], f[0])
    away = (angles[1] - angles[0] + np.pi / 2) % np.pi - np.pi / 2
    largest = 0.0
    for angle in np.linspace(angles[0], angles[0] + away / 2, 4001):
        x = np.array([np.cos(angle), np.sin(angle)])
        largest = max(largest, np.linalg.norm(weights.B.T @ x) - x @ weights.B @ x)
    perpendicular = np.array([-e[1], e[0]])
    rate = weights.gap / np.linalg.norm(weights.B.T @ perpendicular)
    assert predicted_crossover_slope(weights) == pytest.approx(largest / rate, rel=1e-6)


def test_the_slope_does_not_depend_on_the_frame_or_on_signs():
    angle, weights = 2.1, GIVEN["G0"]
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    other = Weights(turn @ weights.V @ turn.T, turn @ weights.B @ turn.T)
    assert predicted_crossover_slope(other) == pytest.approx(predicted_crossover_slope(weights))


@pytest.mark.parametrize(
    "weights",
    [
        turned(0.0),
        turned(0.01),
        weights_with_gap(2, 0.5, family="identity", seed=0),
        weights_with_gap(3, 0.5, family="generic", seed=0),
        Weights(np.array([[1.0, 0.5], [0.0, 0.4]]), np.array([[1.0, 0.3], [0.3, 2.0]])),
    ],
)
def test_no_slope_is_predicted_without_misalignment_or_off_the_circle(weights):
    assert np.isnan(predicted_crossover_slope(weights))


def test_the_slope_grows_with_the_misalignment():
    slopes = [predicted_crossover_slope(turned(angle)) for angle in (0.1, 0.2, 0.4, 0.7)]
    assert (np.diff(slopes) > 0).all()
