"""Weight matrices: validation, the families of the sweep, dominant eigenspaces, assumptions."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args
from zipfile import BadZipFile

import numpy as np
import scipy.linalg

from mfsweep._errors import InputError
from mfsweep._types import Array, Basis

Reading = Literal["real", "modulus"]
Seed = int | np.random.SeedSequence

SYMMETRY_TOLERANCE = 1e-10
"""|A - A^T| / |A| below which A counts as symmetric."""
EIGENVALUE_TOLERANCE = 1e-8
"""Eigenvalues closer than this, relative to the largest modulus, count as one."""


@dataclass(frozen=True)
class Assumptions:
    """What Assumption 1 of arXiv 2605.10931 asks of a weight pair, and what the theory predicts.

    Without a metastable target the multiplicity is 0 and what speaks of E is NaN.
    """

    condition_B: float
    """Condition number of B in the 2-norm."""
    rank_B: int
    """Number of singular values of B above roundoff."""
    asymmetry: float
    """|A - A^T| / |A| in the Frobenius norm."""
    gap: float
    """mu_1 minus the next distinct eigenvalue of A."""
    multiplicity: int
    """Dimension of E."""
    spectrum_A: tuple[complex, ...]
    """Eigenvalues of A by falling real part."""
    spectrum_V: tuple[complex, ...]
    """Eigenvalues of V by falling real part."""
    angle: float
    """Largest principal angle between E and V's dominant eigenspace, radians."""
    norm_BTe: float
    """|B^T e| for unit e in E (the largest, if E has more than one dimension)."""
    rate: float
    """Contraction rate c = gap / |B^T e| of the zero-temperature flow at E."""
    misalignment: float
    """Delta = |B^T e| - <e, B e> (the largest over a basis of E): 0 for a log beta crossover."""
    violated: tuple[str, ...]
    """Names of the parts of Assumption 1 that do not hold."""


@dataclass(frozen=True, eq=False)
class Weights:
    """Value matrix V and B = Q^T K of one attention head.

    Parameters
    ----------
    V
        Value matrix, shape (d, d), finite.
    B
        Attention form: the logit of x towards y is <x, B y>; shape (d, d), finite.

    Raises
    ------
    InputError
        If a matrix is not square, not finite, smaller than 2 x 2, or the shapes differ.

    Notes
    -----
    A = V B^T; E is its dominant eigenspace (arXiv 2605.10931, Assumption 1).

    >>> weights = Weights(np.diag([1.0, 0.5]), np.eye(2))
    >>> weights.gap, weights.dominant().ravel()
    (0.5, array([1., 0.]))
    """

    V: Array
    B: Array

    def __post_init__(self) -> None:
        """Check both matrices and store them as read-only float64."""
        for name in ("V", "B"):
            matrix = np.array(getattr(self, name), dtype=np.float64)
            if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) < 2:
                message = f"{name} has shape {matrix.shape}: expected (d, d) with d >= 2"
                raise InputError(message)
            if not np.isfinite(matrix).all():
                message = f"{name} has entries that are NaN or infinite: every entry must be finite"
                raise InputError(message)
            matrix.flags.writeable = False
            object.__setattr__(self, name, matrix)
        if self.V.shape != self.B.shape:
            message = f"V is {self.V.shape} and B is {self.B.shape}: their shapes must agree"
            raise InputError(message)

    @property
    def d(self) -> int:
        """Dimension of the token space."""
        return len(self.V)

    @cached_property
    def A(self) -> Array:
        """V B^T, symmetrised when it is symmetric up to roundoff."""
        product = self.V @ self.B.T
        return (product + product.T) / 2 if _asymmetry(product) <= SYMMETRY_TOLERANCE else product

    @cached_property
    def eigenvalues(self) -> Array:
        """Distinct real parts mu_1 > mu_2 > ... of the spectrum of A."""
        values = np.sort(np.linalg.eigvals(self.A).real)[::-1]
        apart = np.diff(values, prepend=np.inf) < -EIGENVALUE_TOLERANCE * np.abs(values).max()
        distinct: Array = values[apart]
        return distinct

    @property
    def gap(self) -> float:
        """mu_1 - mu_2 over distinct eigenvalues of A; 0 if A has one eigenvalue only."""
        mu = self.eigenvalues
        return float(mu[0] - mu[1]) if len(mu) > 1 else 0.0

    def dominant(self) -> Basis:
        """Return an orthonormal basis (d, m) of E, the eigenspace of A to its largest eigenvalue.

        Raises
        ------
        InputError
            If that eigenvalue is complex or defective: there is no metastable target then.
        """
        if not self.has_target:
            message = (
                "A = V B^T has a complex or defective dominant eigenvalue: tokens have no "
                "metastable target; choose V and B with a real semisimple one"
            )
            raise InputError(message)
        return self._dominant

    @cached_property
    def _dominant(self) -> Basis:
        return dominant_eigenspace(self.A)

    @cached_property
    def has_target(self) -> bool:
        """Whether A's dominant eigenvalue is real and semisimple, so that E is defined."""
        basis = self._dominant
        residual = np.linalg.norm(self.A @ basis - self.eigenvalues[0] * basis)
        return bool(residual <= np.sqrt(EIGENVALUE_TOLERANCE) * np.linalg.norm(self.A))

    @cached_property
    def dual(self) -> Basis:
        """Left basis (d, m) of E: x -> x @ dual gives P_E x in the basis `dominant()`.

        P_E is the spectral projector, orthogonal when A is symmetric, oblique otherwise.
        """
        right, left = self.dominant(), dominant_eigenspace(self.A.T)
        return np.asarray(np.linalg.solve(left.T @ right, left.T).T, dtype=np.float64)

    @cached_property
    def spans(self) -> tuple[Basis, Basis] | None:
        """Orthonormal columns of the row spaces of B and of V: what tokens are as keys, as values.

        <x, B y> = <K^T B^T x, K^T y> with K (d, r), and V m = V R R^T m with R (d, v). None where
        they save nothing: in up to three dimensions, or if r + v > d.
        """
        spans = _row_space(self.B), _row_space(self.V)
        saves = self.d > 3 and sum(basis.shape[1] for basis in spans) <= self.d
        return spans if saves else None

    def terminal(self, reading: Reading = "real") -> Basis:
        """Return a basis of V's dominant eigenspace, by largest real part or largest modulus."""
        return self._terminal[reading]

    @cached_property
    def _terminal(self) -> dict[Reading, Basis]:
        return {reading: dominant_eigenspace(self.V, reading) for reading in get_args(Reading)}

    def assumptions(self) -> Assumptions:
        """Check Assumption 1 by name and list the constants that decide the phases.

        >>> Weights(np.diag([1.0, 0.5]), np.eye(2)).assumptions().violated
        ()
        """
        return self._assumptions

    @cached_property
    def _assumptions(self) -> Assumptions:
        asymmetry, rank = _asymmetry(self.A), int(np.linalg.matrix_rank(self.B))
        norm = rate = misalignment = angle = np.nan
        if self.has_target:
            basis = self.dominant()
            images = np.linalg.norm(self.B.T @ basis, axis=0)
            norm = float(np.linalg.norm(self.B.T @ basis, 2))
            rate = self.gap / norm if norm > 0 else np.inf
            misalignment = float(np.max(images - np.sum(basis * (self.B @ basis), axis=0)))
            angle = float(scipy.linalg.subspace_angles(basis, self.terminal()).max())
        checks = {
            "dominant eigenvalue of A real and semisimple": self.has_target,
            "B invertible": rank == self.d,
            "A symmetric": asymmetry <= SYMMETRY_TOLERANCE,
            "gap > 0": self.gap > 0,
        }
        return Assumptions(
            condition_B=float(np.linalg.cond(self.B)),
            rank_B=rank,
            asymmetry=asymmetry,
            gap=self.gap,
            multiplicity=self._dominant.shape[1] if self.has_target else 0,
            spectrum_A=spectrum(self.A),
            spectrum_V=spectrum(self.V),
            angle=angle,
            norm_BTe=norm,
            rate=rate,
            misalignment=misalignment,
            violated=tuple(name for name, holds in checks.items() if not holds),
        )


