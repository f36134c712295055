"""Join the shards' curves and write what is estimated from them."""

from pathlib import Path

import numpy as np

from mfsweep._errors import StoreError
from mfsweep._types import ESTIMATORS, LAWS, STATUSES, Array
from mfsweep.sweep import layout
from mfsweep.sweep.config import Config
from mfsweep.sweep.coordinates import Axes
from mfsweep.sweep.estimates import estimated_bound, estimated_laws, estimated_switches
from mfsweep.sweep.folder import provenance, shard_folder, write_done
from mfsweep.sweep.grid import Shard, collect_digest, measure_digest, shards, times
from mfsweep.sweep.layout import CELL_DIMS, COARSE, CURVES, SHARD_DIMS
from mfsweep.sweep.store import read_whole, write_whole


def collect(config: Config, run_folder: Path) -> list[int]:
    """Write the run's curves, switch_times, laws and bound stores from its shards.

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
    coarse = {shard.id: _coarse(config, run_folder, shard) for shard in asked if shard.continuum}
    switches = estimated_switches(config, asked, axes, curves, coarse)
    laws = estimated_laws(config, asked, axes, switches)
    bound = estimated_bound(config, asked, axes, curves)
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
    write_whole(
        run_folder / "bound.zarr",
        bound,
        layout.BOUND,
        {**axes.coordinates(*SHARD_DIMS, "beta"), "time": times(config.time)},
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
        found, made_by = _measured(config, run_folder, shard)
        versions |= set(made_by)
        for name, values in found.items():
            if name in curves:
                curves[name][axes.place(shard)][axes.cells(shard)] = values
    if not versions:
        message = f"{run_folder}: no shard is measured for this config; run mfsweep measure first"
        raise StoreError(message)
    return curves, sorted(versions)


def _measured(config: Config, run_folder: Path, shard: Shard) -> tuple[dict[str, Array], list[int]]:
    """Read a shard's curves and the numerics versions behind them; nothing if not measured."""
    store = read_whole(shard_folder(run_folder, shard) / "curves.zarr")
    if store is None or store[1]["digest"] != measure_digest(config, shard):
        return {}, []
    return store[0], store[1]["numerics_versions"]


def _coarse(config: Config, run_folder: Path, shard: Shard) -> dict[str, Array]:
    """Return the continuum's curves at half the resolution, by the names of the others."""
    found, _ = _measured(config, run_folder, shard)
    return {name.removesuffix("_coarse"): found[name] for name in COARSE if name in found}
