import numpy as np
import pytest

from mfsweep import Weights, initial_tokens, simulate, weights_with_gap
from mfsweep.dynamics.rest import at_rest

V = np.diag([1.0, 0.4, 0.2])
E = np.eye(3)
MASS = np.full(2, 0.5)


def both_ends(delta=0.0):
    x = np.array([[1.0, delta, 0.0], [-1.0, 0.0, delta]])
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def test_tokens_at_the_ends_of_the_dominant_eigenvector_rest():
    assert at_rest(both_ends(1e-10), MASS, Weights(V, E), 8.0, 1e-9)


@pytest.mark.parametrize(
    ("case", "x", "weights", "beta"),
    [
        ("too far out", both_ends(1e-8), Weights(V, E), 8.0),
        ("another eigenvector", both_ends()[:, [1, 0, 2]], Weights(V, E), 8.0),
        ("a double eigenvalue", both_ends(), Weights(np.diag([1.0, 1.0, 0.2]), E), 8.0),
        ("complex eigenvalues", both_ends(), Weights(V + np.roll(E, 1, 0), E), 8.0),
        ("too warm: each end sees the other", both_ends(), Weights(V, E), 0.1),
        ("keys repel", both_ends(), Weights(V, -E), 8.0),
        ("V' is larger than lambda", both_ends(), Weights(np.diag([0.1, -1.0, 0.0]), E), 8.0),
    ],
)
def test_without_a_proof_they_do_not(case, x, weights, beta):
    assert not at_rest(x, MASS, weights, beta, 1e-9), case


def test_a_run_that_rests_ends_early_says_so_and_loses_nothing():
    weights = weights_with_gap(2, 0.5, family="aligned", seed=0)
    x0, _ = initial_tokens(200, 2, seed=1)
    times = np.linspace(0, 200, 41)
    early = simulate(x0, weights, 16.0, times=times)
    assert early.stats.stop_reason == "every token rests within 1e-09 of V's dominant eigenvector"
    full = simulate(x0, weights, 16.0, times=times, atol=0.0)
    assert full.stats.stop_reason == "reached the last time"
    assert early.stats.steps < 0.5 * full.stats.steps
    np.testing.assert_allclose(early.tokens, full.tokens, atol=1e-5)
    np.testing.assert_allclose(early.tokens[-1], full.tokens[-1], atol=3e-9)
    np.testing.assert_allclose(early.ess_median[-1], full.ess_median[-1], rtol=1e-6)


def test_a_metastable_state_is_no_rest_however_small_its_drift():
    weights = weights_with_gap(2, 0.5, family="aligned", seed=0)
    e = weights.dominant()[:, 0]
    x0 = np.concatenate([np.tile(e, (50, 1)), np.tile(-e, (50, 1))])
    x0[0] += 1e-7 * np.array([-e[1], e[0]])
    run = simulate(
        x0 / np.linalg.norm(x0, axis=1, keepdims=True), weights, 64.0, times=np.linspace(0, 60, 61)
    )
    speed = np.linalg.norm(np.diff(run.tokens, axis=0), axis=2).max(axis=1)
    assert speed[5] < 1e-6  # all but still
    assert np.abs(run.tokens[-1, 0] @ e) < 1e-3  # and gone in the end
