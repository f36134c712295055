"""Weights of evidence and laws without one beta, against their definitions."""

import math

import numpy as np
import pytest
from benchmarks.law_coverage import simulate_sweep

from mfsweep.analysis.evidence import slopes_without_one_beta, weights_of_evidence
from mfsweep.analysis.laws import fit_law


def test_evidence_is_the_likelihood_ratio_of_laws_with_as_many_parameters():
    weights = weights_of_evidence({"log": 100.0, "linear": 100.0 + 2 * math.log(3)})
    assert weights == pytest.approx({"log": 0.75, "linear": 0.25})
    far = weights_of_evidence({"log": -5e4, "linear": 5e4})
    assert far == {"log": 1.0, "linear": 0.0}


def test_without_an_aic_there_is_no_evidence():
    assert np.isnan(list(weights_of_evidence({"log": 1.0, "linear": math.nan}).values())).all()


def test_one_beta_that_bends_the_law_shows_as_the_range_of_slopes():
    cells = simulate_sweep(np.random.default_rng(0), 8, 0.3)
    last = cells.beta == cells.beta.max()
    columns = (cells.beta, np.where(last, cells.time + 5, cells.time), cells.status, cells.seed)
    low, high = slopes_without_one_beta(*columns)
    assert low == fit_law(*(column[~last] for column in columns)).slope
    assert low < fit_law(*columns).slope < high


@pytest.mark.parametrize("betas", [0, 1, 2])
def test_a_law_that_one_beta_carries_has_no_slope_without_it(betas):
    beta = np.geomspace(8, 16, betas)
    found = slopes_without_one_beta(beta, np.log(beta), ["observed"] * betas, [0] * betas)
    assert np.isnan(found).all()
