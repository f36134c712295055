"""Laws against least squares, an integrated likelihood, and simulated sweeps with a known slope."""

import math

import numpy as np
import pytest
from benchmarks.law_coverage import SLOPE, coverage, simulate_sweep
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import binom, norm, t

from mfsweep._errors import InputError
from mfsweep._types import LAW_STATUSES, STATUSES
from mfsweep.analysis.laws import LawFit, fit_law, predicted_slope

NUMBERS = ("slope", "slope_low", "slope_high", "intercept", "aic", "sigma", "sigma_seed")


def sweep(seeds=8, share=0.0, root=0):
    return simulate_sweep(np.random.default_rng(root), seeds, share)


def numbers(fit):
    return np.array([getattr(fit, name) for name in NUMBERS])


def integrated_log_likelihood(cells, intercept, slope, sigma, sigma_seed):
    """Integrate the seed effect of the log law by the trapezoidal rule, seed by seed."""
    u, step = np.linspace(-9 * sigma_seed, 9 * sigma_seed, 4001, retstep=True)
    total = 0.0
    for s in np.unique(cells.seed):
        mine = cells.seed == s
        mean = intercept + slope * np.log(cells.beta[mine, None]) + u
        time, observed = cells.time[mine, None], cells.status[mine, None] == "observed"
        logs = np.where(observed, norm.logpdf(time, mean, sigma), norm.logsf(time, mean, sigma))
        total += np.log(step * np.sum(norm.pdf(u, scale=sigma_seed) * np.exp(logs.sum(axis=0))))
    return total


@pytest.mark.parametrize(
    ("norm_BTe", "gap", "slope"),
    [(2.0, 0.5, 2.0), (2.0, 0.25, 4.0), (2.0, 0.6, 1.67), (1.5, 0.5, 1.5)],
)
def test_predicted_slope_gives_the_table_of_the_aligned_family(norm_BTe, gap, slope):
    assert predicted_slope(norm_BTe, gap) == pytest.approx(slope, abs=0.005)


@pytest.mark.parametrize("law", ["log", "linear"])
def test_a_balanced_uncensored_fit_is_least_squares_with_the_t_interval_of_the_seeds_slopes(law):
    cells = sweep(seeds=9)
    f = np.log(cells.beta) if law == "log" else cells.beta
    slope, intercept = np.polyfit(f, cells.time, 1)
    per_seed = [np.polyfit(f[cells.seed == s], cells.time[cells.seed == s], 1)[0] for s in range(9)]
    reach = t.ppf(0.975, 8) * np.std(per_seed, ddof=1) / 3
    fit = fit_law(cells.beta, cells.time, cells.status, cells.seed, law=law)
    assert fit.status == "fitted"
    assert fit.slope == pytest.approx(slope, rel=1e-5)
    assert fit.intercept == pytest.approx(intercept, rel=1e-5)
    assert slope - fit.slope_low == pytest.approx(reach, rel=0.05)
    assert fit.slope_high - slope == pytest.approx(reach, rel=0.05)


def test_balanced_uncensored_spreads_are_those_of_the_analysis_of_variance():
    cells = sweep(seeds=9)
    residual = cells.time - np.polyval(
        np.polyfit(np.log(cells.beta), cells.time, 1), np.log(cells.beta)
    )
    means = residual.reshape(9, 7).mean(axis=1)
    within = np.sum((residual.reshape(9, 7) - means[:, None]) ** 2) / (9 * 6)
    fit = cells.fit()
    assert fit.sigma == pytest.approx(math.sqrt(within), rel=1e-4)
    assert fit.sigma_seed == pytest.approx(math.sqrt(np.mean(means**2) - within / 7), rel=1e-4)


@pytest.mark.parametrize(("share", "late"), [(0.0, False), (0.3, False), (0.6, False), (0.3, True)])
def test_aic_is_that_of_the_integrated_likelihood_at_its_maximum(share, late):
    cells = sweep(share=share, root=3)
    first = cells.seed == 0
    if late:  # a seed without any event
        cells.time[first], cells.status[first] = cells.time.max(), "censored"
    fit = cells.fit()
    best = np.array([fit.intercept, fit.slope, fit.sigma, fit.sigma_seed])
    log_l = integrated_log_likelihood(cells, *best)
    assert fit.aic == pytest.approx(2 * 4 - 2 * log_l, abs=1e-3)
    for k in range(4):
        for step in (-0.03, 0.03):
            assert integrated_log_likelihood(cells, *(best + step * np.eye(4)[k])) < log_l


