"""Join the shards' curves and estimate switch times and laws from them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mfsweep._errors import StoreError
from mfsweep._types import ESTIMATORS, LAW_STATUSES, LAWS, STATUSES, Array
from mfsweep.analysis.laws import fit_law, predicted_slope
from mfsweep.analysis.switching import switch_times
from mfsweep.analysis.targets import separation
from mfsweep.sweep import layout
from mfsweep.sweep.cell import weights_of
from mfsweep.sweep.config import Config
from mfsweep.sweep.folder import provenance, shard_folder, write_done
from mfsweep.sweep.grid import Shard, collect_digest, shards, simulate_digest, times
from mfsweep.sweep.layout import CELL_DIMS, CURVES, SHARD_DIMS
from mfsweep.sweep.store import read_whole, write_whole


@dataclass(frozen=True)
class Axes:
    """Coordinate values of a run's results, and where each shard lies along them."""

    values: dict[str, list[Any]]

    @classmethod
    def of(cls, asked: tuple[Shard, ...]) -> "Axes":
        """Take the union of the shards' coordinates, families in the config's order."""
        values: dict[str, list[Any]] = {
            "family": list(dict.fromkeys(shard.family for shard in asked)),
            "beta": sorted({beta for shard in asked for beta in shard.betas}),
            "seed": sorted({seed for shard in asked for seed in shard.seeds}),
        }
        for name in ("d", "gap", "n_tokens"):
            values[name] = sorted({getattr(shard, name) for shard in asked})
        return cls(values)

    def shape(self, *dims: str) -> tuple[int, ...]:
        """Return the lengths along the given dims."""
        return tuple(len(self.values[dim]) for dim in dims)

    def place(self, shard: Shard) -> tuple[int, ...]:
        """Return the shard's indices along SHARD_DIMS."""
        return tuple(self.values[dim].index(getattr(shard, dim)) for dim in SHARD_DIMS)

    def cells(self, shard: Shard) -> tuple[NDArray[np.intp], ...]:
        """Return open index arrays of the shard's betas and seeds."""
        betas = [self.values["beta"].index(beta) for beta in shard.betas]
        seeds = [self.values["seed"].index(seed) for seed in shard.seeds]
        return np.ix_(betas, seeds)

    def coordinates(self, *dims: str) -> dict[str, Any]:
        """Return the coordinates of the given dims, log_beta beside beta."""
        found = {dim: self.values[dim] for dim in dims}
        if "beta" in found:
            found["log_beta"] = np.log(np.array(found["beta"]))
        return found


def collect(config: Config, run_folder: Path) -> list[int]:
    """Write the run's curves.zarr, switch_times.zarr and laws.zarr from its shards.

    Cells that no shard holds are `missing`.

    Parameters
    ----------
    config
        What the results shall show.
    run_folder
        Folder of the run, results/{run}.

    Returns
    -------
    list of int
        Numerics versions of the cells behind the results: several where stale cells were kept.

    Raises
    ------
    StoreError
        If no shard has been measured.
    """
    asked = shards(config)
    axes = Axes.of(asked)
    curves, versions = _joined(config, run_folder, asked, axes)
    switches = _switches(config, asked, axes, curves)
    laws = _laws(config, asked, axes, switches)
    made_by = {"digest": collect_digest(config), "numerics_versions": versions}
    attrs = {**provenance(config), **made_by}
    cell_axes = (*SHARD_DIMS, *CELL_DIMS)
    coordinates = axes.coordinates(*cell_axes)
    grid = {**coordinates, "time": times(config.time)}
    write_whole(
        run_folder / "curves.zarr", curves, layout.curves(*cell_axes), grid, attrs, SHARD_DIMS
    )
    write_whole(
        run_folder / "switch_times.zarr",
        switches,
        layout.SWITCH_TIMES,
        {"estimator": ESTIMATORS, **coordinates},
        {**attrs, "ess_threshold": config.laws.ess_threshold},
    )
    write_whole(
        run_folder / "laws.zarr",
        laws,
        layout.LAWS,
        {
            "estimator": ESTIMATORS,
            "law": LAWS,
            **axes.coordinates(*SHARD_DIMS),
            "cell_status": STATUSES,
        },
        attrs,
    )
    write_done(run_folder / "collect.done", config, collect_digest(config))
    return versions


