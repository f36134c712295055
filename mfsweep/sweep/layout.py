"""What the stores hold: dims, dtype, unit and meaning of every stored variable."""

import math
from dataclasses import dataclass

import numpy as np

from mfsweep._types import LAW_STATUSES, STATUSES

CELL_STATUSES = ("missing", "done", "failed")
"""Flag values of `status` in trajectories.zarr; the fill value 0 reads as missing."""
MISSING, DONE, FAILED = range(3)
STALE = len(CELL_STATUSES)
"""A cell that is done by another numerics version: found on reading, never stored."""
STATE_NAMES = (*CELL_STATUSES, "stale")

STAT_NAMES = (
    "steps",
    "rejected",
    "drift_evaluations",
    "pairs_computed",
    "pairs_skipped",
    "seconds",
)
"""Counts of one simulation, in the order that `run_cell` returns them."""
CELL_STATS = (*STAT_NAMES, "numerics_version")
"""Entries of `stats`: the counts, and the version that made the cell's numbers."""
CURVES = {
    "w2_metastable": "exact Wasserstein-2 distance to the metastable target",
    "w2_coupling": "coupling distance to the metastable target, an upper bound of W2",
    "distance_dominant": "rms chordal distance to E, the dominant eigenspace of A = V B^T",
    "distance_terminal": "rms chordal distance to V's eigenspace of largest real part",
    "distance_terminal_modulus": "rms chordal distance to V's eigenspace of largest modulus",
    "w2_stability": "coupling distance to the zero-temperature flow of the same initial tokens",
    "w2_zero_temperature": "exact W2 from the zero-temperature flow to the metastable target",
    "log_energy": "log of the interaction energy (only where V = B = I, else NaN)",
    "ess_median": "median over tokens of the effective number of tokens attended to",
    "ess_min": "least effective number of tokens attended to",
}
COARSE = {
    f"{name}_coarse": f"{CURVES[name]}, from a mesh twice as wide"
    for name in ("w2_metastable", "distance_dominant", "distance_terminal")
}
"""Curves of the continuum at half the resolution: how far switch times move with the mesh."""
CELL_DIMS = ("beta", "seed")
SHARD_DIMS = ("family", "d", "gap", "n_tokens")


@dataclass(frozen=True)
class Variable:
    """One stored array: its dims, dtype, fill value, meaning, unit and flags."""

    dims: tuple[str, ...]
    dtype: str
    long_name: str
    units: str = "1"
    flags: tuple[str, ...] = ()
    fill: float = np.nan

    def attrs(self) -> dict[str, object]:
        """Return the CF attributes of the stored array."""
        attrs: dict[str, object] = {"long_name": self.long_name, "units": self.units}
        if self.flags:
            attrs["flag_values"] = list(range(len(self.flags)))
            attrs["flag_meanings"] = " ".join(self.flags)
        return attrs


def _flags(dims: tuple[str, ...], long_name: str, flags: tuple[str, ...]) -> Variable:
    return Variable(dims, "uint8", long_name, flags=flags, fill=0)


COORDINATES = {
    "family": Variable(("family",), "str", "label of the weight family in the config"),
    "d": Variable(("d",), "int64", "dimension of the token space", fill=0),
    "gap": Variable(("gap",), "float64", "spectral gap mu_1 - mu_2 of A"),
    "n_tokens": Variable(("n_tokens",), "float64", "number of tokens (inf: the continuum)"),
    "beta": Variable(("beta",), "float64", "inverse temperature"),
    "log_beta": Variable(("beta",), "float64", "natural logarithm of the inverse temperature"),
    "seed": Variable(("seed",), "int64", "seed of the initial tokens", fill=-1),
    "time": Variable(("time",), "float64", "time (depth of the network)"),
    "stat": Variable(("stat",), "str", "name of the count"),
    "theta": Variable(("theta",), "float64", "angle at the middle of a bin of the circle", "rad"),
    "estimator": Variable(("estimator",), "str", "switch-time estimator"),
    "law": Variable(("law",), "str", "log: t = a + b log beta; linear: t = a + b beta"),
    "cell_status": Variable(("cell_status",), "str", "status of a switch time"),
}


def curves(*dims: str) -> dict[str, Variable]:
    """Return every curve as a variable over the given dims and time."""
    return {name: Variable((*dims, "time"), "float64", text) for name, text in CURVES.items()}


def shard_curves(n_tokens: float) -> dict[str, Variable]:
    """Return the curves of a shard's curves.zarr: those of the continuum at two resolutions."""
    series = (*CELL_DIMS, "time")
    coarse = {name: Variable(series, "float64", text) for name, text in COARSE.items()}
    return curves(*CELL_DIMS) | (coarse if math.isinf(n_tokens) else {})


