import json
import math
import sys

import numpy as np
import pytest
from encoders import HEADS, LAYERS, VOCABULARY, D, minilm, tensors, write_model
from threadpoolctl import threadpool_limits

from mfsweep import simulate
from mfsweep._errors import InputError
from mfsweep.dynamics.encoder import Encoder
from mfsweep.dynamics.initial import initial_tokens
from mfsweep.dynamics.weights import load_weights

ATTENTION = "encoder.layer.1.attention."


@pytest.mark.parametrize("prefix", ["", "bert.", "roberta.", "0.auto_model."])
def test_a_head_is_its_rows_of_query_key_and_value_and_its_columns_of_the_output(tmp_path, prefix):
    held = tensors(prefix)
    head = Encoder(write_model(tmp_path, prefix=prefix)).head(1, 1)
    rows, place = slice(4, 8), prefix + ATTENTION
    for matrix, name in ((head.Q, "query"), (head.K, "key"), (head.V, "value")):
        np.testing.assert_array_equal(matrix, held[f"{place}self.{name}.weight"][rows])
        bias = held[f"{place}self.{name}.bias"][rows]
        assert head.biases[name] == pytest.approx(np.linalg.norm(bias))
    np.testing.assert_array_equal(head.O, held[f"{place}output.dense.weight"][:, rows])
    assert head.temperature == 0.5
    gain, bias = (held[f"{prefix}encoder.layer.0.output.LayerNorm.{n}"] for n in ("weight", "bias"))
    assert head.norm2 == pytest.approx(gain @ gain + bias @ bias)
    assert head.beta == pytest.approx(head.norm2 / 2)


def test_the_norm_of_the_first_layer_is_that_of_the_embeddings_by_either_name(tmp_path):
    held = tensors(norm=("gamma", "beta"))
    head = Encoder(write_model(tmp_path, norm=("gamma", "beta"))).head(0, 0)
    gain, bias = (held[f"embeddings.LayerNorm.{name}"] for name in ("gamma", "beta"))
    assert head.norm2 == pytest.approx(gain @ gain + bias @ bias)


def test_products_are_those_of_attention_step_by_step(tmp_path):
    head = Encoder(write_model(tmp_path)).head(0, 1)
    x, y = np.random.default_rng(1).standard_normal((2, D))
    assert x @ head.weights.B @ y == pytest.approx((head.Q @ x) @ (head.K @ y))
    np.testing.assert_allclose(head.weights.V @ x, head.O @ (head.V @ x))


def test_a_saved_head_reads_back_and_says_that_biases_are_left_out(tmp_path):
    head = Encoder(write_model(tmp_path)).head(1, 0)
    head.save(tmp_path / "head.npz", "model.safetensors")
    read = load_weights(tmp_path / "head.npz")
    np.testing.assert_array_equal(read.B, head.weights.B)
    np.testing.assert_array_equal(read.V, head.weights.V)
    with np.load(tmp_path / "head.npz") as file:
        assert (file["temperature"], file["norm2"]) == (head.temperature, head.norm2)
        attrs = json.loads(str(file["attrs"]))
    assert (attrs["layer"], attrs["head"], attrs["biases"]) == (1, 0, "left out")
    assert attrs["norms_of_biases"].keys() == {"query", "key", "value", "output"}


def test_a_model_without_biases_has_none_to_report(tmp_path):
    without = {name: None for name in tensors() if "attention" in name and name.endswith("bias")}
    assert Encoder(write_model(tmp_path, without)).head(0, 0).biases == {}


def test_heads_come_from_the_caller_or_from_the_config_beside_the_file(tmp_path):
    path = write_model(tmp_path, heads=4)
    assert Encoder(path).head(0, 0).Q.shape == (2, D)
    assert Encoder(path, n_heads=2).head(0, 0).Q.shape == (4, D)
    assert Encoder(path, d_head=1).n_heads == 8


