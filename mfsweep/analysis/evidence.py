"""How far the cells tell one law from the other: weights of evidence, and laws without one beta."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from mfsweep._types import Law
from mfsweep.analysis.laws import fit_law


def weights_of_evidence(aic: Mapping[Law, float]) -> dict[Law, float]:
    """Compute the Akaike weights of laws fitted to the same cells.

        w_k = exp(-AIC_k / 2) / sum_j exp(-AIC_j / 2)

    Parameters
    ----------
    aic : mapping of law to float
        `LawFit.aic` of each law; NaN where it has no slope.

    Returns
    -------
    dict of law to float
        Share of the evidence in [0, 1], sum 1; all NaN if one law has no AIC.

    Notes
    -----
    It weighs these laws against each other and says nothing of a third. Source: Burnham and
    Anderson, Model Selection and Multimodel Inference (2002), section 2.9.

    Examples
    --------
    >>> weights_of_evidence({"log": 10.0, "linear": 10.0})
    {'log': 0.5, 'linear': 0.5}
    """
    values = np.array(list(aic.values()))
    likelihood = np.exp(-0.5 * (values - values.min()))
    return dict(zip(aic, (likelihood / likelihood.sum()).tolist(), strict=True))


def slopes_without_one_beta(
    beta: ArrayLike, value: ArrayLike, status: ArrayLike, seed: ArrayLike, *, law: Law = "log"
) -> tuple[float, float]:
    """Fit a law as often as there are beta, each time without the cells of one of them.

    The parameters are those of `fit_law`.

    Returns
    -------
    tuple of float
        Least and largest slope; NaN if one of the fits has none: a single beta carries the law.

    Examples
    --------
    >>> beta, seed = np.tile([8.0, 16.0, 32.0, 64.0], 8), np.repeat(np.arange(8), 4)
    >>> time = 2.0 * np.log(beta) + 0.1 * seed + (beta == 64.0)
    >>> low, high = slopes_without_one_beta(beta, time, ["observed"] * 32, seed)
    >>> round(low, 2), round(high, 2)
    (2.0, 2.72)
    """
    columns = [np.asarray(column) for column in (beta, value, status, seed)]
    kept = [columns[0] != left_out for left_out in np.unique(columns[0])]
    fits = [fit_law(*(column[cells] for column in columns), law=law) for cells in kept]
    slopes = [fit.slope for fit in fits] or [np.nan]
    return float(np.min(slopes)), float(np.max(slopes))
