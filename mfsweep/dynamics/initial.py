"""Initial tokens on the sphere and their masses."""

from typing import Literal

import numpy as np

from mfsweep._errors import InputError
from mfsweep._types import Array, Masses, Tokens
from mfsweep.dynamics.sphere import normalise
from mfsweep.dynamics.weights import Seed

Distribution = Literal["uniform", "vmf"]
Sampling = Literal["iid", "antipodal", "qmc", "equispaced"]


def initial_tokens(
    n_tokens: int,
    d: int,
    *,
    distribution: Distribution = "uniform",
    sampling: Sampling = "iid",
    seed: Seed,
    direction: Array | None = None,
    kappa: float | None = None,
) -> tuple[Tokens, Masses]:
    """Draw n tokens from a density on S^{d-1}, with equal masses 1/n.

    Parameters
    ----------
    n_tokens
        Number of tokens n, at least 1 (even for "antipodal").
    d
        Dimension, at least 2.
    distribution
        "uniform", or "vmf": von Mises-Fisher, density proportional to e^{kappa <direction, x>}.
    sampling
        "iid"; "antipodal": n/2 iid tokens and their mirror images -x; "qmc": scrambled Sobol
        points, mapped to the sphere by the angle (d = 2) or by normal quantiles; "equispaced":
        angles 2 pi (i + 1/2) / n, d = 2 only, no randomness. "vmf" is drawn iid.
    seed
        Seed of the stream. With "iid" the first tokens of a longer draw are those of a shorter.
    direction, kappa
        Mean direction, shape (d,), and concentration > 0 of "vmf".

    Returns
    -------
    tokens, mass
        Shapes (n, d) and (n,).

    Raises
    ------
    InputError
        If the combination is not defined.

    >>> tokens, mass = initial_tokens(4, 2, sampling="equispaced", seed=0)
    >>> np.round(tokens[0] * np.sqrt(2), 12), float(mass.sum())
    (array([1., 1.]), 1.0)
    """
    if n_tokens < 1 or d < 2:
        message = f"n_tokens = {n_tokens}, d = {d}: need n_tokens >= 1 and d >= 2"
        raise InputError(message)
    stream = np.random.default_rng(seed)
    if distribution == "vmf":
        tokens = _von_mises_fisher(n_tokens, d, sampling, stream, direction, kappa)
    elif distribution == "uniform" and sampling == "iid":
        tokens = normalise(stream.standard_normal((n_tokens, d)))
    elif distribution == "uniform" and sampling == "antipodal" and n_tokens % 2 == 0:
        half = normalise(stream.standard_normal((n_tokens // 2, d)))
        tokens = np.concatenate([half, -half])
    elif distribution == "uniform" and sampling == "qmc":
        tokens = _low_discrepancy(n_tokens, d, stream)
    elif distribution == "uniform" and sampling == "equispaced" and d == 2:
        tokens = _on_circle((np.arange(n_tokens) + 0.5) / n_tokens)
    else:
        message = (
            f"{distribution} tokens by {sampling} sampling with n_tokens = {n_tokens}, d = {d}: "
            "antipodal needs an even n_tokens, equispaced needs d = 2; iid always works"
        )
        raise InputError(message)
    return tokens, np.full(n_tokens, 1.0 / n_tokens)


def _on_circle(turn: Array) -> Tokens:
    """Points at 2 pi times the given fractions of a turn."""
    angle = 2 * np.pi * turn
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1)


def _low_discrepancy(n_tokens: int, d: int, stream: np.random.Generator) -> Tokens:
    """Map scrambled Sobol points to the sphere."""
    from scipy.stats import norm, qmc  # slow to import, and seldom needed

    dimension = 1 if d == 2 else d
    sobol = qmc.Sobol(dimension, rng=stream)
    points = sobol.random_base2(int(np.ceil(np.log2(n_tokens))))[:n_tokens]
    if d == 2:
        return _on_circle(points[:, 0])
    return normalise(norm.ppf(points))


def _von_mises_fisher(
    n_tokens: int,
    d: int,
    sampling: str,
    stream: np.random.Generator,
    direction: Array | None,
    kappa: float | None,
) -> Tokens:
    """Draw iid von Mises-Fisher tokens."""
    from scipy.stats import vonmises_fisher  # slow to import, and seldom needed

    if sampling != "iid" or direction is None or kappa is None or not kappa > 0:
        message = (
            f"distribution = vmf with sampling = {sampling}, kappa = {kappa}: needs sampling iid, "
            "a direction and kappa > 0"
        )
        raise InputError(message)
    mean = np.asarray(direction, dtype=np.float64)
    if mean.shape != (d,) or not np.linalg.norm(mean) > 0:
        message = f"direction has shape {mean.shape}: expected a nonzero vector of length d = {d}"
        raise InputError(message)
    law = vonmises_fisher(normalise(mean), kappa)
    return normalise(law.rvs(n_tokens, random_state=stream).reshape(n_tokens, d))
