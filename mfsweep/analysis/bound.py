"""The two terms of Theorem 1, arXiv 2605.10931, seen apart in measured curves.

    W2(rho_t, Pi_# rho_0) <= W2(rho_t, rho_t^inf) + W2(rho_t^inf, Pi_# rho_0)
                          <~ sqrt(log(beta + 1) / beta) e^{C t} + e^{-c t}

with rho^inf the zero-temperature flow from the same start. The first is `w2_stability`, the second
`w2_zero_temperature`.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from mfsweep._types import Array, Times
from mfsweep.dynamics.weights import EIGENVALUE_TOLERANCE, SYMMETRY_TOLERANCE, Weights

DECAY_FROM = 0.3
"""Share of its first value below which W2 counts as decaying at its last rate."""
FEWEST_LEFT = 25.0
"""Tokens that must still be on their way: with fewer, their number decides how W2 falls."""
GROWTH_BETWEEN = (0.125, 0.5)
"""Shares of its largest value between which the stability term's growth is measured."""


class Rate(NamedTuple):
    """The mean over seeds of a measured rate, with its 95 % interval; NaN where there is none."""

    value: float
    low: float
    high: float


def predicted_decay_rate(weights: Weights) -> float:
    """Predict the rate at which W2 from the zero-temperature flow to Pi_# rho_0 decays.

        rate = gamma min(1 / |B^T|_E, (m / 2) / |B^T|_{E_2})

    Parameters
    ----------
    weights
        V and B with A = V B^T symmetric; E has dimension m, E_2 is the eigenspace of mu_2.

    Returns
    -------
    float
        Rate >= 0 per unit of dimensionless time; NaN where A is not symmetric or has one
        eigenvalue only.

    Notes
    -----
    At x the flow follows x' = A x on a clock that runs at 1 / |B^T x|, so tokens near E come closer
    at gamma / |B^T x| and tokens near the complement of E leave it, near E_2, at the same rate
    there. A smooth density leaves a share e^{-m rate t} of the tokens at the complement, and W2 is
    the root of that. Of the two the slower one remains; |.|_E is the largest stretch of a unit
    vector of E. Where the two nearly agree it is reached late: 0.172 and 0.199 were measured as
    0.144 between W2 = 0.26 and 0.056. Source: this package's own; B = I gives min(1, m/2) gamma.

    >>> predicted_decay_rate(Weights(np.diag([1.0, 0.5]), np.eye(2)))
    0.25
    """
    symmetric = weights.assumptions().asymmetry <= SYMMETRY_TOLERANCE
    if not symmetric or weights.gap <= 0:
        return np.nan
    values, vectors = np.linalg.eigh(weights.A)
    second = np.abs(values - weights.eigenvalues[1]) <= EIGENVALUE_TOLERANCE * np.abs(values).max()
    basis = weights.dominant()
    near, away = (
        weights.gap / np.linalg.norm(weights.B.T @ space, 2)
        for space in (basis, vectors[:, second])
    )
    return float(min(near, 0.5 * basis.shape[1] * away))


def decay_rate(times: Times, w2: Array, n_tokens: float) -> Rate:
    """Measure the decay rate of W2 from the zero-temperature flow to the metastable target.

    log W2 = const - rate t, by least squares over the times from W2 < `DECAY_FROM` W2(0) on until
    W2^2 < `FEWEST_LEFT` / n_tokens, for each seed by itself.

    Parameters
    ----------
    times
        Dimensionless, shape (time,).
    w2
        `w2_zero_temperature`, shape (seed, time).
    n_tokens
        Number of tokens; inf for the continuum.

    Returns
    -------
    Rate
        NaN where a seed has fewer than 3 saved times in that range: take more tokens or times.

    Examples
    --------
    >>> times = np.linspace(0.0, 10.0, 41)
    >>> round(decay_rate(times, np.exp(-0.5 * times)[None], 10_000).value, 6)
    0.5
    """
    floor = np.sqrt(FEWEST_LEFT / n_tokens)
    return _mean([-_log_slope(times, row, DECAY_FROM * row[0], floor) for row in w2])


def growth_rate(times: Times, w2_stability: Array) -> Rate:
    """Measure how fast the stability term grows before it saturates, at one beta.

    log W = const + C t, by least squares over the times from the first with W above an eighth of
    its largest value to the first above half of it (`GROWTH_BETWEEN`), for each seed by itself.

    Parameters
    ----------
    times
        Dimensionless, shape (time,).
    w2_stability
        Shape (seed, time).

    Returns
    -------
    Rate
        Per unit of dimensionless time; NaN where a seed has fewer than 3 saved times in the range.

    Examples
    --------
    >>> times = np.linspace(0.0, 20.0, 81)
    >>> w = 1.0 / (1.0 + 1e4 * np.exp(-times))
    >>> round(growth_rate(times, w[None]).value, 1)
    0.7
    """
    low, high = GROWTH_BETWEEN
    return _mean(
        [_log_slope(times, row, low * row.max(), high * row.max()) for row in w2_stability]
    )


def power_of_beta(beta: Array, w2_stability: Array) -> Rate:
    """Measure p in W ~ beta^p for the stability term at one time.

    Parameters
    ----------
    beta
        Finite inverse temperatures, shape (beta,).
    w2_stability
        Shape (beta, seed), > 0.

    Returns
    -------
    Rate
        p, from a least-squares line of each seed; the theorem's bound allows -1/2, up to the
        logarithm. NaN at fewer than 3 beta, or where W is 0 (at the start).

    Examples
    --------
    >>> beta = np.array([8.0, 32.0, 128.0])
    >>> round(power_of_beta(beta, 3.0 / np.sqrt(beta)[:, None]).value, 12)
    -0.5
    """
    if beta.size < 3 or not (np.isfinite(w2_stability) & (w2_stability > 0)).all():
        return Rate(np.nan, np.nan, np.nan)
    return _mean(np.polyfit(np.log(beta), np.log(w2_stability), 1)[0].tolist())


def _log_slope(times: Times, curve: Array, first: float, last: float) -> float:
    """Slope of log curve from where it passes one level on until it passes another."""
    falls = last < first
    passed = [np.flatnonzero(curve < level if falls else curve > level) for level in (first, last)]
    start, stop = (int(p[0]) if p.size else curve.size for p in passed)
    if stop - start < 3:
        return np.nan
    return float(np.polyfit(times[start:stop], np.log(curve[start:stop]), 1)[0])


def _mean(rates: list[float]) -> Rate:
    """Mean over seeds with its t interval, NaN if a seed has none; no interval for one seed."""
    mean, count = float(np.mean(rates)), len(rates)
    if count < 2:
        return Rate(mean, np.nan, np.nan)
    reach = float(stdtrit(count - 1, 0.975) * np.std(rates, ddof=1) / np.sqrt(count))
    return Rate(mean, mean - reach, mean + reach)
