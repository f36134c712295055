import numpy as np
import oracles
import pytest

from mfsweep import Weights, weights_with_gap
from mfsweep.dynamics.orbits import Orbits

THETA = np.linspace(0.0, 2 * np.pi, 25)
CIRCLE = np.stack([np.cos(THETA), np.sin(THETA)], axis=1)
GENERIC = weights_with_gap(2, 0.4, family="generic", seed=3)
GIVEN = Weights(*(np.array(matrix) for matrix in oracles.GIVEN["G0"]))


@pytest.mark.parametrize("weights", [GENERIC, GIVEN])
def test_o5_points_go_where_the_zero_temperature_flow_takes_them(weights):
    times = np.array([0.0, 0.5, 4.0, 30.0])
    exact = np.stack(
        [oracles.zero_temperature(x, weights.A, weights.B, times) for x in CIRCLE], axis=1
    )
    found = np.stack([Orbits(weights)(CIRCLE, t) for t in times])
    np.testing.assert_allclose(found, exact, atol=1e-7)


def test_a_matrix_a_that_is_not_symmetric_has_oblique_orbits():
    A = np.array([[1.0, 0.8], [0.0, 0.4]])
    x = Orbits(Weights(A, np.eye(2)))(CIRCLE, 1.5)
    exact = np.stack([oracles.one_token(x, A, 1.5) for x in CIRCLE])
    np.testing.assert_allclose(x, exact, atol=1e-7)


def test_eigenvectors_rest():
    basis = np.linalg.eigh(GENERIC.A)[1].T
    np.testing.assert_allclose(Orbits(GENERIC)(basis, 2.0), basis, atol=1e-12)
