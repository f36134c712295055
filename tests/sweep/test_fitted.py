"""Laws of one estimator's cells as the store holds them, against single fits."""

import numpy as np
from benchmarks.law_coverage import simulate_sweep

from mfsweep._types import LAW_STATUSES, LAWS, STATUSES
from mfsweep.analysis.laws import fit_law
from mfsweep.sweep.fitted import fitted_laws
from mfsweep.sweep.layout import LAW_NUMBERS


def columns(share=0.0):
    cells = simulate_sweep(np.random.default_rng(5), 8, share)
    status = np.array([STATUSES.index(name) for name in cells.status], dtype=np.uint8)
    return cells.beta, cells.time, status, cells.seed


def test_without_a_flag_both_fits_are_the_same():
    found = fitted_laws(columns(0.3))
    for name in (*LAW_NUMBERS, "status"):
        assert found[name] == found["resolved_" + name]
    assert found["resolved_betas"] == [7, 7]
    for k, law in enumerate(LAWS):
        assert found["slope"][k] == fit_law(*columns(0.3), law=law).slope


def test_a_beta_with_one_flagged_cell_leaves_the_resolved_fit_as_a_whole():
    beta, time, status, seed = columns()
    status[(beta == beta.max()) & (seed == 3)] = STATUSES.index("under_resolved")
    found = fitted_laws((beta, time, status, seed))
    kept = beta < beta.max()
    for k, law in enumerate(LAWS):
        alone = fit_law(beta[kept], time[kept], status[kept], seed[kept], law=law)
        assert found["resolved_slope"][k] == alone.slope != found["slope"][k]
    assert found["resolved_betas"] == [6, 6]
    assert [LAW_STATUSES[k] for k in found["status"]] == ["under_resolved"] * 2
    assert [LAW_STATUSES[k] for k in found["resolved_status"]] == ["fitted"] * 2


def test_flagged_cells_can_turn_the_verdict():
    beta, time, status, seed = columns()
    noise = 0.1 * (time - 3 - 2 * np.log(beta))
    late = beta > 70
    time = noise + np.where(late, 15 + 2 * np.log(beta / 70), 5 + beta / 7)
    status[late] = STATUSES.index("under_resolved")
    found = fitted_laws((beta, time, status, seed))
    assert found["evidence"][LAWS.index("log")] > 0.99
    assert found["resolved_evidence"][LAWS.index("linear")] > 0.99


def test_nothing_resolved_leaves_no_number():
    beta, time, status, seed = columns()
    status[:] = STATUSES.index("under_resolved")
    found = fitted_laws((beta, time, status, seed))
    assert np.isnan(found["resolved_slope"]).all()
    assert np.isfinite(found["slope"]).all()
    assert [LAW_STATUSES[k] for k in found["resolved_status"]] == ["missing"] * 2
