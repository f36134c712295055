import math

import numpy as np
import oracles
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import seeds

from mfsweep import Weights, weights_with_gap
from mfsweep._errors import InputError
from mfsweep.dynamics.given import dominant_span, load_given
from mfsweep.dynamics.weights import dominant_eigenspace


def drawn(seed, d=8, rank=4):
    """A head of low rank as a trained one has."""
    q, k, v, o = np.random.default_rng(seed).standard_normal((4, rank, d))
    return Weights(o.T @ v, q.T @ k)


@given(seeds, st.integers(4, 8))
def test_the_span_keeps_the_dominant_eigenvalues_and_eigenspaces_of_a_and_v(seed, k):
    weights = drawn(seed)
    e, f = dominant_eigenspace(weights.A), weights.terminal()
    assume(e.shape[1] <= 2)  # else it is the kernel of A
    basis = dominant_span(weights, k)
    assert basis.shape[1] <= k
    np.testing.assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-12)
    v, b = (basis.T @ matrix @ basis for matrix in (weights.V, weights.B))
    np.testing.assert_allclose(basis @ basis.T @ e, e, atol=1e-9)
    inside = basis.T @ e
    exact = inside @ (e.T @ weights.A @ e)
    np.testing.assert_allclose(v @ b.T @ inside, exact, atol=1e-8 * np.linalg.norm(weights.A))
    np.testing.assert_allclose(
        np.linalg.norm(b.T @ inside, axis=0), np.linalg.norm(weights.B.T @ e, axis=0)
    )
    if 2 * e.shape[1] + f.shape[1] <= k:
        np.testing.assert_allclose(basis @ basis.T @ f, f, atol=1e-8)
        inside = basis.T @ f
        np.testing.assert_allclose(v @ inside, inside @ (f.T @ weights.V @ f), atol=1e-8)


def test_further_blocks_keep_the_next_eigenvalues_of_a():
    mu = np.array([3.0, 2.0, 1.0, 0.5, 0.4, 0.3, 0.2, 0.1])
    rng = np.random.default_rng(0)
    change, b = np.eye(8) + 0.2 * rng.standard_normal((8, 8)), rng.standard_normal((8, 8))
    a = change * mu @ np.linalg.inv(change)
    weights = Weights(a @ np.linalg.inv(b).T, b)
    f = weights.terminal().shape[1]
    basis = dominant_span(weights, 4 + f)
    assert basis.shape[1] == 4 + f
    kept = np.linalg.eigvals(basis.T @ weights.V @ basis @ (basis.T @ b @ basis).T)
    for value in mu[:2]:
        assert np.abs(kept - value).min() < 1e-8


@given(seeds)
def test_a_complex_pair_is_never_split(seed):
    weights = drawn(seed)
    if dominant_eigenspace(weights.A).shape[1] == 2:
        for k in (2, 3):
            with pytest.raises(InputError, match=rf"span = {k}: E, .* take 4 directions"):
                dominant_span(weights, k)
        assert dominant_span(weights, 4).shape == (8, 4)


def test_the_span_of_a_symmetric_pair_is_its_leading_eigenvectors():
    weights = weights_with_gap(6, 0.4, family="identity", seed=3, bulk="linear")
    values, vectors = np.linalg.eigh(weights.A)
    basis = dominant_span(weights, 3)
    np.testing.assert_allclose(np.abs(basis.T @ vectors[:, [5, 4, 3]]), np.eye(3), atol=1e-8)
    restricted = basis.T @ weights.V @ basis
    np.testing.assert_allclose(np.diag(restricted), values[[5, 4, 3]])


def saved(folder, weights, **more):
    np.savez(folder / "head.npz", V=weights.V, B=weights.B, **more)
    return folder / "head.npz"


def test_raw_weights_of_a_file_are_its_own(tmp_path):
    found = load_given(saved(tmp_path, Weights(*(np.array(m) for m in oracles.G0))))
    np.testing.assert_array_equal(found.weights.B, oracles.G0[1])
    assert (found.basis, found.unit_B, found.unit_V) == (None, 1.0, 1.0)
    assert math.isnan(found.own_beta)


def test_unit_weights_have_norm_1_and_say_by_what_they_were_divided(tmp_path):
    weights = drawn(1)
    path = saved(tmp_path, weights, temperature=0.5, norm2=30.0)
    raw, unit = load_given(path), load_given(path, scale="unit")
    assert np.linalg.norm(unit.weights.V, 2) == pytest.approx(1)
    assert np.linalg.norm(unit.weights.B, 2) == pytest.approx(1)
    np.testing.assert_allclose(unit.weights.B * unit.unit_B, weights.B)
    np.testing.assert_allclose(unit.weights.V * unit.unit_V, weights.V)
    assert raw.own_beta == 15.0
    np.testing.assert_allclose(unit.own_beta * unit.weights.B, raw.own_beta * weights.B)


def test_a_restricted_file_is_the_compression_to_its_span(tmp_path):
    weights = drawn(2)
    path = saved(tmp_path, weights)
    found = load_given(path, span=6)
    basis = dominant_span(weights, 6)
    np.testing.assert_array_equal(found.basis, basis)
    np.testing.assert_allclose(found.weights.V, basis.T @ weights.V @ basis)
    np.testing.assert_allclose(found.weights.B, basis.T @ weights.B @ basis)
    unit = load_given(path, span=6, scale="unit")
    assert unit.unit_B == pytest.approx(np.linalg.norm(found.weights.B, 2))


def test_a_file_that_is_rewritten_is_read_again(tmp_path):
    path = saved(tmp_path, drawn(3))
    load_given(path)
    saved(tmp_path, drawn(4), more=1)
    np.testing.assert_array_equal(load_given(path).weights.B, drawn(4).B)


def test_weights_of_zero_have_no_unit(tmp_path):
    path = saved(tmp_path, Weights(np.zeros((2, 2)), np.eye(2)))
    with pytest.raises(InputError, match="has no unit"):
        load_given(path, scale="unit")
