"""Weights from a file: as they are, or restricted to a few directions and scaled."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np

from mfsweep._errors import InputError
from mfsweep._types import Array, Basis
from mfsweep.dynamics.weights import (
    EIGENVALUE_TOLERANCE,
    Weights,
    dominant_eigenspace,
    load_arrays,
    load_weights,
)

Scale = Literal["raw", "unit"]
_DEPENDENT = 1e-8
"""Share of a vector outside the span so far, below which it adds no direction."""


@dataclass(frozen=True, eq=False)
class Given:
    """Weights of a file as a sweep uses them.

    Parameters
    ----------
    weights
        V and B, restricted and scaled.
    basis
        Orthonormal columns (d of the file, d) of the span that they are restricted to; None
        without a restriction.
    unit_B, unit_V
        Norms that B and V were divided by; 1 if raw. A logit of B beta is one of the file's B at
        beta / unit_B, and a time t is a time t / unit_V under the file's V.
    own_beta
        The inverse temperature of a trained head on the unit sphere in the sweep's units, norm2 /
        sqrt(d_head) times `unit_B`; NaN where the file does not tell it.
    """

    weights: Weights
    basis: Basis | None
    unit_B: float
    unit_V: float
    own_beta: float


def load_given(path: Path, span: int | None = None, scale: Scale = "raw") -> Given:
    """Read weights, restrict them to `dominant_span` and scale them; a file is read once.

        V_S = S^T V S / |V|,   B_S = S^T B S / |B|   (2-norms of S^T V S, S^T B S; 1 if raw)

    Parameters
    ----------
    path
        An .npz that `load_weights` reads; of `temperature` and `norm2`, if it has both, the head's
        own beta is made.
    span
        The most directions to keep; all where None.
    scale
        "raw", or "unit": |V| = |B| = 1, so that logits are at most beta in size and tokens move at
        most at speed 1, whatever the head.

    Raises
    ------
    InputError
        If the file cannot be read, the span is too small, or a matrix is 0 and cannot be scaled.
    """
    state = path.stat() if path.is_file() else None
    key = (state.st_mtime_ns, state.st_size) if state else (0, 0)
    return _load(path, span, scale, *key)


@lru_cache(maxsize=8)
def _load(path: Path, span: int | None, scale: Scale, _modified: int, _size: int) -> Given:
    weights = load_weights(path)
    basis = None if span is None else dominant_span(weights, span)
    if basis is not None:
        weights = Weights(basis.T @ weights.V @ basis, basis.T @ weights.B @ basis)
    unit_V, unit_B = (
        float(np.linalg.norm(matrix, 2)) if scale == "unit" else 1.0
        for matrix in (weights.V, weights.B)
    )
    if not min(unit_V, unit_B) > 0:
        message = f"{path}: V or B is 0 and has no unit; set scale to raw or give another file"
        raise InputError(message)
    return Given(
        Weights(weights.V / unit_V, weights.B / unit_B) if scale == "unit" else weights,
        basis,
        unit_B,
        unit_V,
        _own_beta(path) * unit_B,
    )


def _own_beta(path: Path) -> float:
    """Return norm2 / sqrt(d_head) of a trained head, NaN of other files."""
    arrays = load_arrays(path)
    told = [arrays.get(name, np.array(math.nan)) for name in ("temperature", "norm2")]
    if any(one.shape or not np.issubdtype(one.dtype, np.floating) for one in told):
        return math.nan
    return float(told[0] * told[1])


def dominant_span(weights: Weights, k: int) -> Basis:
    """Return an orthonormal basis of at most k directions in which both phases of a pair live.

    Blocks of directions enter whole, as long as they fit, in this order: E, the invariant subspace
    of the dominant eigenvalues of A, with its image under B^T; V's dominant one; then those of the
    next eigenvalues of A by falling real part, each with its image under B^T. A complex pair is
    one block.

    Parameters
    ----------
    weights
        V and B, each (d, d).
    k
        At least 2.

    Returns
    -------
    Basis
        Shape (d, k) or fewer columns; signs are fixed.

    Raises
    ------
    InputError
        If E and its image do not fit, or the blocks that fit are one direction only.

    Notes
    -----
    With S the basis and Z in its span such that A Z = Z T and B^T Z lies in the span too,
    (S^T V S)(S^T B S)^T S^T Z = S^T V B^T Z = S^T Z T: the restricted A has E and the eigenvalues
    of every such block exactly, with |B^T e| and the misalignment. Eigenvectors of A alone do not
    do this, since B^T maps them out of their span. Likewise the restricted V keeps V's dominant
    eigenvalue. Nothing else is kept; that both stay dominant is not proven.

    >>> dominant_span(Weights(np.diag([1.0, 0.5, 0.1]), np.eye(3)), 2)
    array([[1., 0.], [0., 1.], [0., 0.]])
    """
    basis = np.empty((weights.d, 0))
    for number, block in enumerate(_blocks(weights)):
        wider = _extended(basis, block)
        if number == 0 and wider.shape[1] > k:
            message = (
                f"span = {k}: E, the dominant eigenspace of A, and its image under B^T take "
                f"{wider.shape[1]} directions; give at least that many"
            )
            raise InputError(message)
        if wider.shape[1] <= k:
            basis = wider
        if basis.shape[1] == k:
            break
    if basis.shape[1] < 2:
        message = f"span = {k}: the directions that fit are one only; give more"
        raise InputError(message)
    return basis


def _blocks(weights: Weights) -> Iterator[Array]:
    """Yield the directions that belong together, the most telling first; columns."""
    first = dominant_eigenspace(weights.A)
    yield np.hstack([first, weights.B.T @ first])
    yield weights.terminal()
    values, vectors = np.linalg.eig(weights.A)
    below = values.real.max() - EIGENVALUE_TOLERANCE * np.abs(values).max()
    for i in np.lexsort((-values.imag, -values.real)):
        if values[i].real < below and values[i].imag >= 0:
            pair = [vectors[:, i].real, vectors[:, i].imag][: 1 + bool(values[i].imag)]
            part = np.stack(pair, axis=1)
            part = part * np.sign(part.flat[np.abs(part).argmax()])
            yield np.hstack([part, weights.B.T @ part])


def _extended(basis: Basis, block: Array) -> Basis:
    """Add the columns of a block to an orthonormal basis, those that it spans already left out."""
    for column in block.T:
        rest = column
        for _ in range(2):  # once more, for what roundoff left
            rest = rest - basis @ (basis.T @ rest)
        length = np.linalg.norm(rest)
        if length > _DEPENDENT * np.linalg.norm(column):
            basis = np.column_stack([basis, rest / length])
    return basis