_SERIES = (*CELL_DIMS, "time")
TRAJECTORIES = {
    "tokens": Variable((*_SERIES, "token", "component"), "float64", "tokens, unit vectors"),
    "ess_median": Variable(_SERIES, "float64", CURVES["ess_median"]),
    "ess_min": Variable(_SERIES, "float64", CURVES["ess_min"]),
    "stats": Variable((*CELL_DIMS, "stat"), "float64", "counts of the integration"),
    "mass": Variable(("seed", "token"), "float64", "masses of the tokens, sum 1"),
    "status": _flags(CELL_DIMS, "state of the cell, written last", CELL_STATUSES),
}
_DENSITY = Variable(
    (*_SERIES, "theta"), "float64", "density of the angle, mean over a bin", "rad-1"
)


def trajectories(n_tokens: float) -> dict[str, Variable]:
    """Return what trajectories.zarr holds: tokens, or the continuum's density and its curves.

    The continuum is measured as it runs, from the masses of its mesh, which the density on a fixed
    grid does not tell.
    """
    if not math.isinf(n_tokens):
        return TRAJECTORIES
    kept = {name: TRAJECTORIES[name] for name in ("stats", "status")}
    return {"density": _DENSITY, **shard_curves(n_tokens), **kept}


_SWITCH = ("estimator", *SHARD_DIMS, *CELL_DIMS)
SWITCH_TIMES = {
    "switch_time": Variable(_SWITCH, "float64", "switch time; a lower bound where censored"),
    "switch_time_low": Variable(_SWITCH, "float64", "least switch time that the curve allows"),
    "switch_time_high": Variable(_SWITCH, "float64", "largest switch time that the curve allows"),
    "status": _flags(_SWITCH, "status of the switch time", STATUSES),
}

_LAW = ("estimator", "law", *SHARD_DIMS)
_FIT = {
    "slope": "slope b of the law, per unit of log beta or of beta",
    "slope_low": "lower end of the slope's 95 % interval",
    "slope_high": "upper end of the slope's 95 % interval",
    "intercept": "intercept a of the law",
    "aic": "Akaike information criterion",
    "evidence": "share of the evidence (Akaike weight) among the laws of the same cells",
}
LAW_NUMBERS = tuple(_FIT)
"""What is kept of a fit to all cells, and of one to the resolved beta."""
RESOLVED = "resolved_"
"""Prefix of a fit to the beta at which no cell is under-resolved."""
LAWS = {
    **{name: Variable(_LAW, "float64", text) for name, text in _FIT.items()},
    "slope_without_one_low": Variable(_LAW, "float64", "least slope on leaving out one beta"),
    "slope_without_one_high": Variable(_LAW, "float64", "largest slope on leaving out one beta"),
    "predicted_slope": Variable(
        _LAW,
        "float64",
        "predicted slope: |B^T e| / (2 gap) for the turnaround against log beta, "
        "max Delta |B^T e_perp| / gap for the crossover against beta where d = 2 and Delta > 0",
    ),
    "counts": Variable((*_LAW, "cell_status"), "int64", "cells by status", fill=0),
    "status": _flags(_LAW, "status of the fit", LAW_STATUSES),
    **{
        RESOLVED + name: Variable(_LAW, "float64", f"{text}; beta without under-resolved cells")
        for name, text in _FIT.items()
    },
    RESOLVED + "betas": Variable(_LAW, "int64", "finite beta without under-resolved cells", fill=0),
    RESOLVED + "status": _flags(_LAW, "status of the fit to the resolved beta", LAW_STATUSES),
    "misalignment": Variable(
        SHARD_DIMS, "float64", "|B^T e| - <e, B e>: 0 where the crossover can follow log beta"
    ),
}


def _rate(dims: tuple[str, ...], name: str, meaning: str) -> dict[str, Variable]:
    """Describe a rate and its 95 % interval over the seeds."""
    ends = {"": "", "_low": ", lower end of its 95 % interval", "_high": ", upper end"}
    return {name + end: Variable(dims, "float64", meaning + text) for end, text in ends.items()}


BOUND = {
    **_rate(SHARD_DIMS, "decay_rate", "decay rate of w2_zero_temperature"),
    "predicted_decay_rate": Variable(SHARD_DIMS, "float64", "predicted decay rate"),
    **_rate((*SHARD_DIMS, "beta"), "growth_rate", "growth rate of w2_stability as it saturates"),
    **_rate((*SHARD_DIMS, "time"), "beta_power", "power p of w2_stability ~ beta^p at fixed time"),
}
"""Theorem 1's two terms, seen apart."""
