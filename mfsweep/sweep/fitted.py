"""Fit both laws to the switch times of one estimator in one shard, as laws.zarr holds them."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mfsweep._types import LAW_STATUSES, LAWS, STATUSES, Array, Law
from mfsweep.analysis.evidence import slopes_without_one_beta, weights_of_evidence
from mfsweep.analysis.laws import LawFit, fit_law
from mfsweep.sweep.layout import LAW_NUMBERS, RESOLVED

Cells = tuple[Array, Array, NDArray[np.uint8], NDArray[np.int64]]
"""beta, switch time, status flag and seed of every cell, each of shape (cells,)."""


def fitted_laws(cells: Cells) -> dict[str, list[Any]]:
    """Fit every law to all cells and to the beta at which no cell is under-resolved.

    Dropping just the cells that are under-resolved would select by the event itself: at one beta
    the late ones are flagged first.

    Parameters
    ----------
    cells
        Finite beta only.

    Returns
    -------
    dict of str to list
        Entries of laws.zarr that depend on the cells alone, one for each of LAWS.
    """
    beta, _, status, _ = cells
    flagged = np.unique(beta[status == STATUSES.index("under_resolved")])
    resolved = ~np.isin(beta, flagged)
    fits = _fits(cells)
    kept = _fits(_where(cells, resolved)) if flagged.size else fits
    without = [slopes_without_one_beta(*cells, law=law) for law in LAWS]
    return {
        **_numbers(fits),
        "slope_without_one_low": [low for low, _ in without],
        "slope_without_one_high": [high for _, high in without],
        "counts": [[fit.counts[name] for name in STATUSES] for fit in fits.values()],
        **{RESOLVED + name: values for name, values in _numbers(kept).items()},
        RESOLVED + "betas": [np.unique(beta[resolved]).size] * len(LAWS),
    }


def _where(cells: Cells, chosen: NDArray[np.bool_]) -> Cells:
    beta, value, status, seed = cells
    return beta[chosen], value[chosen], status[chosen], seed[chosen]


def _fits(cells: Cells) -> Mapping[Law, LawFit]:
    return {law: fit_law(*cells, law=law) for law in LAWS}


def _numbers(fits: Mapping[Law, LawFit]) -> dict[str, list[Any]]:
    """Return LAW_NUMBERS and the status of every law."""
    evidence = weights_of_evidence({law: fit.aic for law, fit in fits.items()})
    found: Iterable[str] = (name for name in LAW_NUMBERS if name != "evidence")
    return {
        **{name: [getattr(fit, name) for fit in fits.values()] for name in found},
        "evidence": list(evidence.values()),
        "status": [LAW_STATUSES.index(fit.status) for fit in fits.values()],
    }
