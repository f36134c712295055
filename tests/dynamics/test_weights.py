import numpy as np
import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from mfsweep import Weights, weights_with_gap
from mfsweep._errors import InputError
from mfsweep.dynamics.weights import dominant_eigenspace, load_weights

FAMILIES = ["identity", "aligned", "generic"]


@given(
    seeds,
    st.integers(2, 8),
    st.floats(0.01, 0.99),
    st.sampled_from(FAMILIES),
    st.sampled_from(["isotropic", "linear"]),
)
def test_families_have_the_asked_gap_and_meet_assumption_1(seed, d, gap, family, bulk):
    weights = weights_with_gap(d, gap, family=family, seed=seed, bulk=bulk)
    report = weights.assumptions()
    assert report.violated == ()
    assert report.gap == pytest.approx(gap, abs=1e-9)
    assert report.multiplicity == 1
    spectrum = np.linalg.eigvalsh(weights.A)
    assert spectrum[-1] == pytest.approx(1.0)
    least = min(0.1, (1 - gap) / 2) if bulk == "linear" and d > 2 else 1 - gap
    assert spectrum[0] == pytest.approx(least)
    np.testing.assert_allclose(weights.V @ weights.B.T, weights.A, atol=1e-12)


def test_aligned_has_the_stated_constants():
    weights = weights_with_gap(3, 0.25, family="aligned", seed=0, b=(2.0, 0.5))
    report = weights.assumptions()
    e = weights.dominant()[:, 0]
    np.testing.assert_allclose(weights.V @ e, e / 2.0, atol=1e-12)
    assert report.norm_BTe == pytest.approx(2.0)
    assert report.rate == pytest.approx(0.125)
    assert report.misalignment == pytest.approx(0.0, abs=1e-12)
    assert report.spectrum_V[0].real == pytest.approx(1.5)
    assert report.angle == pytest.approx(np.pi / 2)


def test_given_matrices_have_the_measured_constants():
    report = Weights(*(np.array(matrix) for matrix in oracles.G0)).assumptions()
    assert report.gap == pytest.approx(0.5, abs=1e-9)
    assert report.condition_B == pytest.approx(3.0)
    assert report.misalignment == pytest.approx(0.2445, abs=1e-4)
    assert report.norm_BTe == pytest.approx(1.8518, abs=1e-4)


def test_multiplicity_is_found():
    weights = weights_with_gap(5, 0.3, family="generic", seed=2, multiplicity=3)
    assert weights.dominant().shape == (5, 3)
    assert weights.assumptions().multiplicity == 3


@given(seeds, st.integers(2, 6), st.sampled_from(["real", "modulus"]))
def test_dominant_eigenspace_is_invariant_and_holds_the_right_eigenvalues(seed, d, reading):
    matrix = np.random.default_rng(seed).standard_normal((d, d))
    basis = dominant_eigenspace(matrix, reading)
    np.testing.assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-12)
    inner = basis.T @ matrix @ basis
    np.testing.assert_allclose(matrix @ basis, basis @ inner, atol=1e-8)
    size = np.real if reading == "real" else np.abs
    largest = size(np.linalg.eigvals(matrix)).max()
    np.testing.assert_allclose(size(np.linalg.eigvals(inner)), largest, atol=1e-8)


def test_broken_assumptions_are_named():
    skew = Weights(np.array([[1.0, 0.3], [0.0, 0.5]]), np.eye(2))
    assert skew.assumptions().violated == ("A symmetric",)
    flat = Weights(np.eye(2), np.eye(2))
    assert flat.assumptions().violated == ("gap > 0",)
    singular = Weights(np.eye(2), np.diag([1.0, 0.0]))
    assert "B invertible" in singular.assumptions().violated


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"d": 1}, "d = 1"),
        ({"gap": 1.0}, "gap = 1.0"),
        ({"family": "own"}, "family = 'own'"),
        ({"multiplicity": 3}, "multiplicity = 3"),
        ({"b": (1.0, -1.0)}, "b = "),
        ({"condition": 0.5}, "condition = 0.5"),
    ],
)
def test_bad_families_are_named(change, named):
    options = {"d": 3, "gap": 0.5, "family": "aligned", "seed": 0} | change
    with pytest.raises(InputError, match=named):
        weights_with_gap(options.pop("d"), options.pop("gap"), **options)


@pytest.mark.parametrize(
    ("V", "B", "named"),
    [
        (np.eye(2), np.eye(3), "shapes must agree"),
        (np.ones((2, 3)), np.eye(2), "V has shape"),
        (np.eye(1), np.eye(1), "d >= 2"),
        (np.eye(2), np.full((2, 2), np.nan), "B has entries that are NaN"),
    ],
)
def test_bad_matrices_are_named(V, B, named):
    with pytest.raises(InputError, match=named):
        Weights(V, B)


def test_weights_come_from_files_in_both_forms(tmp_path):
    rng = np.random.default_rng(0)
    Q, K, V = rng.standard_normal((3, 4, 4))
    np.savez(tmp_path / "qkv.npz", Q=Q, K=K, V=V)
    np.savez(tmp_path / "vb.npz", V=V, B=Q.T @ K)
    one, other = load_weights(tmp_path / "qkv.npz"), load_weights(tmp_path / "vb.npz")
    np.testing.assert_array_equal(one.B, other.B)
    x, y = rng.standard_normal((2, 4))
    assert x @ one.B @ y == pytest.approx((Q @ x) @ (K @ y))


def test_bad_files_are_named(tmp_path):
    bad = tmp_path / "bad.npz"
    bad.write_bytes(b"PK\x03\x04 not an archive")
    with pytest.raises(InputError, match=r"not a readable \.npz"):
        load_weights(bad)
    with bad.open("wb") as stream:
        np.save(stream, np.eye(2))
    with pytest.raises(InputError, match=r"not a readable \.npz"):
        load_weights(bad)
    np.savez(bad, W=np.eye(2))
    with pytest.raises(InputError, match=r"holds \['W'\]"):
        load_weights(bad)
    np.savez(bad, V=np.array([{}], dtype=object), B=np.eye(2))
    with pytest.raises(InputError, match=r"not a readable \.npz"):
        load_weights(bad)