def _row_space(matrix: Array) -> Basis:
    """Return orthonormal columns, one at least, of the span of the rows up to roundoff."""
    rows = np.linalg.svd(matrix)[2]
    return rows[: max(1, np.linalg.matrix_rank(matrix))].T.copy()


def spectrum(matrix: Array) -> tuple[complex, ...]:
    """Return the eigenvalues of a matrix by falling real part, of a pair first the upper one."""
    symmetric = _asymmetry(matrix) <= SYMMETRY_TOLERANCE
    values = np.linalg.eigvalsh(matrix) if symmetric else np.linalg.eigvals(matrix)
    return tuple(sorted((complex(z) for z in values), key=lambda z: (-z.real, -z.imag)))


def _asymmetry(matrix: Array) -> float:
    """Return |M - M^T| / |M| in the Frobenius norm."""
    size = float(np.linalg.norm(matrix))
    return float(np.linalg.norm(matrix - matrix.T)) / size if size > 0 else 0.0


def dominant_eigenspace(matrix: Array, reading: Reading = "real") -> Basis:
    """Return an orthonormal basis of the invariant subspace to the dominant eigenvalues.

    Parameters
    ----------
    matrix
        Square matrix, shape (d, d).
    reading
        Dominant means of largest real part ("real") or of largest modulus ("modulus").

    Returns
    -------
    Basis
        Shape (d, m); a complex pair contributes its real plane.

    >>> dominant_eigenspace(np.diag([0.5, -2.0]), "modulus").ravel()
    array([0., 1.])
    """
    size: Callable[[Any], Any] = np.real if reading == "real" else np.abs
    if _asymmetry(matrix) <= SYMMETRY_TOLERANCE:
        values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
        rank = size(values)
        basis = vectors[:, rank >= rank.max() - EIGENVALUE_TOLERANCE * np.abs(values).max()]
    else:
        values = np.linalg.eigvals(matrix)
        least = size(values).max() - EIGENVALUE_TOLERANCE * np.abs(values).max()
        _, vectors, count = scipy.linalg.schur(
            matrix, output="real", sort=lambda re, im: bool(size(complex(re, im)) >= least)
        )
        basis = vectors[:, :count]
    # one sign for one subspace: the entry of largest size in each column is positive
    largest = np.take_along_axis(basis, np.abs(basis).argmax(axis=0)[None], axis=0)
    signed: Basis = basis * np.sign(largest) + 0.0
    return signed


