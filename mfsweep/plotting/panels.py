"""What one panel of a figure shows: the results of one shard."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from mfsweep._errors import StoreError
from mfsweep._types import STATUSES, Array, Estimator, Status
from mfsweep.dynamics.weights import Weights
from mfsweep.sweep.cell import weights_of
from mfsweep.sweep.config import Config
from mfsweep.sweep.folder import COLLECTED
from mfsweep.sweep.grid import Shard, given, shards
from mfsweep.sweep.layout import SHARD_DIMS
from mfsweep.sweep.results import open_results


@dataclass(frozen=True, eq=False)
class Panel:
    """The results of one shard.

    Parameters
    ----------
    shard
        Family, d, gap, n_tokens, betas and seeds.
    weights
        V and B of the shard.
    curves
        Every curve of the shard; dims beta, seed, time.
    switches
        Its switch times; dims estimator, beta, seed.
    laws
        Its laws; dims estimator, law (and cell_status).
    bound
        Rates of the two terms of Theorem 1; dims beta, time.
    own_beta
        A trained head's own inverse temperature in the sweep's units; NaN of other weights.
    """

    shard: Shard
    weights: Weights
    curves: xr.Dataset
    switches: xr.Dataset
    laws: xr.Dataset
    bound: xr.Dataset
    own_beta: float = field(default=np.nan, kw_only=True)

    @property
    def is_control(self) -> bool:
        """Whether metastable and terminal eigenspace coincide, so that nothing can switch."""
        return bool(self.weights.assumptions().angle < 1e-6)

    def events(self, estimator: Estimator) -> tuple[Array, NDArray[np.uint8]]:
        """Return an estimator's times and status flags, shape (beta, seed)."""
        found = self.switches.sel(estimator=estimator)
        return found.switch_time.values, found.status.values

    def quartiles(self, name: str) -> dict[float, Array]:
        """Return a curve's lower quartile, median and upper quartile over the seeds by beta.

        Each has shape (3, time). Seeds whose curve is not finite take no part; a beta without
        any other is left out.
        """
        found = {}
        cells = self.curves[name].transpose("beta", "seed", "time").values
        for beta, rows in zip(self.shard.betas, cells, strict=True):
            known = rows[np.isfinite(rows).all(axis=1)]
            if len(known):
                found[beta] = np.quantile(known, [0.25, 0.5, 0.75], axis=0)
        return found

    def median_event(self, estimator: Estimator) -> Array:
        """Return the median time over seeds, shape (beta,): inf if censored, NaN if none."""
        value, status = self.events(estimator)
        value = np.where(flagged(status, "censored"), np.inf, value)
        known = flagged(status, "observed", "under_resolved", "censored")
        rows = zip(value, known, strict=True)
        return np.array([_median(row[kept]) for row, kept in rows])


def _median(values: Array) -> float:
    """Return the median, the upper of two middle values if one is infinite; NaN of nothing."""
    ordered = np.sort(values)
    middle = ordered[[(ordered.size - 1) // 2, ordered.size // 2]] if ordered.size else [np.nan]
    return float(np.mean(middle))


def flagged(status: NDArray[np.uint8], *names: Status) -> NDArray[np.bool_]:
    """Tell which cells have one of these statuses."""
    return np.isin(status, [STATUSES.index(name) for name in names])


def place(shard: Shard) -> str:
    """Name a shard by its physical coordinates.

    >>> place(Shard("aligned", 2, 0.25, 1024.0, (8.0,), (0,)))
    'aligned, d = 2, gap = 0.25, 1,024 tokens'
    """
    count = "the continuum" if shard.continuum else f"{shard.n_tokens:,.0f} tokens"
    return f"{shard.family}, d = {shard.d}, gap = {shard.gap:.4g}, {count}"


def read_panels(config: Config, run_folder: Path) -> tuple[Panel, ...]:
    """Read the collected results of every shard that the config asks for.

    Raises
    ------
    StoreError
        If the run has not been collected, or for another config.
    """
    tree = open_results(run_folder)
    absent = [name for name in COLLECTED if name not in tree.children]
    if absent:
        message = f"{run_folder} has no {absent[0]}.zarr: run mfsweep collect first"
        raise StoreError(message)
    stores = [tree[name].to_dataset() for name in COLLECTED]
    return tuple(
        Panel(
            shard,
            weights_of(config, shard),
            *(_part(store, shard) for store in stores),
            own_beta=source.own_beta if (source := given(config, shard)) else np.nan,
        )
        for shard in shards(config)
    )


def _part(store: xr.Dataset, shard: Shard) -> xr.Dataset:
    """Select one shard's part of a store, its betas and seeds only."""
    wanted: dict[str, Any] = {dim: getattr(shard, dim) for dim in SHARD_DIMS}
    cells = {"beta": list(shard.betas), "seed": list(shard.seeds)}
    wanted |= {dim: values for dim, values in cells.items() if dim in store.dims}
    try:
        return store.sel(wanted).load()
    except KeyError as error:
        message = f"the results lack a part of {place(shard)}: run mfsweep collect again"
        raise StoreError(message) from error