def test_without_a_seed_effect_the_fit_is_plain_censored_regression():
    cells = sweep(share=0.0, root=1)
    x = np.log(cells.beta)
    noise = cells.time - 3 - SLOPE * x
    time = 3 + SLOPE * x + noise - (noise.reshape(8, 7).mean(axis=1))[cells.seed]
    censored = time > 14.0
    time = np.minimum(time, 14.0)

    def loss(theta):
        r = (time - theta[0] - theta[1] * x) / np.exp(theta[2])
        return -np.sum(np.where(censored, norm.logsf(r), norm.logpdf(r) - theta[2]))

    plain = minimize(loss, [3.0, 2.0, 0.0], options={"gtol": 1e-8}, method="BFGS")
    fit = fit_law(cells.beta, time, np.where(censored, "censored", "observed"), cells.seed)
    assert fit.status == "fitted"
    assert fit.sigma_seed < 1e-2
    assert (fit.intercept, fit.slope) == pytest.approx(plain.x[:2], abs=1e-4)
    assert fit.aic == pytest.approx(2 * 4 + 2 * plain.fun, abs=1e-3)


@pytest.mark.parametrize(("seeds", "share"), [(8, 0.0), (8, 0.3), (8, 0.6), (16, 0.3), (16, 0.6)])
def test_the_interval_covers_the_slope_in_93_to_97_percent_within_binomial_error(seeds, share):
    rng = np.random.default_rng([seeds, round(10 * share)])
    fits = [simulate_sweep(rng, seeds, share).fit() for _ in range(200)]
    hits = 200 * coverage(fits)
    assert binom.ppf(1e-3, 200, 0.93) <= hits <= binom.ppf(1 - 1e-3, 200, 0.97)


def test_censored_cells_remove_the_bias_that_dropping_them_leaves():
    rng = np.random.default_rng(11)
    sweeps = [simulate_sweep(rng, 8, 0.3) for _ in range(60)]
    error = np.array([cells.fit().slope for cells in sweeps]) - SLOPE
    dropped = np.array([cells.fit(drop_censored=True).slope for cells in sweeps]) - SLOPE
    assert abs(error.mean()) < 4 * error.std() / math.sqrt(60)
    assert dropped.mean() < -0.15


def test_aic_prefers_the_law_that_made_the_times():
    cells = sweep()
    linear = 5 + 0.05 * cells.beta + cells.time - SLOPE * np.log(cells.beta)
    for time, better, worse in ((cells.time, "log", "linear"), (linear, "linear", "log")):
        fits = {
            law: fit_law(cells.beta, time, cells.status, cells.seed, law=law)
            for law in (better, worse)
        }
        assert fits[better].aic < fits[worse].aic - 10


@given(st.floats(0.1, 100), st.floats(-100, 100), st.floats(0.5, 20), st.randoms())
@settings(max_examples=15)
def test_the_fit_follows_units_of_time_and_beta_and_ignores_order_and_labels(
    unit, shift, k, random
):
    cells = sweep(share=0.3)
    order = np.array(random.sample(range(cells.beta.size), cells.beta.size))
    clean = cells.fit()
    moved = fit_law(
        k * cells.beta[order],
        shift + unit * cells.time[order],
        cells.status[order],
        99 - 3 * cells.seed[order],
    )
    for name in ("slope", "slope_low", "slope_high", "sigma", "sigma_seed"):
        assert getattr(moved, name) == pytest.approx(unit * getattr(clean, name), rel=1e-3)
    intercept = shift + unit * (clean.intercept - clean.slope * math.log(k))
    assert moved.intercept == pytest.approx(intercept, rel=1e-3, abs=1e-2 * unit)


def test_flags_and_names_of_the_statuses_give_the_same_fit():
    cells = sweep(share=0.3)
    flags = np.array([STATUSES.index(name) for name in cells.status], dtype=np.uint8)
    assert fit_law(cells.beta, cells.time, flags, cells.seed) == cells.fit()


