import numpy as np
import pytest
import scipy.special
import scipy.stats

from mfsweep import initial_tokens
from mfsweep._errors import InputError


@pytest.mark.parametrize("d", [2, 3, 6])
@pytest.mark.parametrize("sampling", ["iid", "antipodal", "qmc"])
def test_uniform_tokens_have_the_uniform_marginal(d, sampling):
    tokens, mass = initial_tokens(4096, d, sampling=sampling, seed=1)
    np.testing.assert_allclose(np.linalg.norm(tokens, axis=1), 1.0, atol=1e-15)
    assert mass.sum() == pytest.approx(1.0)
    # (1 + x_1) / 2 has the Beta((d-1)/2, (d-1)/2) law on the sphere
    half = tokens[:2048, 0] if sampling == "antipodal" else tokens[:, 0]
    law = scipy.stats.beta((d - 1) / 2, (d - 1) / 2)
    assert scipy.stats.kstest((1 + half) / 2, law.cdf).pvalue > 1e-3


def test_low_discrepancy_beats_independent_tokens():
    errors = {}
    for sampling in ("iid", "qmc"):
        tokens, _ = initial_tokens(4096, 3, sampling=sampling, seed=2)
        errors[sampling] = np.abs(tokens.T @ tokens / 4096 - np.eye(3) / 3).max()
    assert errors["qmc"] < 0.2 * errors["iid"]


def test_antipodal_tokens_come_in_mirror_pairs():
    tokens, _ = initial_tokens(10, 3, sampling="antipodal", seed=0)
    np.testing.assert_array_equal(tokens[:5], -tokens[5:])


def test_equispaced_tokens_have_equal_angles():
    tokens, _ = initial_tokens(12, 2, sampling="equispaced", seed=0)
    angles = np.unwrap(np.arctan2(tokens[:, 1], tokens[:, 0]))
    np.testing.assert_allclose(np.diff(angles), np.pi / 6, atol=1e-14)
    assert angles[0] == pytest.approx(np.pi / 12)


@pytest.mark.parametrize("d", [2, 3, 5])
def test_von_mises_fisher_has_its_mean_length(d):
    kappa, direction = 3.0, np.eye(d)[-1]
    tokens, _ = initial_tokens(
        20_000, d, distribution="vmf", seed=3, direction=direction, kappa=kappa
    )
    length = scipy.special.ive(d / 2, kappa) / scipy.special.ive(d / 2 - 1, kappa)
    np.testing.assert_allclose(tokens.mean(axis=0), length * direction, atol=0.02)


def test_the_first_tokens_of_a_longer_draw_are_those_of_a_shorter():
    few, _ = initial_tokens(10, 3, seed=7)
    many, _ = initial_tokens(100, 3, seed=7)
    np.testing.assert_array_equal(many[:10], few)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"n_tokens": 0}, "n_tokens = 0"),
        ({"n_tokens": 7, "sampling": "antipodal"}, "antipodal needs an even n_tokens"),
        ({"d": 3, "sampling": "equispaced"}, "equispaced needs d = 2"),
        ({"distribution": "vmf"}, "kappa = None"),
        ({"distribution": "vmf", "kappa": 1.0, "direction": np.ones(5)}, "direction has shape"),
    ],
)
def test_bad_input_is_named(options, named):
    options = {"n_tokens": 8, "d": 2, "seed": 0} | options
    with pytest.raises(InputError, match=named):
        initial_tokens(options.pop("n_tokens"), options.pop("d"), **options)
