"""Initial tokens on the sphere and their masses."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from mfsweep._errors import InputError
from mfsweep._types import Array, Basis, Masses, Tokens
from mfsweep.dynamics.sphere import normalise
from mfsweep.dynamics.weights import Seed, load_arrays

Distribution = Literal["uniform", "vmf", "mixture", "file"]
Sampling = Literal["iid", "antipodal", "qmc", "equispaced"]
Component = tuple[float, Array, float]
"""Weight, mean direction and concentration of a mixture's part."""

_EVEN = {True: ("qmc", "equispaced"), False: ("qmc",)}
"""Samplings that spread tokens evenly, on the circle and elsewhere."""
_OUTSIDE = 1e-12
"""Share of a token's length inside a span, up to which the projection is roundoff."""


def initial_tokens(
    n_tokens: int,
    d: int,
    *,
    distribution: Distribution = "uniform",
    sampling: Sampling = "iid",
    seed: Seed,
    direction: Array | None = None,
    kappa: float | None = None,
    components: Sequence[Component] = (),
    path: str | Path | None = None,
    basis: Basis | None = None,
) -> tuple[Tokens, Masses]:
    """Draw n tokens from a density on S^{d-1}, with equal masses 1/n, or from a file.

    Parameters
    ----------
    n_tokens
        Number of tokens n, at least 1 (even for "antipodal").
    d
        Dimension, at least 2.
    distribution
        "uniform"; "vmf": von Mises-Fisher, density proportional to e^{kappa <direction, x>};
        "mixture" of such; "file": rows of a file, scaled to length 1.
    sampling
        "iid"; "antipodal": n/2 iid tokens and their mirror images -x, "uniform" only; "qmc":
        scrambled Sobol points, mapped to the sphere by the quantiles of the angle to the mean
        direction and, for the rest, of an angle (d = 2) or of normals; "equispaced": the quantiles
        (i + 1/2) / n of the angle, d = 2 only, no randomness. The last two are for "uniform" and
        "vmf": their error of sampling falls nearly like 1/n, that of the others like n^{-1/2}.
    seed
        Seed of the stream. With "iid" the first tokens of a longer draw are those of a shorter.
    direction, kappa
        Mean direction, shape (d,), and concentration > 0 of "vmf".
    components
        Of "mixture": weight > 0 (relative), direction (d,) and kappa >= 0 of each; kappa = 0 is
        uniform.
    path
        Of "file": an .npz with "tokens" (rows, d) and perhaps "mass" (rows,), positive. All rows
        in order if there are n, a draw without repetition if there are more.
    basis
        Of "file": orthonormal columns, shape (d of the file, d); tokens are projected on their span
        and scaled to length 1 there. None where the file's dimension is d.

    Returns
    -------
    tokens, mass
        Shapes (n, d) and (n,); masses sum to 1.

    Raises
    ------
    InputError
        If the combination is not defined, or a file does not hold what is asked for.

    >>> tokens, mass = initial_tokens(4, 2, sampling="equispaced", seed=0)
    >>> np.round(tokens[0] * np.sqrt(2), 12), float(mass.sum())
    (array([1., 1.]), 1.0)
    """
    if n_tokens < 1 or d < 2:
        message = f"n_tokens = {n_tokens}, d = {d}: need n_tokens >= 1 and d >= 2"
        raise InputError(message)
    stream = np.random.default_rng(seed)
    if distribution == "file" and path is not None:
        return _from_file(Path(path), n_tokens, d, sampling, stream, basis)
    if distribution == "vmf":
        tokens = _von_mises_fisher(n_tokens, d, sampling, stream, direction, kappa)
    elif distribution == "mixture":
        tokens = _mixture(n_tokens, d, sampling, stream, components)
    elif distribution == "uniform" and sampling == "iid":
        tokens = normalise(stream.standard_normal((n_tokens, d)))
    elif distribution == "uniform" and sampling == "antipodal" and n_tokens % 2 == 0:
        half = normalise(stream.standard_normal((n_tokens // 2, d)))
        tokens = np.concatenate([half, -half])
    elif distribution == "uniform" and sampling in _EVEN[d == 2]:
        tokens = _spread(_even(n_tokens, 1 if d == 2 else d, sampling, stream), d)
    else:
        message = (
            f"{distribution} tokens by {sampling} sampling with n_tokens = {n_tokens}, d = {d}: "
            "antipodal needs an even n_tokens, equispaced needs d = 2; iid always works"
        )
        raise InputError(message)
    return tokens, np.full(n_tokens, 1.0 / n_tokens)


def _mixture(
    n_tokens: int,
    d: int,
    sampling: str,
    stream: np.random.Generator,
    components: Sequence[Component],
) -> Tokens:
    """Choose a component for each token, then draw the component's tokens."""
    weights = np.array([weight for weight, _, _ in components], dtype=np.float64)
    if sampling != "iid" or not (
        len(weights) and (weights > 0).all() and np.isfinite(weights).all()
    ):
        message = (
            f"distribution = mixture with sampling = {sampling}, {len(weights)} components: needs "
            "sampling iid and components of weight > 0"
        )
        raise InputError(message)
    chosen = stream.choice(len(weights), n_tokens, p=weights / weights.sum())
    tokens = np.empty((n_tokens, d))
    for k, (_, direction, kappa) in enumerate(components):
        rows = np.flatnonzero(chosen == k)
        if kappa == 0:
            tokens[rows] = normalise(stream.standard_normal((len(rows), d)))
        elif len(rows):
            tokens[rows] = _von_mises_fisher(len(rows), d, "iid", stream, direction, kappa)
    return tokens


def _from_file(
    path: Path,
    n_tokens: int,
    d: int,
    sampling: str,
    stream: np.random.Generator,
    basis: Basis | None,
) -> tuple[Tokens, Masses]:
    """Read tokens and masses; draw rows without repetition where there are more than asked for."""
    if sampling != "iid":
        message = f"distribution = file with sampling = {sampling}: needs sampling iid"
        raise InputError(message)
    tokens, mass = load_tokens(path)
    wanted = d if basis is None else len(basis)
    if len(tokens) < n_tokens or tokens.shape[1] != wanted:
        message = (
            f"{path} holds {len(tokens)} tokens of dimension {tokens.shape[1]}: asked for "
            f"n_tokens = {n_tokens} at d = {wanted}; lower n_tokens or give another file"
        )
        raise InputError(message)
    if len(tokens) > n_tokens:
        rows = np.sort(stream.choice(len(tokens), n_tokens, replace=False))
        tokens, mass = tokens[rows], mass[rows]
    if basis is not None:
        lengths = np.linalg.norm(tokens, axis=1)
        tokens = tokens @ basis
        if not (np.linalg.norm(tokens, axis=1) > _OUTSIDE * lengths).all():
            message = f"{path}: a token lies outside the span; raise span or leave the token out"
            raise InputError(message)
    return normalise(tokens), mass / mass.sum()


def load_tokens(path: str | Path) -> tuple[Array, Masses]:
    """Read tokens (rows, d), as they are, and masses (rows,) from an .npz file; never unpickles.

    Raises
    ------
    InputError
        If the file cannot be read, or rows are zero or not finite, or masses not positive.
    """
    arrays = load_arrays(path)
    if "tokens" not in arrays:
        message = f"{path} holds {sorted(arrays)}: save an array tokens, and mass if you like"
        raise InputError(message)
    tokens = np.asarray(arrays["tokens"], dtype=np.float64)
    mass = np.asarray(arrays.get("mass", np.ones(len(tokens))), dtype=np.float64)
    good = (
        tokens.ndim == 2 and np.isfinite(tokens).all() and (np.abs(tokens).max(axis=-1) > 0).all()
    )
    if not (good and len(tokens)):
        message = (
            f"{path}: tokens has shape {tokens.shape}: needs (rows, d), finite, no row of zeros"
        )
        raise InputError(message)
    if mass.shape != tokens.shape[:1] or not (np.isfinite(mass).all() and (mass > 0).all()):
        message = f"{path}: mass has shape {mass.shape}: needs {len(tokens)} positive numbers"
        raise InputError(message)
    return tokens, mass


def _spread(points: Array, d: int) -> Tokens:
    """Map points of the unit cube to the sphere S^{d-1}: a side, an angle, or normal quantiles."""
    from scipy.special import ndtri  # slow to import, and seldom needed

    if d == 1:
        return np.where(points < 0.5, -1.0, 1.0)
    if d == 2:
        angle = 2 * np.pi * points[:, 0]
        return np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    return normalise(ndtri(points))


def _even(n_tokens: int, dimension: int, sampling: str, stream: np.random.Generator) -> Array:
    """Fill the unit cube evenly: scrambled Sobol points, or midpoints of equal intervals."""
    from scipy.stats import qmc  # slow to import, and seldom needed

    if sampling == "equispaced":
        return (np.arange(n_tokens)[:, None] + 0.5) / n_tokens
    sobol = qmc.Sobol(dimension, rng=stream)
    points: Array = sobol.random_base2(int(np.ceil(np.log2(n_tokens))))[:n_tokens]
    return points


def _von_mises_fisher(
    n_tokens: int,
    d: int,
    sampling: str,
    stream: np.random.Generator,
    direction: Array | None,
    kappa: float | None,
) -> Tokens:
    """Draw von Mises-Fisher tokens, or spread them evenly."""
    from scipy.linalg import null_space  # these are slow to import, and seldom needed
    from scipy.stats import vonmises_fisher

    if sampling not in ("iid", *_EVEN[d == 2]) or kappa is None or not kappa > 0:
        message = (
            f"distribution = vmf with sampling = {sampling}, kappa = {kappa}, d = {d}: needs "
            "sampling iid, qmc or (d = 2) equispaced, a direction and kappa > 0"
        )
        raise InputError(message)
    mean = np.asarray(direction, dtype=np.float64)
    if mean.shape != (d,) or not np.linalg.norm(mean) > 0:
        message = f"direction has shape {mean.shape}: expected a nonzero vector of length d = {d}"
        raise InputError(message)
    mean = normalise(mean)
    if sampling == "iid":
        law = vonmises_fisher(mean, kappa)
        return normalise(law.rvs(n_tokens, random_state=stream).reshape(n_tokens, d))
    points = _even(n_tokens, d - 1 if d == 2 else d, sampling, stream)
    share, rest = (np.abs(2 * points - 1), points) if d == 2 else (points[:, :1], points[:, 1:])
    angle = _angle_to_mean(share, d, kappa)
    across = _spread(rest, d - 1) @ null_space(mean[None]).T
    return normalise(np.cos(angle) * mean + np.sin(angle) * across)


def _angle_to_mean(share: Array, d: int, kappa: float) -> Array:
    """Quantiles of the angle a to the mean direction, density e^{kappa cos a} sin^{d-2} a."""
    from scipy.integrate import cumulative_simpson

    farthest = min(np.pi, np.pi / 2 * (8 + np.sqrt(d)) / np.sqrt(kappa))  # beyond lies e^{-32}
    angle = np.linspace(0, farthest, 16_385)
    density = np.exp(kappa * (np.cos(angle) - 1)) * np.sin(angle) ** (d - 2)
    below = cumulative_simpson(density, x=angle, initial=0)
    return np.interp(share, below / below[-1], angle)