def test_absent_and_missing_cells_are_counted_and_not_fitted():
    cells = sweep(share=0.3)
    fit = fit_law(
        np.r_[cells.beta, math.inf, 8.0],
        np.r_[cells.time, math.nan, math.nan],
        np.append(cells.status, ["absent", "missing"]),
        np.r_[cells.seed, 0, 50],
    )
    assert (numbers(fit) == numbers(cells.fit())).all()
    assert (fit.counts["absent"], fit.counts["missing"]) == (1, 1)
    assert sum(fit.counts.values()) == cells.beta.size + 2


def test_under_resolved_cells_are_fitted_as_observed_and_set_the_status():
    cells = sweep()
    marked = np.where(np.arange(cells.beta.size) < 3, "under_resolved", cells.status)
    fit = fit_law(cells.beta, cells.time, marked, cells.seed)
    assert (numbers(fit) == numbers(cells.fit())).all()
    assert fit.status == "under_resolved"
    assert "decided by finite n: 3 of them" in fit.message


def edge_case(beta, status, seeds):
    """One cell per beta and seed at 2 log beta + 0.1 sin(cell), all with the same statuses."""
    b, s = np.tile(np.asarray(beta, dtype=float), seeds), np.repeat(np.arange(seeds), len(beta))
    return fit_law(b, 2 * np.log(b) + 0.1 * np.sin(np.arange(b.size)), np.tile(status, seeds), s)


BETAS = [8, 16, 32, 64, 128]
EDGES = {
    "no cell at all": (([], [], 1), "missing", "no cell has been computed"),
    "nothing computed": ((BETAS, ["missing"] * 5, 8), "missing", "no cell has been computed"),
    "absent everywhere": ((BETAS, ["absent"] * 5, 8), "absent", "absent in all 40"),
    "all censored": ((BETAS, ["censored"] * 5, 8), "all_censored", "all 40 cells"),
    "events at one beta": (
        (BETAS, ["observed"] + ["censored"] * 4, 8),
        "few_betas",
        "No slope from 8 observed and 32 censored cells; beta with an event: 1 of 4",
    ),
    "one beta": (([8], ["under_resolved"], 8), "few_betas", "No slope"),
    "two betas": (([8, 16], ["observed"] * 2, 8), "few_betas", "2 of 4 needed"),
    "three betas with an event": (
        (BETAS, ["observed"] * 3 + ["censored"] * 2, 3),
        "few_betas",
        "3 of 4 needed; seeds: 3 of 6 needed",
    ),
    "one seed": ((BETAS, ["observed"] * 5, 1), "few_seeds", "seeds: 1 of 6"),
    "five seeds": ((BETAS, ["observed"] * 4 + ["censored"], 5), "few_seeds", "seeds: 5 of 6"),
    "two cells": (([8, 16], ["observed"] * 2, 1), "few_betas", "2 of 4 needed; seeds: 1 of 6"),
    "finite n before few seeds": (
        (BETAS, ["observed"] * 4 + ["under_resolved"], 5),
        "under_resolved",
        "finite n: 5 of them; seeds: 5 of 6",
    ),
    "enough": ((BETAS, ["observed"] * 4 + ["censored"], 6), "fitted", "24 observed and 6 censored"),
}


@pytest.mark.parametrize("case", EDGES)
def test_every_edge_case_has_a_status_and_one_sentence(case):
    arguments, status, words = EDGES[case]
    fit = edge_case(*arguments)
    assert fit.status == status
    assert words in fit.message
    assert fit.message.count(".") == 1
    known = np.isfinite(numbers(fit))
    assert known.any() == (not fit.message.startswith("No slope"))
    assert known.all() == (known.any() and arguments[2] > 1)


def test_the_first_status_is_the_fill_value():
    assert LAW_STATUSES[0] == "missing"


@pytest.mark.parametrize("sine", [0.0, 1e-14])
def test_cells_on_one_line_give_the_line_with_an_interval_of_no_width(sine):
    beta, seed = np.tile(BETAS, 6).astype(float), np.repeat(np.arange(6), 5)
    value = 1 + 2 * np.log(beta) + sine * np.sin(np.arange(30))
    status = np.where(beta == 128, "censored", "observed")
    fit = fit_law(beta, value, status, seed)
    assert (fit.slope, fit.slope_low, fit.slope_high) == pytest.approx((2, 2, 2), abs=1e-6)
    assert fit.sigma < 1e-6