def test_the_report_agrees_with_the_matrices(tmp_path):
    head = Encoder(write_model(tmp_path)).head(0, 0)
    row = head.report()
    a = head.weights.V @ head.weights.B.T
    mu = np.linalg.eigvals(a)
    assert row["rank_B"] == 4
    assert row["mu_1"] == pytest.approx(mu.real.max())
    assert row["dominant"] == ("complex" if abs(mu[mu.real.argmax()].imag) > 1e-12 else "real")
    assert row["asymmetry"] == pytest.approx(np.linalg.norm(a - a.T) / np.linalg.norm(a))
    assert "B invertible" in row["violated"]
    assert 0 <= row["angle"] <= 90


def test_tokens_are_the_embeddings_scaled_to_length_1(tmp_path):
    table = tensors()["embeddings.word_embeddings.weight"].astype(float)
    table[3] = 0  # as the padding of RoBERTa
    model = Encoder(write_model(tmp_path, {"embeddings.word_embeddings.weight": table}))
    tokens, places = model.tokens()
    assert list(places) == [i for i in range(VOCABULARY) if i != 3]
    lengths = np.linalg.norm(table[places], axis=1)
    np.testing.assert_allclose(tokens, table[places] / lengths[:, None])
    few, chosen = model.tokens(5, seed=2)
    assert len(set(chosen)) == 5
    np.testing.assert_array_equal(model.tokens(11)[1], places)
    np.testing.assert_array_equal(few, tokens[np.searchsorted(places, chosen)])
    np.testing.assert_array_equal(model.tokens(5, seed=2)[1], chosen)
    assert list(model.tokens(5, seed=3)[1]) != list(chosen)
    with pytest.raises(InputError, match=r"--rows 12: .* has 1 to 11 word embeddings"):
        model.tokens(12)


QUERY = f"{ATTENTION}self.query.weight"
NAN = np.full((D, D), np.nan, np.float32)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({QUERY: NAN}, rf"{QUERY} holds NaN or infinite numbers"),
        ({QUERY: np.ones((D, 3))}, rf"{QUERY} has shape \(8, 3\): needs \(8, 8\)"),
        ({QUERY: np.ones(D)}, rf"{QUERY} has shape \(8,\): needs \(8, 8\)"),
        ({QUERY: np.ones((D, D), int)}, rf"{QUERY} is of type I64: needs one of F64, F32, F16"),
        ({f"{ATTENTION}self.key.weight": None}, "self.key.weight is missing"),
        ({f"{ATTENTION}self.key.bias": np.ones(3)}, r"key.bias has shape \(3,\): needs \(8,\)"),
        ({"encoder.layer.0.output.LayerNorm.weight": None}, "LayerNorm.weight is missing"),
        ({QUERY.replace(".1.", ".0."): np.ones(D)}, r"has shape \(8,\): needs \(rows, d\)"),
        ({f"other.{QUERY}": np.ones((D, D))}, r"several encoders \(, other\.\)"),
    ],
)
def test_a_tensor_that_cannot_be_used_is_named(tmp_path, changes, told):
    with pytest.raises(InputError, match=told):
        Encoder(write_model(tmp_path, changes)).head(1, 0)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ((LAYERS, 0), "layer = 2: .* has layers 0 to 1"),
        ((-1, 0), "layer = -1"),
        ((0, HEADS), "head = 2: .* has heads 0 to 1"),
    ],
)
def test_a_head_out_of_range_is_named(tmp_path, asked, told):
    with pytest.raises(InputError, match=told):
        Encoder(write_model(tmp_path)).head(*asked)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"n_heads": 3}, "--heads 3: .* must be the 8 rows"),
        ({"d_head": 3}, "--d-head 3: "),
        ({"n_heads": 2, "d_head": 2}, "--heads 2: "),
        ({}, "num_attention_heads = 5 in "),
    ],
)
def test_a_number_of_heads_that_does_not_divide_is_named(tmp_path, options, told):
    with pytest.raises(InputError, match=told):
        Encoder(write_model(tmp_path, heads=5), **options).head(0, 0)


