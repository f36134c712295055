"""Array aliases and the closed sets of names that every layer shares."""

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
"""Float64 array of any shape."""
Tokens = NDArray[np.float64]
"""Unit vectors, shape (n, d)."""
Masses = NDArray[np.float64]
"""Positive masses that sum to 1, shape (n,)."""
Times = NDArray[np.float64]
"""Increasing dimensionless times, shape (time,)."""
Indices = NDArray[np.int64]
"""Places in an array, any shape."""
Basis = NDArray[np.float64]
"""Orthonormal columns that span an eigenspace, shape (d, m)."""

Metric = Literal["chordal", "geodesic"]
Estimator = Literal["entry", "turnaround", "exit", "crossover"]
Law = Literal["log", "linear"]
Status = Literal["missing", "observed", "censored", "absent", "under_resolved"]

ESTIMATORS: tuple[Estimator, ...] = ("entry", "turnaround", "exit", "crossover")
LAWS: tuple[Law, ...] = ("log", "linear")
STATUSES: tuple[Status, ...] = ("missing", "observed", "censored", "absent", "under_resolved")
"""Position in this tuple is the stored flag value: 0, the fill value, reads as missing."""
LawStatus = Literal[
    "missing",
    "fitted",
    "under_resolved",
    "few_betas",
    "few_seeds",
    "all_censored",
    "absent",
    "unconverged",
]

LAW_STATUSES: tuple[LawStatus, ...] = get_args(LawStatus)
"""Position in this tuple is the stored flag value: 0, the fill value, reads as missing."""