@pytest.mark.parametrize("time", [0.0, 0.1])
def test_equal_times_give_a_slope_of_zero(time):
    fit = fit_law(
        np.tile(BETAS, 6), np.full(30, time), ["observed"] * 30, np.repeat(np.arange(6), 5)
    )
    assert (fit.status, fit.slope) == ("fitted", pytest.approx(0.0, abs=1e-12))


def test_one_event_a_seed_gives_least_squares_without_a_seed_effect():
    beta, value = np.geomspace(8, 256, 6), np.array([3.0, 6.1, 5.4, 7.0, 9.3, 8.8])
    fit = fit_law(beta, value, ["observed"] * 6, np.arange(6))
    assert (fit.status, fit.sigma_seed) == ("fitted", 0.0)
    assert (fit.slope, fit.intercept) == pytest.approx(np.polyfit(np.log(beta), value, 1), rel=1e-5)


def test_a_likelihood_without_an_isolated_maximum_gives_no_number():
    value = [7.9, 8.0, 5.5, 7.0, 8.9]  # a line through seed 0, a free effect for each other seed
    fit = fit_law([8, 16, 8, 8, 8], value, ["observed"] * 5, [0, 0, 1, 2, 3])
    assert (fit.status, fit.message.count(".")) == ("unconverged", 1)
    assert np.isnan(numbers(fit)).all()


CELLS = st.lists(
    st.tuples(
        st.sampled_from([1.0, 8.0, 16.0, 32.0, 64.0, 1e4]),
        st.one_of(st.sampled_from([0.0, 1.0, 5.0]), st.floats(-100, 100)),
        st.sampled_from(STATUSES),
        st.integers(0, 4),
    ),
    max_size=25,
)


@given(CELLS, st.sampled_from(["log", "linear"]))
@settings(max_examples=100)
def test_any_cells_give_a_status_and_never_a_bare_number(cells, law):
    beta, value, status, seed = zip(*cells, strict=True) if cells else ([], [], [], [])
    fit = fit_law(beta, value, status, seed, law=law)
    assert isinstance(fit, LawFit)
    assert fit.status in LAW_STATUSES
    if fit.status in ("missing", "absent", "all_censored", "unconverged"):
        assert np.isnan(numbers(fit)).all()
    elif not np.isnan(fit.slope):
        assert np.isfinite([fit.intercept, fit.aic, fit.sigma, fit.sigma_seed]).all()
        assert np.isnan(fit.slope_low) or fit.slope_low <= fit.slope <= fit.slope_high


REFUSED = {
    "beta[0] = inf: must be > 0 and finite; leave that cell out": {"beta": [math.inf, 16.0]},
    "beta[1] = nan: must be > 0": {"beta": [8.0, math.nan]},
    "beta[1] = -3.0: must be > 0": {"beta": [8.0, -3.0]},
    "value[1] = nan: must be finite; mark that cell missing": {"value": [1.0, math.nan]},
    "value[0] = inf: must be finite": {"value": [math.inf, 2.0]},
    "status = ['seen']: must be one of missing, observed": {"status": ["observed", "seen"]},
    "status = [5]: must be one of": {"status": [1, 5]},
    "seed has shape (3,), status (2,): needs (cells,)": {"seed": [0, 1, 2]},
    "law = 'cubic': must be one of log, linear": {"law": "cubic"},
}


@pytest.mark.parametrize("line", REFUSED)
def test_bad_cells_are_refused_in_one_line_that_names_them(line):
    cells = {
        "beta": [8.0, 16.0],
        "value": [1.0, 2.0],
        "status": ["observed", "censored"],
        "seed": [0, 0],
    }
    with pytest.raises(InputError) as refusal:
        fit_law(**{**cells, **REFUSED[line]})
    assert line in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("arguments", [(0.0, 0.5), (2.0, -1.0), (math.nan, 0.5), (2.0, math.inf)])
def test_predicted_slope_refuses_what_is_not_positive(arguments):
    with pytest.raises(InputError, match="must be finite and > 0"):
        predicted_slope(*arguments)
