"""What is estimated from the joined curves: switch times, their laws, the terms of the bound."""

from collections.abc import Mapping

import numpy as np

from mfsweep._types import ESTIMATORS, LAW_STATUSES, LAWS, STATUSES, Array
from mfsweep.analysis.bound import (
    Rate,
    decay_rate,
    growth_rate,
    power_of_beta,
    predicted_decay_rate,
)
from mfsweep.analysis.certification import certified
from mfsweep.analysis.laws import predicted_slope
from mfsweep.analysis.prediction import predicted_crossover_slope
from mfsweep.analysis.switching import switch_times
from mfsweep.analysis.targets import separation
from mfsweep.sweep import layout
from mfsweep.sweep.cell import weights_of
from mfsweep.sweep.config import Config
from mfsweep.sweep.coordinates import Axes
from mfsweep.sweep.fitted import Cells, fitted_laws
from mfsweep.sweep.grid import Shard, times
from mfsweep.sweep.layout import CELL_DIMS, RESOLVED, SHARD_DIMS


def estimated_switches(
    config: Config,
    asked: tuple[Shard, ...],
    axes: Axes,
    curves: Mapping[str, Array],
    coarse: Mapping[str, Mapping[str, Array]],
) -> dict[str, Array]:
    """Estimate the switch times of every cell; entries of switch_times.zarr.

    `coarse` holds the continuum's curves at half the resolution by shard, each (beta, seed, time).
    """
    shape = (len(ESTIMATORS), *axes.shape(*SHARD_DIMS, *CELL_DIMS))
    names = ("switch_time", "switch_time_low", "switch_time_high")
    found = {name: np.full(shape, np.nan) for name in names}
    status = np.zeros(shape, dtype=np.uint8)
    grid = times(config.time)
    for shard in asked:
        weights = weights_of(config, shard)
        if not weights.has_target:
            computed = np.isfinite(curves["distance_terminal"][..., 0])
            mask = np.zeros_like(computed)
            mask[axes.place(shard)][axes.cells(shard)] = True
            status[:, computed & mask] = STATUSES.index("absent")
            continue
        distance = separation(weights)
        place = axes.place(shard)
        rows, columns = axes.cells(shard)
        for at in np.ndindex(len(shard.betas), len(shard.seeds)):
            cell = (*place, int(rows[at[0], 0]), int(columns[0, at[1]]))
            settings = {"separation": distance, "ess_threshold": _threshold(config, axes, cell)}
            series = {name: curve[cell] for name, curve in curves.items()}
            events = switch_times(grid, series, **settings)
            if others := coarse.get(shard.id):
                series |= {name: curve[at] for name, curve in others.items()}
                again = switch_times(grid, series, **settings)
                events = {name: certified(events[name], again[name]) for name in ESTIMATORS}
            for k, estimator in enumerate(ESTIMATORS):
                event = events[estimator]
                for name, value in zip(names, (event.value, event.low, event.high), strict=True):
                    found[name][k, *cell] = value
                status[k, *cell] = STATUSES.index(event.status)
    return {**found, "status": status}


def _threshold(config: Config, axes: Axes, cell: tuple[int, ...]) -> float:
    """Return the ess threshold; 0 at beta = inf, where every token moves on its own."""
    return 0.0 if np.isinf(axes.values["beta"][cell[-2]]) else config.laws.ess_threshold


def estimated_laws(
    config: Config, asked: tuple[Shard, ...], axes: Axes, switches: Mapping[str, Array]
) -> dict[str, Array]:
    """Fit both laws to every estimator of every shard; entries of laws.zarr.

    beta = inf takes no part.
    """
    laws = _empty(config, axes, layout.LAWS)
    for shard in asked:
        place, weights = axes.place(shard), weights_of(config, shard).assumptions()
        laws["misalignment"][place] = weights.misalignment
        for k, estimator in enumerate(ESTIMATORS):
            for name, values in fitted_laws(_finite_cells(shard, axes, switches, k)).items():
                for m, value in enumerate(values):
                    laws[name][k, m, *place] = value
            if estimator == "turnaround" and not weights.violated:
                slope = predicted_slope(weights.norm_BTe, weights.gap)
                laws["predicted_slope"][k, LAWS.index("log"), *place] = slope
            if estimator == "crossover":
                slope = predicted_crossover_slope(weights_of(config, shard))
                laws["predicted_slope"][k, LAWS.index("linear"), *place] = slope
        if shard.continuum:
            _without_seeds(laws, place)
    return laws


def _without_seeds(laws: dict[str, Array], place: tuple[int, ...]) -> None:
    """Drop the reservation about few seeds from the continuum, which has nothing to draw."""
    few, fitted = LAW_STATUSES.index("few_seeds"), LAW_STATUSES.index("fitted")
    for name in ("status", RESOLVED + "status"):
        for law in np.ndindex(len(ESTIMATORS), len(LAWS)):
            if laws[name][*law, *place] == few:
                laws[name][*law, *place] = fitted


def _finite_cells(shard: Shard, axes: Axes, switches: Mapping[str, Array], estimator: int) -> Cells:
    """Return one estimator's cells of a shard, beta = inf left out."""
    at, (rows, columns) = (estimator, *axes.place(shard)), axes.cells(shard)
    value, status = (switches[name][at][rows, columns] for name in ("switch_time", "status"))
    beta, seed = np.meshgrid(shard.betas, shard.seeds, indexing="ij")
    finite = np.isfinite(beta)
    return beta[finite], value[finite], status[finite], seed[finite]


def estimated_bound(
    config: Config, asked: tuple[Shard, ...], axes: Axes, curves: Mapping[str, Array]
) -> dict[str, Array]:
    """Measure the two terms of Theorem 1 in every shard; entries of bound.zarr.

    beta = inf takes no part: its stability term is 0.
    """
    bound = _empty(config, axes, layout.BOUND)
    grid = times(config.time)
    for shard in asked:
        place, (rows, columns) = axes.place(shard), axes.cells(shard)
        decay, growth = (
            curves[name][place][rows, columns] for name in ("w2_zero_temperature", "w2_stability")
        )
        found = decay_rate(grid, decay[0], shard.n_tokens)
        _put(bound, "decay_rate", place, found)
        bound["predicted_decay_rate"][place] = predicted_decay_rate(weights_of(config, shard))
        finite = np.isfinite(shard.betas)
        for row, cells in zip(rows.ravel()[finite], growth[finite], strict=True):
            _put(bound, "growth_rate", (*place, row), growth_rate(grid, cells))
        beta = np.array(shard.betas)[finite]
        for k in range(grid.size):
            _put(bound, "beta_power", (*place, k), power_of_beta(beta, growth[finite][..., k]))
    return bound


def _put(found: dict[str, Array], name: str, at: tuple[int, ...], rate: Rate) -> None:
    """Put a rate and the ends of its interval in their places."""
    for end, value in zip(("", "_low", "_high"), rate, strict=True):
        found[name + end][at] = value


def _empty(
    config: Config, axes: Axes, variables: Mapping[str, layout.Variable]
) -> dict[str, Array]:
    """Return arrays of fill values for a store's variables."""
    lengths = {"estimator": len(ESTIMATORS), "law": len(LAWS), "cell_status": len(STATUSES)}
    lengths |= {dim: len(values) for dim, values in axes.values.items()}
    lengths["time"] = config.time.n_times
    return {
        name: np.full([lengths[dim] for dim in variable.dims], variable.fill, variable.dtype)
        for name, variable in variables.items()
    }