@pytest.mark.parametrize("config", [None, "{}", "[1]", "{", '{"num_attention_heads": "two"}'])
def test_an_unknown_number_of_heads_asks_for_it(tmp_path, config):
    path = write_model(tmp_path, heads=None)
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    with pytest.raises(InputError, match="give --heads"):
        Encoder(path).head(0, 0)


def test_a_file_that_is_no_encoder_is_told_in_one_line(tmp_path):
    path = write_model(tmp_path)
    whole = path.read_bytes()
    for data in (whole[:-3], whole[:40], b"", b"not safetensors at all"):
        path.write_bytes(data)
        with pytest.raises(InputError, match="not a readable safetensors file"):
            Encoder(path)
    for missing in (tmp_path / "none.safetensors", tmp_path):
        with pytest.raises(InputError, match="not a readable safetensors file"):
            Encoder(missing)


def test_an_unknown_scheme_lists_the_names_found(tmp_path):
    from safetensors.numpy import save_file

    path = tmp_path / "gpt.safetensors"
    save_file({f"h.{i}.attn.c_attn.weight": np.ones((2, 6)) for i in range(6)}, path)
    with pytest.raises(InputError, match=r"h\.0\.attn\.c_attn\.weight, .* and 2 more; needs"):
        Encoder(path)


def test_a_missing_library_names_the_extra(tmp_path, monkeypatch):
    path = write_model(tmp_path)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(InputError, match=r"pip install 'mfsweep\[encoder\]'"):
        Encoder(path)


# ---- a real encoder --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model():
    """all-MiniLM-L6-v2, by one thread: on a busy machine more wait longer than they work."""
    with threadpool_limits(1):
        yield Encoder(minilm())


def test_every_head_of_minilm_is_a_direct_reading_of_its_tensors(model):
    from safetensors.numpy import load_file

    held = load_file(model.path)
    assert (model.layers, model.n_heads, model.d, model.d_head) == ([*range(6)], 12, 384, 32)
    x, y = np.random.default_rng(0).standard_normal((2, 384))
    for layer in model.layers:
        place = f"encoder.layer.{layer}.attention."
        query, key, value = (held[f"{place}self.{n}.weight"] for n in ("query", "key", "value"))
        output = held[f"{place}output.dense.weight"]
        for head in range(12):
            rows = slice(32 * head, 32 * head + 32)
            found = model.head(layer, head)
            for matrix, whole in ((found.Q, query), (found.K, key), (found.V, value)):
                np.testing.assert_array_equal(matrix, whole[rows])
            np.testing.assert_array_equal(found.O, output[:, rows])
            if head == layer:
                b = found.weights.B
                assert np.linalg.matrix_rank(b) == 32
                assert x @ b @ y == pytest.approx((found.Q @ x) @ (found.K @ y), rel=1e-6)


def test_one_token_of_minilm_follows_the_closed_form(model):
    from scipy.linalg import expm

    weights = model.head(3, 1).weights
    x, _ = initial_tokens(1, 384, seed=0)
    times = np.array([0.0, 1.0, 4.0])
    run = simulate(x, weights, 7.0, times=times, rtol=1e-10, atol=1e-12)
    for token, t in zip(run.tokens[:, 0], times, strict=True):
        exact = expm(t * weights.V) @ x[0]
        np.testing.assert_allclose(token, exact / np.linalg.norm(exact), atol=1e-8)


def test_the_first_head_of_minilm_breaks_assumption_1(model):
    row = model.head(0, 0).report()
    assert (row["rank_B"], row["dominant"]) == (32, "real")
    assert row["violated"] == "B invertible; A symmetric"
    assert row["beta"] == pytest.approx(151.96 / math.sqrt(32), rel=1e-4)
