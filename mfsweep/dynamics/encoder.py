"""Heads and tokens of a trained encoder, from a safetensors file."""

import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import scipy.linalg

from mfsweep._errors import InputError
from mfsweep._types import Array, Indices, Tokens
from mfsweep.dynamics.sphere import normalise
from mfsweep.dynamics.weights import Weights, dominant_eigenspace

_LAYER = re.compile(r"(.*?)encoder\.layer\.(\d+)\.attention\.self\.query\.weight")
"""Name of a layer's query matrix in BERT, RoBERTa and MiniLM, whatever comes before."""
_FLOATS = ("F64", "F32", "F16")
_SHOWN = 4


@dataclass(frozen=True, eq=False)
class Head:
    """One attention head of an encoder, its biases left out.

    A token x gets the logit <Q x, K y> / sqrt(d_head) = temperature <x, B y> towards y and, with
    the softmax average m, the value O V_h m.

    Parameters
    ----------
    layer, head
        Which one, from 0.
    Q, K, V
        Shape (d_head, d).
    O
        The head's columns of the output projection, shape (d, d_head).
    biases
        Euclidean norms of what is left out: the head's query, key and value biases and the layer's
        output bias; nothing where the model has none.
    norm2
        Mean square norm of the layer's input, as its LayerNorm gives it.
    """

    layer: int
    head: int
    Q: Array
    K: Array
    V: Array
    O: Array  # noqa: E741
    biases: dict[str, float] = field(default_factory=dict)
    norm2: float = math.nan

    @cached_property
    def weights(self) -> Weights:
        """V = O V_h and B = Q^T K, each (d, d) and of rank d_head at most."""
        return Weights(self.O @ self.V, self.Q.T @ self.K)

    @property
    def temperature(self) -> float:
        """The layer's own factor of the logits, 1 / sqrt(d_head)."""
        return float(1 / math.sqrt(len(self.Q)))

    @property
    def beta(self) -> float:
        """The head's own inverse temperature on the unit sphere: norm2 / sqrt(d_head)."""
        return self.norm2 * self.temperature

    def save(self, path: Path, model: str) -> None:
        """Write an .npz that `load_weights` reads: V and B, the factors, what `own_beta` needs."""
        left_out = {name: float(f"{norm:.6g}") for name, norm in self.biases.items()}
        attrs = {
            "model": model,
            "layer": self.layer,
            "head": self.head,
            "biases": "left out",
            "norms_of_biases": left_out,
        }
        np.savez(
            path,
            V=self.weights.V,
            B=self.weights.B,
            Q_h=self.Q,
            K_h=self.K,
            V_h=self.V,
            O_h=self.O,
            temperature=self.temperature,
            norm2=self.norm2,
            attrs=json.dumps(attrs),
        )

    def report(self) -> dict[str, Any]:
        """Tell how far Assumption 1 of arXiv 2605.10931 holds: names and values of one row.

        mu_1 and mu_2 are the eigenvalues of A = V B^T of largest real part, a complex pair counting
        as one; the angle (degrees) is the largest principal one between the invariant subspaces of
        the dominant eigenvalues of A and of V; beta is the head's own.
        """
        found = self.weights.assumptions()
        mu = [value for value in found.spectrum_A if value.imag >= 0] + [complex(math.nan)]
        spaces = (dominant_eigenspace(self.weights.A), self.weights.terminal())
        return {
            "layer": self.layer,
            "head": self.head,
            "rank_B": found.rank_B,
            "condition_B": found.condition_B,
            "asymmetry": found.asymmetry,
            "mu_1": mu[0].real,
            "mu_1_imag": mu[0].imag,
            "mu_2": mu[1].real,
            "mu_2_imag": mu[1].imag,
            "gap": found.gap,
            "dominant": "complex" if mu[0].imag else "real",
            "angle": math.degrees(scipy.linalg.subspace_angles(*spaces).max()),
            "norm_B": float(np.linalg.norm(self.weights.B, 2)),
            "norm_V": float(np.linalg.norm(self.weights.V, 2)),
            "beta": self.beta,
            **{f"bias_{name}": norm for name, norm in self.biases.items()},
            "violated": "; ".join(found.violated),
        }


