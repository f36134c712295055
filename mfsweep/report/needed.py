"""The table of the tokens needed to follow the continuum."""

from collections.abc import Sequence

import numpy as np

from mfsweep.analysis.switching import ESS_THRESHOLD
from mfsweep.plotting.continuum import COMPARED, comparisons
from mfsweep.plotting.panels import Panel
from mfsweep.report.tables import Table
from mfsweep.report.words import number


def continuum_table(panels: Sequence[Panel]) -> Table:
    """Tabulate the continuum's crossover and turnaround, and the tokens that reproduce them."""
    rows = []
    for one in comparisons(panels):
        shard, most = one.continuum.shard, one.particles[-1]
        place = (shard.family, str(shard.d), number(shard.gap))
        norm = one.continuum.weights.assumptions().norm_BTe
        for estimator in COMPARED:
            value, bars = one.times(one.continuum, estimator), one.bars(estimator)
            with np.errstate(invalid="ignore"):  # inf / inf: neither has the event
                off = one.times(most, estimator) / value - 1
            needed = one.needed(estimator)
            for k in np.flatnonzero(np.isfinite(value)):
                rows.append(
                    (
                        *place,
                        estimator,
                        number(one.betas[k]),
                        number(value[k], 5),
                        number(float(bars[:, k].max()), 2),
                        number(needed[k], 8) if np.isfinite(needed[k]) else "more than all",
                        number(round(tokens_at_the_start(float(one.betas[k]), norm)), 8),
                        number(100 * float(off[k]), 2),
                    )
                )
    heads = ("estimator", "beta", "continuum", "its error", "tokens for 1 %", "by ess at the start")
    return Table(
        "continuum",
        "Switch times of the continuum, and the least number of tokens from which on particles "
        "(medians over the seeds) lie within 1 % of it. By ess at the start: the tokens with which "
        f"one of them attends to {ESS_THRESHOLD:g} others at time 0; later the tail thins out.",
        ("family", "d", "gap", *heads, "largest n off by (%)"),
        tuple(rows),
    )


def tokens_at_the_start(beta: float, norm: float) -> float:
    """Return n with n w = `ESS_THRESHOLD`, w the uniform mass of a cap of radius (beta q)^{-1/2}.

    On the circle w = (beta q)^{-1/2} / pi, with q = |B^T e|.

    >>> round(tokens_at_the_start(100.0, 1.0))
    785
    """
    return float(ESS_THRESHOLD * np.pi * np.sqrt(beta * norm))