def _rotation(d: int, stream: np.random.Generator) -> Array:
    """Draw an orthogonal matrix from the Haar measure (QR with the signs of R's diagonal)."""
    q, r = np.linalg.qr(stream.standard_normal((d, d)))
    return q * np.sign(np.diag(r))


def weights_with_gap(
    d: int,
    gap: float,
    *,
    family: Literal["identity", "aligned", "generic"],
    seed: Seed,
    multiplicity: int = 1,
    bulk: Literal["isotropic", "linear"] = "isotropic",
    b: tuple[float, float] = (2.0, 0.5),
    condition: float = 10.0,
) -> Weights:
    """Draw weights whose A = V B^T has eigenvalue 1 on E and spectral gap `gap`.

    A = U diag(1, ..., 1, 1 - gap, ...) U^T with a random rotation U, and V = A B^{-T}.

    Parameters
    ----------
    d
        Dimension, at least 2.
    gap
        Spectral gap mu_1 - mu_2 in (0, 1), dimensionless.
    family
        "identity": B = I. "aligned": B has A's eigenbasis, b[0] on E and b[1] elsewhere, so E is
        an eigenspace of V. "generic": B symmetric positive definite in its own eigenbasis.
    seed
        Seed of the rotations; tokens draw from another stream.
    multiplicity
        Dimension m of E, 1 <= m < d.
    bulk
        Rest of A's spectrum: all 1 - gap ("isotropic"), or falling linearly from 1 - gap to
        min(0.1, (1 - gap) / 2) ("linear").
    b
        Eigenvalues of B for "aligned", positive. E is unstable for V if
        (1 - gap) / b[1] > 1 / b[0].
    condition
        Largest eigenvalue of B for "generic", the least being 1; at least 1.

    Returns
    -------
    Weights
        A pair that satisfies Assumption 1 of arXiv 2605.10931.

    Raises
    ------
    InputError
        If a parameter is out of range.

    >>> round(weights_with_gap(3, 0.25, family="aligned", seed=0).gap, 12)
    0.25
    """
    _check_family(d, gap, family, multiplicity, b, condition)
    stream = np.random.default_rng(seed)
    u = _rotation(d, stream)
    mu = np.ones(d)
    least = min(0.1, (1 - gap) / 2) if bulk == "linear" else 1 - gap
    mu[multiplicity:] = np.linspace(1 - gap, least, d - multiplicity)
    if family == "identity":
        spectrum_B, basis_B = np.ones(d), np.eye(d)
    elif family == "aligned":
        spectrum_B, basis_B = np.where(np.arange(d) < multiplicity, *b), u
    else:
        spectrum_B, basis_B = np.linspace(1.0, condition, d), _rotation(d, stream)
    a = u * mu @ u.T
    inverse_B = basis_B / spectrum_B @ basis_B.T
    return Weights(a @ inverse_B, basis_B * spectrum_B @ basis_B.T)


def _check_family(
    d: int, gap: float, family: str, multiplicity: int, b: tuple[float, float], condition: float
) -> None:
    """Refuse parameters out of range, one line each."""
    checks = {
        f"d = {d}: d must be at least 2": d >= 2,
        f"gap = {gap}: gap must lie in (0, 1)": 0 < gap < 1,
        f"family = {family!r}: choose identity, aligned or generic": family
        in ("identity", "aligned", "generic"),
        f"multiplicity = {multiplicity}: must lie between 1 and d - 1 = {d - 1}": 1
        <= multiplicity
        < d,
        f"b = {b}: give two positive numbers": len(b) == 2 and min(b) > 0,
        f"condition = {condition}: must be at least 1": condition >= 1,
    }
    for message, holds in checks.items():
        if not holds:
            raise InputError(message)


def load_arrays(path: str | Path) -> dict[str, Array]:
    """Read every array of an .npz file; never unpickles.

    Raises
    ------
    InputError
        If it is no such file.
    """
    try:
        with Path(path).open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, BadZipFile, TypeError, AttributeError) as error:
        message = f"{path}: not a readable .npz file of plain arrays ({error})"
        raise InputError(message) from error


def load_weights(path: str | Path) -> Weights:
    """Read V and B, or Q, K and V (then B = Q^T K), from an .npz file.

    Raises
    ------
    InputError
        If the file cannot be read or holds neither pair of names.
    """
    arrays = load_arrays(path)
    if {"V", "B"} <= arrays.keys():
        return Weights(arrays["V"], arrays["B"])
    if {"Q", "K", "V"} <= arrays.keys():
        return Weights(arrays["V"], arrays["Q"].T @ arrays["K"])
    message = f"{path} holds {sorted(arrays)}: save arrays V and B, or Q, K and V"
    raise InputError(message)
