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


@pytest.mark.parametrize("kappa", [0.5, 40.0, 1e7])
@pytest.mark.parametrize("d", [2, 3, 5, 40])
def test_evenly_spread_von_mises_fisher_tokens_have_their_law(d, kappa):
    direction = np.eye(d)[0]
    law = scipy.stats.vonmises_fisher(direction, kappa)
    length = scipy.special.ive(d / 2, kappa) / scipy.special.ive(d / 2 - 1, kappa)
    scatter = np.linalg.norm(
        law.rvs(4096, random_state=np.random.default_rng(0)).mean(axis=0) - length * direction
    )
    for sampling in ("qmc", "equispaced") if d == 2 else ("qmc",):
        tokens, _ = initial_tokens(
            4096,
            d,
            distribution="vmf",
            sampling=sampling,
            seed=1,
            direction=2 * direction,
            kappa=kappa,
        )
        np.testing.assert_allclose(np.linalg.norm(tokens, axis=1), 1.0, atol=1e-15)
        error = np.linalg.norm(tokens.mean(axis=0) - length * direction)
        assert error < (0.02 if d < 4 else 0.3) * scatter
        others = law.rvs(4096, random_state=np.random.default_rng(1))
        heights = tokens[:, 0], others[:, 0]
        assert scipy.stats.ks_2samp(*heights).pvalue > 1e-3
        middle = tokens[:, 1], others[:, 1]
        assert scipy.stats.ks_2samp(*middle).pvalue > 1e-3


def test_a_mixture_has_its_parts_in_their_shares():
    parts = [(3.0, np.eye(3)[0], 200.0), (1.0, -np.eye(3)[0], 200.0), (4.0, np.eye(3)[1], 0.0)]
    tokens, mass = initial_tokens(40_000, 3, distribution="mixture", seed=0, components=parts)
    np.testing.assert_allclose(mass, 1 / 40_000)
    near = [(tokens[:, 0] > 0.95).mean(), (tokens[:, 0] < -0.95).mean()]
    uniform = 0.025 * 0.5  # share of a cap of height 0.05, times the uniform part's share
    np.testing.assert_allclose(near, [3 / 8 + uniform, 1 / 8 + uniform], atol=0.01)


def test_a_file_gives_its_rows_and_masses(tmp_path):
    rng = np.random.default_rng(0)
    rows, weights = rng.standard_normal((50, 4)), rng.uniform(1, 2, 50)
    np.savez(tmp_path / "tokens.npz", tokens=rows, mass=weights)
    path = tmp_path / "tokens.npz"
    tokens, mass = initial_tokens(50, 4, distribution="file", path=path, seed=0)
    np.testing.assert_allclose(tokens, rows / np.linalg.norm(rows, axis=1, keepdims=True))
    np.testing.assert_allclose(mass, weights / weights.sum())
    some, part = initial_tokens(20, 4, distribution="file", path=path, seed=1)
    found = [int(np.argmin(np.linalg.norm(tokens - x, axis=1))) for x in some]
    assert len(set(found)) == 20
    np.testing.assert_allclose(some, tokens[found])
    np.testing.assert_allclose(part, weights[found] / weights[found].sum())
    other, _ = initial_tokens(20, 4, distribution="file", path=path, seed=2)
    assert np.abs(other - some).max() > 0.1


@pytest.mark.parametrize(
    ("arrays", "named"),
    [
        ({"x": np.eye(2)}, "save an array tokens"),
        ({"tokens": np.ones(3)}, r"shape \(3,\)"),
        ({"tokens": np.zeros((9, 2))}, "no row of zeros"),
        ({"tokens": np.full((9, 2), np.nan)}, "finite"),
        ({"tokens": np.ones((9, 3))}, "dimension 3"),
        ({"tokens": np.ones((3, 2))}, "holds 3 tokens"),
        ({"tokens": np.ones((9, 2)), "mass": np.zeros(9)}, "9 positive numbers"),
        ({"tokens": np.ones((9, 2)), "mass": np.ones(8)}, "mass has shape"),
    ],
)
def test_a_file_that_does_not_fit_is_named(tmp_path, arrays, named):
    np.savez(tmp_path / "tokens.npz", **arrays)
    with pytest.raises(InputError, match=named):
        initial_tokens(8, 2, distribution="file", path=tmp_path / "tokens.npz", seed=0)


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
        ({"distribution": "vmf", "kappa": 1.0, "sampling": "antipodal"}, "vmf with sampling = ant"),
        ({"d": 3, "distribution": "vmf", "kappa": 1.0, "sampling": "equispaced"}, "d = 3"),
        ({"distribution": "mixture"}, "0 components"),
        ({"distribution": "file"}, "file tokens by iid"),
        ({"distribution": "file", "path": "none.npz"}, "not a readable .npz"),
        ({"distribution": "file", "path": "a.npz", "sampling": "qmc"}, "needs sampling iid"),
        ({"distribution": "vmf", "kappa": 1.0, "direction": np.ones(5)}, "direction has shape"),
    ],
)
def test_bad_input_is_named(options, named):
    options = {"n_tokens": 8, "d": 2, "seed": 0} | options
    with pytest.raises(InputError, match=named):
        initial_tokens(options.pop("n_tokens"), options.pop("d"), **options)


def test_tokens_of_a_file_are_projected_on_a_span(tmp_path):
    rng = np.random.default_rng(0)
    rows, basis = rng.standard_normal((7, 5)), np.linalg.qr(rng.standard_normal((5, 2)))[0]
    np.savez(tmp_path / "t.npz", tokens=rows)
    given = {"distribution": "file", "path": tmp_path / "t.npz", "seed": 0, "basis": basis}
    tokens, _ = initial_tokens(7, 2, **given)
    inside = rows @ basis @ basis.T
    expected = inside / np.linalg.norm(inside, axis=1, keepdims=True)
    np.testing.assert_allclose(tokens @ basis.T, expected)
    np.savez(tmp_path / "t.npz", tokens=rows[:, :2])
    with pytest.raises(InputError, match="asked for n_tokens = 7 at d = 5"):
        initial_tokens(7, 2, **given)
    np.savez(tmp_path / "t.npz", tokens=np.vstack([rows[:6], rows[6] - inside[6]]))
    with pytest.raises(InputError, match="a token lies outside the span"):
        initial_tokens(7, 2, **given)
