import csv
import re

import numpy as np
import pytest
import tiny_run
import typer
import zarr
from encoders import HEADS, LAYERS, VOCABULARY, D, write_model

from mfsweep.dynamics.encoder import Encoder
from mfsweep.dynamics.given import dominant_span
from mfsweep.dynamics.initial import load_tokens
from mfsweep.dynamics.sphere import normalise
from mfsweep.dynamics.weights import load_weights
from mfsweep.heads import weights

VERBS = typer.main.get_command(weights).commands


def mfsweep(*arguments):
    return tiny_run.mfsweep("weights", *arguments)


def test_one_head_is_written_to_a_file(tmp_path, capsys):
    model, out = write_model(tmp_path), tmp_path / "of/mine/head.npz"
    assert mfsweep("extract", model, "--layer", 1, "--head", 0, "--out", out) == 0
    assert re.fullmatch(
        r"wrote \S+head.npz: d = 8, own beta \S+, biases left out\n", capsys.readouterr().out
    )
    np.testing.assert_array_equal(load_weights(out).B, Encoder(model).head(1, 0).weights.B)


@pytest.mark.parametrize(
    ("layer", "head", "names"),
    [
        ("all", "all", [f"layer{i}-head{j}" for i in range(LAYERS) for j in range(HEADS)]),
        ("1", "all", ["layer1-head0", "layer1-head1"]),
        ("all", "0", ["layer0-head0", "layer1-head0"]),
    ],
)
def test_many_heads_are_written_to_a_folder_by_layer_and_head(tmp_path, layer, head, names):
    model, out = write_model(tmp_path), tmp_path / "heads"
    assert mfsweep("extract", model, "--layer", layer, "--head", head, "--out", out) == 0
    assert sorted(path.stem for path in out.iterdir()) == names
    for name in names:
        layer, head = map(int, re.findall(r"\d+", name))
        expected = Encoder(model).head(layer, head).weights
        np.testing.assert_array_equal(load_weights(out / f"{name}.npz").V, expected.V)


def test_the_report_of_every_head_is_shown_and_saved(tmp_path, capsys):
    model, table = write_model(tmp_path), tmp_path / "of/mine/heads.csv"
    assert mfsweep("check", model, "--csv", table) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["layer", "head", "rank_B"]
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["layer"], row["head"]) for row in rows] == [
        (str(i), str(j)) for i in range(LAYERS) for j in range(HEADS)
    ]
    assert len(lines) == 1 + len(rows)
    for line, row in zip(lines[1:], rows, strict=True):
        assert line.split()[:3] == [row["layer"], row["head"], "4"]
    found = Encoder(model).head(1, 1).report()
    assert rows[-1] == {name: str(value) for name, value in found.items()}


def test_tokens_are_written_as_a_start(tmp_path):
    model, out = write_model(tmp_path), tmp_path / "of/mine/tokens.npz"
    assert mfsweep("tokens", model, "--out", out, "--rows", 5, "--seed", 1) == 0
    tokens, mass = load_tokens(out)
    np.testing.assert_array_equal(tokens, Encoder(model).tokens(5, 1)[0])
    assert len(mass) == 5
    assert mfsweep("tokens", write_model(tmp_path, heads=None), "--out", out) == 0
    assert load_tokens(out)[0].shape == (VOCABULARY, D)


@pytest.mark.parametrize(
    ("verb", "options", "told"),
    [
        ("extract", ["--layer", "x", "--head", 0, "--out", "a.npz"], "--layer x: must be a number"),
        ("extract", ["--layer", 0, "--head", 7, "--out", "of/mine/a.npz"], "head = 7"),
        ("extract", ["--layer", 0, "--head", 0, "--out", "a.np"], "--out a.np: must end in .npz"),
        ("extract", ["--layer", 0, "--head", 0, "--out", "a.npz", "--heads", 3], "--heads 3: "),
        ("tokens", ["--out", "a"], "--out a: must end in .npz"),
        ("tokens", ["--out", "a.npz", "--rows", 99], "--rows 99: "),
        ("check", ["--d-head", 5], "--d-head 5: "),
    ],
)
def test_bad_input_is_one_line_and_exit_2_and_writes_nothing(
    tmp_path, monkeypatch, capsys, verb, options, told
):
    model = write_model(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert mfsweep(verb, model, *options) == 2
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert line.startswith(f"mfsweep: {told}")
    assert out == ""
    assert {path.name for path in tmp_path.iterdir()} == {"model.safetensors", "config.json"}


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_every_verb_has_an_example_that_parses(verb):
    (example,) = [line for line in VERBS[verb].help.splitlines() if line.startswith("Example: ")]
    program, group, named, *arguments = example.removeprefix("Example: ").split()
    assert (program, group, named) == ("mfsweep", "weights", verb)
    VERBS[verb].make_context(verb, arguments)


def test_heads_of_a_pattern_are_swept_restricted_and_scaled_and_say_so(tmp_path):
    model = write_model(tmp_path)
    assert mfsweep("extract", model, "--layer", 1, "--head", "all", "--out", tmp_path / "h") == 0
    assert mfsweep("tokens", model, "--out", tmp_path / "tokens.npz") == 0
    file = tiny_run.write_config(
        tmp_path,
        families={"a": {"kind": "file", "path": "h/*.npz", "span": 4, "scale": "unit"}},
        initial={"distribution": "file", "path": "tokens.npz"},
    )
    run = tmp_path / "run"
    assert tiny_run.run_all(file, run) == 8
    for head in range(HEADS):
        (store,) = run.glob(f"shards/a-layer1-head{head}-*/trajectories.zarr")
        group = zarr.open_group(store, mode="r")
        raw = Encoder(model).head(1, head)
        basis = dominant_span(raw.weights, 4)
        b, v = (basis.T @ m @ basis for m in (raw.weights.B, raw.weights.V))
        assert group.attrs["unit_B"] == pytest.approx(np.linalg.norm(b, 2))
        assert group.attrs["unit_V"] == pytest.approx(np.linalg.norm(v, 2))
        assert group.attrs["own_beta"] == pytest.approx(raw.beta * np.linalg.norm(b, 2))
        chosen = group["tokens"][0, 0, 0]
        inside = normalise(Encoder(model).tokens()[0] @ basis)
        assert chosen.shape == (8, basis.shape[1])
        assert np.abs(chosen[:, None] - inside[None]).max(axis=-1).min(axis=1).max() < 1e-12