def _joined(
    config: Config, run_folder: Path, asked: tuple[Shard, ...], axes: Axes
) -> tuple[dict[str, Array], list[int]]:
    """Put every shard's curves in its place, NaN where there are none; list numerics versions."""
    shape = (*axes.shape(*SHARD_DIMS, *CELL_DIMS), config.time.n_times)
    curves = {name: np.full(shape, np.nan) for name in CURVES}
    versions: set[int] = set()
    for shard in asked:
        store = read_whole(shard_folder(run_folder, shard) / "curves.zarr")
        if store is None or store[1]["digest"] != simulate_digest(config, shard):
            continue
        versions |= set(store[1]["numerics_versions"])
        for name, curve in curves.items():
            curve[axes.place(shard)][axes.cells(shard)] = store[0][name]
    if not versions:
        message = f"{run_folder}: no shard is measured for this config; run mfsweep measure first"
        raise StoreError(message)
    return curves, sorted(versions)


def _switches(
    config: Config, asked: tuple[Shard, ...], axes: Axes, curves: Mapping[str, Array]
) -> dict[str, Array]:
    """Estimate the switch times of every cell."""
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
        for cell in ((*place, int(i), int(j)) for i in rows.ravel() for j in columns.ravel()):
            series = {name: curve[cell] for name, curve in curves.items()}
            events = switch_times(
                grid, series, separation=distance, ess_threshold=_threshold(config, axes, cell)
            )
            for k, estimator in enumerate(ESTIMATORS):
                event = events[estimator]
                for name, value in zip(names, (event.value, event.low, event.high), strict=True):
                    found[name][k, *cell] = value
                status[k, *cell] = STATUSES.index(event.status)
    return {**found, "status": status}


def _threshold(config: Config, axes: Axes, cell: tuple[int, ...]) -> float:
    """Return the ess threshold; 0 at beta = inf, where every token moves on its own."""
    return 0.0 if np.isinf(axes.values["beta"][cell[-2]]) else config.laws.ess_threshold


def _laws(
    config: Config, asked: tuple[Shard, ...], axes: Axes, switches: Mapping[str, Array]
) -> dict[str, Array]:
    """Fit both laws to every estimator of every shard; beta = inf takes no part."""
    shape = (len(ESTIMATORS), len(LAWS), *axes.shape(*SHARD_DIMS))
    names = ("slope", "slope_low", "slope_high", "intercept", "aic")
    laws = {name: np.full(shape, np.nan) for name in (*names, "predicted_slope")}
    counts = np.zeros((*shape, len(STATUSES)), dtype=np.int64)
    status = np.zeros(shape, dtype=np.uint8)
    for shard in asked:
        weights = weights_of(config, shard).assumptions()
        rows, columns = axes.cells(shard)
        finite = np.isfinite(np.array(shard.betas))
        beta, seed = np.meshgrid(shard.betas, shard.seeds, indexing="ij")
        for k, estimator in enumerate(ESTIMATORS):
            at = (k, *axes.place(shard))
            value, state = (switches[name][at][rows, columns] for name in ("switch_time", "status"))
            for m, law in enumerate(LAWS):
                where = (k, m, *axes.place(shard))
                fit = fit_law(
                    beta[finite].ravel(),
                    value[finite].ravel(),
                    state[finite].ravel(),
                    seed[finite].ravel(),
                    law=law,
                )
                for name in names:
                    laws[name][where] = getattr(fit, name)
                counts[where] = [fit.counts[name] for name in STATUSES]
                status[where] = LAW_STATUSES.index(fit.status)
                if (estimator, law) == ("turnaround", "log") and not weights.violated:
                    slope = predicted_slope(weights.norm_BTe, weights.gap)
                    laws["predicted_slope"][where] = slope
    return {**laws, "counts": counts, "status": status}
