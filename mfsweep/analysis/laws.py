"""Laws of a switch time against beta: t = a + b f(beta), with a seed effect and censored cells.

Seeds are paired across beta, so cells of one seed share an effect; cells whose event lies beyond
the last saved time enter the likelihood as P(t > bound) and are never dropped.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import log_ndtr, stdtrit

from mfsweep._errors import InputError
from mfsweep._types import LAWS, STATUSES, Array, Law, LawStatus, Status

MIN_BETAS = 4
"""Fewer distinct beta with an event cannot tell one law from another."""
MIN_SEEDS = 6
"""Fewer seeds leave the interval of the slope to a t distribution of very few degrees."""

_NODES, _WEIGHTS = hermegauss(40)
_LOG_WEIGHTS = np.log(_WEIGHTS / _WEIGHTS.sum())
_LOG_ROOT_2PI = 0.5 * np.log(2.0 * np.pi)
_SHARPEST = np.log(1e4)
_MOST_LEVERAGE = 0.75
_LEFT_TO_GAIN = 1e-4  # twice the log-likelihood that a Newton step would still add


@dataclass(frozen=True)
class LawFit:
    """Hold one fitted law; its numbers are NaN where no slope can be identified.

    Parameters
    ----------
    law : {"log", "linear"}
        f(beta) = log beta or beta.
    slope, slope_low, slope_high : float
        b with its 95 % interval, dimensionless time per unit of f; the interval is NaN with one
        seed.
    intercept : float
        a, dimensionless time.
    aic : float
        2 k - 2 log L with k = 4: a, b, sigma and the seed effect. Comparable between the two laws
        of the same cells.
    sigma, sigma_seed : float
        Standard deviations of the residual and of the seed effect, dimensionless time, >= 0.
    counts : dict of str to int
        How many cells had each status.
    status : str
        One of `LAW_STATUSES`.
    message : str
        The status in one sentence.
    """

    law: Law
    slope: float
    slope_low: float
    slope_high: float
    intercept: float
    aic: float
    sigma: float
    sigma_seed: float
    counts: dict[Status, int]
    status: LawStatus
    message: str


class _Numbers(NamedTuple):
    slope: float = np.nan
    slope_low: float = np.nan
    slope_high: float = np.nan
    intercept: float = np.nan
    aic: float = np.nan
    sigma: float = np.nan
    sigma_seed: float = np.nan


@dataclass(frozen=True)
class _Cells:
    beta: Array
    value: Array
    flag: NDArray[np.int64]
    seed: NDArray[Any]

    def only(self, *names: Status) -> NDArray[np.bool_]:
        """Tell which cells have one of these statuses."""
        return np.isin(self.flag, [STATUSES.index(name) for name in names])


@dataclass(frozen=True)
class _Sample:
    """Fitted cells: residuals y of a first line in units of their size, and x = f(beta) scaled."""

    y: Array  # (cells,)
    x: Array  # (cells,)
    censored: NDArray[np.bool_]  # (cells,)
    groups: Array  # (seed, cells), 1 where the cell belongs to the seed


def predicted_slope(norm_BTe: float, gap: float) -> float:
    """Predict the slope of the turnaround against log beta: b = |B^T e| / (2 gamma).

    Near e in E the zero-temperature flow contracts at c = gamma / |B^T e|; the turnaround is where
    the cluster's width e^{-c t} meets the Laplace width beta^{-1/2}.

    Parameters
    ----------
    norm_BTe : float
        |B^T e| > 0 for a unit vector e of the dominant eigenspace E of A.
    gap : float
        gamma > 0, gap of A between its two largest distinct eigenvalues.

    Returns
    -------
    float
        Dimensionless time per unit of log beta.

    Raises
    ------
    InputError
        If either number is not positive and finite.

    Notes
    -----
    Model: arXiv 2605.10931; the law is this package's own, from the two terms of its Theorem 1.

    Examples
    --------
    >>> predicted_slope(2.0, 0.5)
    2.0
    """
    for name, value in (("norm_BTe", norm_BTe), ("gap", gap)):
        _require(0.0 < value < np.inf, f"{name} = {value}: must be finite and > 0; check V and B")
    return norm_BTe / (2.0 * gap)


def fit_law(
    beta: ArrayLike,
    value: ArrayLike,
    status: ArrayLike,
    seed: ArrayLike,
    *,
    law: Law = "log",
) -> LawFit:
    """Fit one law to the switch times of many cells by maximum likelihood.

        t = a + b f(beta) + u_seed + eps,   u ~ N(0, sigma_seed^2),   eps ~ N(0, sigma^2)

    A censored cell enters as P(t > value). The interval of b is clustered by seed: a sandwich of
    the seeds' scores, each enlarged for its leverage (I - H_i H^{-1})^{-1/2}, with t quantiles on
    seeds - 1 degrees of freedom.

    Parameters
    ----------
    beta : array_like, shape (cells,)
        Inverse temperatures, > 0 and finite: leave the beta = inf cells out.
    value : array_like, shape (cells,)
        Dimensionless switch times; the lower bound where censored; not read where not fitted.
    status : array_like of str or int, shape (cells,)
        Names of `STATUSES` or their flags. `observed`, `censored` and `under_resolved` cells are
        fitted, the last as observed ones; `absent` and `missing` ones are only counted.
    seed : array_like of int, shape (cells,)
        Label of the seed, the cluster of the interval.
    law : {"log", "linear"}
        f(beta) = log beta or beta.

    Returns
    -------
    LawFit
        Its status is the first that applies: `missing`, `absent` or `all_censored` if no cell has
        an event; `few_betas` if those lie at one beta (no slope); `unconverged` if the likelihood
        has no isolated maximum (no slope); `under_resolved` if such cells are fitted; `few_betas`
        below `MIN_BETAS`; `few_seeds` below `MIN_SEEDS`; else `fitted`. The message names all.

    Raises
    ------
    InputError
        If shapes differ, a status or the law is unknown, or a fitted beta or value is out of range.

    Notes
    -----
    Over 2000 simulated sweeps of 8 and 16 seeds with 0, 30 and 60 % of the cells censored the
    interval covers the slope in 93 to 97 % (tests/benchmarks/law_coverage.py). sigma is bounded
    below by 1e-4 of the residuals' size, so that cells on one line have a finite likelihood;
    sigma_seed is 0 where no seed has two events to tell it from sigma. Cost about 10 ms for 100
    cells. Concentration time log beta: arXiv 2605.10931, Theorem 1.

    Examples
    --------
    >>> beta, seed = np.tile([8.0, 16.0, 32.0, 64.0], 8), np.repeat(np.arange(8), 4)
    >>> time = 2.0 * np.log(beta) + 0.1 * seed + 0.05 * np.cos(np.arange(32.0))
    >>> fit = fit_law(beta, time, ["observed"] * 32, seed)
    >>> round(fit.slope, 2), fit.status
    (2.0, 'fitted')
    """
    _require(law in LAWS, f"law = {law!r}: must be one of {', '.join(LAWS)}; pass one of them")
    cells = _checked_cells(beta, value, status, seed)
    counts = {name: int(np.sum(cells.flag == i)) for i, name in enumerate(STATUSES)}
    fitted = cells.only("observed", "censored", "under_resolved")
    seen = cells.only("observed", "under_resolved")
    betas, seeds = np.unique(cells.beta[seen]).size, np.unique(cells.seed[fitted]).size
    verdict, message = _verdict(counts, betas, seeds)
    numbers = _Numbers()
    if betas > 1:
        f = np.log(cells.beta[fitted]) if law == "log" else cells.beta[fitted]
        numbers = _maximise(f, cells.value[fitted], ~seen[fitted], cells.seed[fitted])
        if np.isnan(numbers.slope):
            verdict, message = "unconverged", "No slope: the likelihood has no isolated maximum."
    return LawFit(law, *numbers, counts, verdict, message)


def _verdict(counts: dict[Status, int], betas: int, seeds: int) -> tuple[LawStatus, str]:
    """Return the status that the cells allow, and why."""
    seen, bounds = counts["observed"] + counts["under_resolved"], counts["censored"]
    if not seen + bounds:
        if counts["absent"]:
            return "absent", f"No slope: the event is absent in all {counts['absent']} known cells."
        return "missing", "No slope: no cell has been computed."
    if not seen:
        return "all_censored", f"No slope: in all {bounds} cells the event lies past the last time."
    doubts: dict[LawStatus, str] = {}
    if counts["under_resolved"]:
        doubts["under_resolved"] = f"decided by finite n: {counts['under_resolved']} of them"
    if betas < MIN_BETAS:
        doubts["few_betas"] = f"beta with an event: {betas} of {MIN_BETAS} needed"
    if seeds < MIN_SEEDS:
        doubts["few_seeds"] = f"seeds: {seeds} of {MIN_SEEDS} needed"
    if betas < 2:
        doubts = {"few_betas": doubts.pop("few_betas"), **doubts}
    opening = "Fitted to" if betas > 1 else "No slope from"
    message = f"{opening} {seen} observed and {bounds} censored cells"
    return next(iter(doubts), "fitted"), f"{'; '.join([message, *doubts.values()])}."


def _maximise(f: Array, value: Array, censored: NDArray[np.bool_], seed: NDArray[Any]) -> _Numbers:
    """Return the numbers of a `LawFit`, all NaN without an isolated maximum."""
    x = (f - f.mean()) / f.std()
    b, a = np.polyfit(x[~censored], value[~censored], 1)
    y = value - a - b * x
    size = np.sqrt(np.mean(np.where(censored, np.maximum(y, 0.0), y) ** 2))
    size = max(size, 1e-6 * np.std(value), np.finfo(np.float64).tiny)
    groups = (np.unique(seed)[:, None] == seed).astype(np.float64)
    sample = _Sample(y / size, x, censored, groups)
    theta = minimize(
        lambda theta: [-np.sum(part, axis=0) for part in _log_likelihood(theta, sample)],
        np.array([0.0, 0.0, 0.0, np.max(groups @ ~censored) > 1]),  # s = 0 is stationary
        jac=True,
        method="L-BFGS-B",
        bounds=[(None, None), (None, None), (-_SHARPEST, _SHARPEST), (None, None)],
        options={"ftol": 1e-13, "gtol": 1e-6, "maxiter": 500},
    ).x
    error = _slope_error(theta, sample) * size / f.std()
    if np.isnan(error):
        return _Numbers()
    slope = (b + theta[1] * size) / f.std()
    reach = error * stdtrit(len(groups) - 1, 0.975) if len(groups) > 1 else np.nan
    log_l = _log_likelihood(theta, sample)[0].sum() - np.sum(~censored) * np.log(size)
    sigma = size * np.exp(-theta[2])
    return _Numbers(
        slope=float(slope),
        slope_low=float(slope - reach),
        slope_high=float(slope + reach),
        intercept=float(a + theta[0] * size - slope * f.mean()),
        aic=float(2.0 * theta.size - 2.0 * log_l),
        sigma=float(sigma),
        sigma_seed=float(abs(theta[3]) * size),
    )


def _slope_error(theta: Array, sample: _Sample) -> float:
    """Return the clustered standard error of b, NaN if theta is no isolated maximum.

    A sharpness at its bound and a seed effect at 0, where the likelihood is even, are held fixed.
    """
    free = np.array([True, True, theta[2] < _SHARPEST, abs(theta[3]) * np.exp(theta[2]) > 1e-3])
    events = sample.groups @ ~sample.censored
    if not free[2] and free[3] and events.sum() <= np.sum(events > 0) + 1:
        return np.nan  # seed effects and a slope go through every event: sigma falls to 0
    steps = 1e-4 * np.eye(theta.size)[free]
    ahead, behind = ([_log_likelihood(theta + s, sample)[1] for s in d] for d in (steps, -steps))
    info = (np.stack(behind, axis=1) - np.stack(ahead, axis=1))[:, :, free] / 2e-4
    info = 0.5 * (info + info.transpose(0, 2, 1))
    try:
        root = np.linalg.inv(np.linalg.cholesky(info.sum(axis=0)))
    except np.linalg.LinAlgError:
        return np.nan
    score = _log_likelihood(theta, sample)[1][:, free] @ root.T
    if np.sum(score.sum(axis=0) ** 2) > _LEFT_TO_GAIN:
        return np.nan
    leverage, axes = np.linalg.eigh(root @ info @ root.T)
    weight = (1.0 - np.minimum(leverage, _MOST_LEVERAGE)) ** -0.5
    influence = np.einsum("gik,gk,gjk,gj->gi", axes, weight, axes, score) @ root
    return float(np.linalg.norm(influence[:, 1]))


def _log_likelihood(theta: Array, sample: _Sample) -> tuple[Array, Array]:
    """Return log L and its gradient, one row a seed, at theta = (alpha, b, log g, s).

    With z ~ N(0, 1) shared by a seed's cells and e = g (y - alpha - b x - s z), an observed cell
    has density g phi(e), a censored one probability Phi(-e). The observed cells leave z Gaussian;
    the censored ones are integrated against that Gaussian by Gauss-Hermite quadrature.
    """
    g = np.exp(theta[2])
    h = g * theta[3]
    censored, groups = sample.censored, sample.groups
    rest = g * (sample.y - theta[0] - theta[1] * sample.x)
    seen = np.where(censored, 0.0, rest)
    n, total, square = groups @ ~censored, groups @ seen, groups @ seen**2
    spread = 1.0 / (1.0 + n * h**2)
    z = (spread * h * total)[:, None] + np.sqrt(spread)[:, None] * _NODES
    pull = rest[:, None] - h * (groups.T @ z)
    e = pull[censored]
    log_tail = log_ndtr(-e)
    pull[censored] = np.exp(-0.5 * e**2 - _LOG_ROOT_2PI - log_tail)
    log_p = _LOG_WEIGHTS + groups[:, censored] @ log_tail
    peak = log_p.max(axis=1)
    p = np.exp(log_p - peak[:, None])
    mass = p.sum(axis=1)
    p /= mass[:, None]
    log_l = n * (theta[2] - _LOG_ROOT_2PI) + 0.5 * np.log(spread) + peak + np.log(mass)
    log_l -= 0.5 * (square - spread * (h * total) ** 2)
    mean_pull = np.sum(pull * (groups.T @ p), axis=1)
    slopes = groups @ np.column_stack([g * mean_pull, g * sample.x * mean_pull, -rest * mean_pull])
    by_h = np.sum(p * z * (groups @ pull), axis=1)
    slopes[:, 2] += n + h * by_h
    return log_l, np.column_stack([slopes, g * by_h])


def _checked_cells(beta: ArrayLike, value: ArrayLike, status: ArrayLike, seed: ArrayLike) -> _Cells:
    """Return the columns of the cells, or refuse them."""
    flags: dict[object, int] = {name: i for i, name in enumerate(STATUSES)}
    flags |= {i: i for i in range(len(STATUSES))}
    given = np.asarray(status)
    unknown = [entry for entry in given.ravel().tolist() if entry not in flags]
    allowed = f"must be one of {', '.join(STATUSES)} or its flag; correct that cell"
    _require(not unknown, f"status = {unknown[:1]}: {allowed}")
    cells = _Cells(
        beta=np.asarray(beta, dtype=np.float64),
        value=np.asarray(value, dtype=np.float64),
        flag=np.array([flags[entry] for entry in given.ravel().tolist()]).reshape(given.shape),
        seed=np.asarray(seed),
    )
    for name, column in vars(cells).items():
        shapes = f"{name} has shape {column.shape}, status {given.shape}"
        same = column.shape == given.shape and given.ndim == 1
        _require(same, f"{shapes}: needs (cells,), one entry a cell; flatten and align the columns")
    for i in np.flatnonzero(cells.only("observed", "censored", "under_resolved")):
        b, t = float(cells.beta[i]), float(cells.value[i])
        _require(0.0 < b < np.inf, f"beta[{i}] = {b}: must be > 0 and finite; leave that cell out")
        _require(abs(t) < np.inf, f"value[{i}] = {t}: must be finite; mark that cell missing")
    return cells


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise InputError(message)