class Encoder:
    """A BERT-like encoder in a safetensors file: BERT, RoBERTa, MiniLM, with or without a prefix.

    Parameters
    ----------
    path
        The file.
    n_heads, d_head
        Heads a layer, or dimensions a head: the tensors do not tell. Where neither is given a
        config.json beside the file must hold num_attention_heads.

    Raises
    ------
    InputError
        If the package safetensors is missing, the file cannot be read, its names follow no scheme
        that is known, or the number of heads is not known or does not divide.
    """

    def __init__(
        self, path: str | Path, *, n_heads: int | None = None, d_head: int | None = None
    ) -> None:
        self.path = Path(path)
        with self._open() as file:
            names = list(file.keys())
        found = [match for name in names if (match := _LAYER.fullmatch(name))]
        prefixes = sorted({match[1] for match in found})
        if len(prefixes) != 1:
            several = f"several encoders ({', '.join(prefixes[:_SHOWN])})"
            what = several if found else f"tensors {_listed(names)}"
            message = (
                f"{path}: holds {what}; needs one encoder with names like "
                "encoder.layer.0.attention.self.query.weight (BERT, RoBERTa, MiniLM)"
            )
            raise InputError(message)
        self.prefix = prefixes[0]
        self.layers = sorted(int(match[2]) for match in found)
        query = self._attention(self.layers[0], "self.query.weight")
        with self._open() as file:
            shape = tuple(file.get_slice(query).get_shape())
        if len(shape) != 2 or min(shape) < 2:
            self._misshapen(query, shape, "(rows, d)")
        self._rows, self.d = map(int, shape)
        self._asked = (n_heads, d_head)

    @cached_property
    def n_heads(self) -> int:
        """Heads of a layer: as given, or as the config beside the file tells."""
        n_heads: int | None
        n_heads, d_head = self._asked
        beside = self.path.with_name("config.json")
        asked = f"--heads {n_heads}" if n_heads else f"--d-head {d_head}"
        if n_heads is None and d_head is None:
            n_heads = _heads_told(beside)
            asked = f"num_attention_heads = {n_heads} in {beside}"
        if n_heads is None and d_head and self._rows % d_head == 0:
            n_heads = self._rows // d_head
        if not n_heads or self._rows % n_heads or d_head not in (None, self._rows // n_heads):
            message = (
                f"{asked}: heads times dimensions a head must be the {self._rows} rows of the "
                f"query matrix of {self.path}; correct --heads or --d-head"
            )
            raise InputError(message)
        return n_heads

    @property
    def d_head(self) -> int:
        """Dimensions of a head."""
        return self._rows // self.n_heads

    def head(self, layer: int, head: int) -> Head:
        """Read one head.

        Parameters
        ----------
        layer, head
            From 0.

        Raises
        ------
        InputError
            If there is no such head, or its tensors are missing, misshapen or not finite.
        """
        for name, value, known in (
            ("layer", layer, self.layers),
            ("head", head, range(self.n_heads)),
        ):
            if value not in known:
                message = (
                    f"{name} = {value}: {self.path} has {name}s {known[0]} to {known[-1]}; "
                    "give one of them, or all"
                )
                raise InputError(message)
        rows = slice(head * self.d_head, (head + 1) * self.d_head)
        wide, square = (self._rows,), (self._rows, self.d)
        parts = {"query": "Q", "key": "K", "value": "V"}
        read = {
            short: self._tensor(self._attention(layer, f"self.{name}.weight"), square)[rows]
            for name, short in parts.items()
        }
        output = self._attention(layer, "output.dense.weight")
        biases = {
            name: self._bias(self._attention(layer, f"self.{name}.bias"), wide, rows)
            for name in parts
        }
        last = self._bias(self._attention(layer, "output.dense.bias"), (self.d,), slice(None))
        return Head(
            layer,
            head,
            **read,
            O=self._tensor(output, (self.d, self._rows))[:, rows],
            biases={k: v for k, v in {**biases, "output": last}.items() if v is not None},
            norm2=self.norm2(layer),
        )

    def norm2(self, layer: int) -> float:
        """Return the mean square norm of a layer's input, sum gain^2 + sum bias^2.

        LayerNorm gives gain * z + bias, z of mean 0 and mean square 1 over the d components; that
        every component of z has mean square 1 over the tokens is assumed.
        """
        above = f"encoder.layer.{layer - 1}.output" if layer else "embeddings"
        with self._open() as file:
            names = set(file.keys())
        total = 0.0
        for new, old in (("weight", "gamma"), ("bias", "beta")):  # the second as in old checkpoints
            name, other = (f"{self.prefix}{above}.LayerNorm.{last}" for last in (new, old))
            vector = self._tensor(other if other in names else name, (self.d,))
            total += float(np.sum(vector**2))
        return total

    def tokens(self, rows: int | None = None, seed: int = 0) -> tuple[Tokens, Indices]:
        """Return word embeddings, scaled to length 1, and their rows; rows of zeros are left out.

        Parameters
        ----------
        rows
            How many, drawn without repetition and in the file's order; all where not given.
        seed
            Seed of the draw.

        Returns
        -------
        tokens, places
            Shapes (rows, d) and (rows,).

        Raises
        ------
        InputError
            If the file has no word embeddings or fewer rows.
        """
        name = f"{self.prefix}embeddings.word_embeddings.weight"
        table = self._tensor(name, (None, self.d))
        places = np.flatnonzero(np.abs(table).max(axis=1) > 0)
        if rows is not None and not 1 <= rows <= len(places):
            message = f"--rows {rows}: {self.path} has 1 to {len(places)} word embeddings; lower it"
            raise InputError(message)
        if rows is not None:
            stream = np.random.default_rng(seed)
            places = np.sort(stream.choice(places, rows, replace=False))
        return normalise(table[places]), places

    def _attention(self, layer: int, name: str) -> str:
        return f"{self.prefix}encoder.layer.{layer}.attention.{name}"

    @contextmanager
    def _open(self) -> Iterator[Any]:
        try:
            from safetensors import SafetensorError, safe_open
        except ImportError as error:
            message = (
                f"{self.path}: reading it needs the package safetensors; "
                "install it: pip install 'mfsweep[encoder]'"
            )
            raise InputError(message) from error
        try:
            file = safe_open(self.path, framework="np")
        except (OSError, SafetensorError) as error:
            message = (
                f"{self.path}: not a readable safetensors file ({error}); give a whole "
                "model.safetensors"
            )
            raise InputError(message) from error
        with file:
            yield file

    def _misshapen(self, name: str, shape: tuple[int, ...], expected: str) -> NoReturn:
        message = f"{self.path}: {name} has shape {shape}: needs {expected}; give another file"
        raise InputError(message)

    def _bias(self, name: str, shape: tuple[int, ...], rows: slice) -> float | None:
        """Return the norm of a bias that is left out, None where the model has none."""
        with self._open() as file:
            if name not in set(file.keys()):
                return None
        return float(np.linalg.norm(self._tensor(name, shape)[rows]))

    def _tensor(self, name: str, shape: tuple[int | None, ...]) -> Array:
        """Read a tensor as float64; check type, shape (None: any length) and that it is finite."""
        with self._open() as file:
            if name not in set(file.keys()):
                message = f"{self.path}: tensor {name} is missing; give a whole model"
                raise InputError(message)
            part = file.get_slice(name)
            found, kind = tuple(part.get_shape()), part.get_dtype()
            same = len(found) == len(shape)
            if not same or any(b not in (None, a) for a, b in zip(found, shape, strict=True)):
                told = str(tuple("rows" if size is None else size for size in shape))
                self._misshapen(name, found, told.replace("'", ""))
            if kind not in _FLOATS:
                message = (
                    f"{self.path}: {name} is of type {kind}: needs one of {', '.join(_FLOATS)}; "
                    "convert the model"
                )
                raise InputError(message)
            tensor: Array = file.get_tensor(name).astype(np.float64)
        if not np.isfinite(tensor).all():
            message = f"{self.path}: {name} holds NaN or infinite numbers; give an intact model"
            raise InputError(message)
        return tensor


def _listed(names: list[str]) -> str:
    """Name a few tensors, and say how many more there are."""
    shown = ", ".join(sorted(names)[:_SHOWN]) or "none"
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _heads_told(path: Path) -> int:
    """Read the number of heads from a model's config."""
    try:
        told = json.loads(path.read_bytes())["num_attention_heads"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = (
            f"--heads: the file does not hold the number of heads, and {path} tells none; "
            "give --heads or --d-head"
        )
        raise InputError(message) from error
    if type(told) is not int or told < 1:
        message = f"{path}: num_attention_heads = {told!r} is no count; give --heads"
        raise InputError(message)
    return told
