"""The cell whose tokens are shown: which one it is, and its trajectory."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mfsweep._types import Array, Basis, Masses, Times, Tokens
from mfsweep.dynamics.weights import Weights
from mfsweep.plotting.panels import Panel, flagged
from mfsweep.sweep.folder import shard_folder
from mfsweep.sweep.grid import Shard
from mfsweep.sweep.results import open_store

_AFTER = 1.1
"""Multiple of the crossover time at which the tokens are shown after it."""


@dataclass(frozen=True, eq=False)
class Orbit:
    """The tokens of one cell through time.

    Parameters
    ----------
    shard, beta, seed
        The cell.
    weights
        V and B.
    times, tokens, mass
        Shapes (time,), (time, n, d), (n,).
    basin
        Which tokens Pi sends to +e (m = 1), or to the half of E with <Pi(x), e> > 0; shape (n,).
    turnaround, crossover
        Median turnaround over the seeds and the cell's own crossover; NaN or inf without one.
    """

    shard: Shard
    beta: float
    seed: int
    weights: Weights
    times: Times
    tokens: Array
    mass: Masses
    basin: NDArray[np.bool_]
    turnaround: float
    crossover: float

    @property
    def dominant(self) -> Basis:
        """Basis of E (d, m), with no column where there is no metastable target."""
        return self.weights.dominant() if self.weights.has_target else np.empty((self.shard.d, 0))

    def moments(self) -> list[tuple[str, int]]:
        """Return what is shown: names and indices of saved times, in order of time."""
        end = self.times[-1]
        named = {
            "start": 0.0,
            "metastable phase": self.turnaround,
            "after the crossover": min(_AFTER * self.crossover, end),
        }
        if not np.isfinite(self.turnaround):
            named["metastable phase"] = np.inf
            named["half of the time"] = end / 2
        if not np.isfinite(self.crossover):
            named["after the crossover"] = np.inf
        found = {
            int(np.abs(self.times - when).argmin()): name
            for name, when in named.items()
            if np.isfinite(when)
        }
        found[self.times.size - 1] = "end"
        return [(found[k], k) for k in sorted(found)]


def read_orbit(panels: Sequence[Panel], d: int, run_folder: Path) -> Orbit | None:
    """Read the tokens of the most telling cell of dimension d.

    That is, in the first family that is no control, the cell of largest beta whose crossover is
    observed, else of largest beta; of these the first seed. None if no cell is computed. The
    continuum has no tokens.
    """
    measured = [
        panel
        for panel in panels
        if panel.shard.d == d
        and not panel.shard.continuum
        and np.isfinite(panel.curves.distance_terminal.values).any()
    ]
    if not measured:
        return None
    switching = [panel for panel in measured if not panel.is_control] or measured
    family = [panel for panel in switching if panel.shard.family == switching[0].shard.family]
    panel = max(family, key=_largest_crossing)  # the first of the largest
    row, column = _cell(panel)
    beta, seed = panel.shard.betas[row], panel.shard.seeds[column]
    path = shard_folder(run_folder, panel.shard) / "trajectories.zarr"
    with open_store(path) as store:
        cell = store.sel(beta=beta, seed=seed)
        tokens, mass = (cell[name].values.astype(np.float64) for name in ("tokens", "mass"))
    crossed = flagged(panel.events("crossover")[1], "observed", "under_resolved")[row, column]
    return Orbit(
        shard=panel.shard,
        beta=beta,
        seed=seed,
        weights=panel.weights,
        times=panel.curves.time.values,
        tokens=tokens,
        mass=mass,
        basin=_basin(tokens[0], panel.weights),
        turnaround=float(panel.median_event("turnaround")[row]),
        crossover=float(panel.events("crossover")[0][row, column]) if crossed else np.nan,
    )


def _basin(x: Tokens, weights: Weights) -> NDArray[np.bool_]:
    """Tell which tokens are bound for +e; all, where there is no metastable target."""
    if not weights.has_target:
        return np.ones(len(x), dtype=bool)
    bound: NDArray[np.bool_] = x @ weights.dual[:, 0] > 0
    return bound


def _largest_crossing(panel: Panel) -> float:
    """Return the largest finite beta with an observed crossover, 0 without one."""
    crossed = flagged(panel.events("crossover")[1], "observed").any(axis=1)
    betas = np.array(panel.shard.betas)
    return float(betas[crossed & np.isfinite(betas)].max(initial=0.0))


def _cell(panel: Panel) -> tuple[int, int]:
    """Return the places of the cell's beta and seed."""
    done = np.isfinite(panel.curves.distance_terminal.values).all(axis=-1)
    done &= np.isfinite(panel.shard.betas)[:, None] | ~np.isfinite(panel.shard.betas).any()
    crossed = done & flagged(panel.events("crossover")[1], "observed")
    chosen = np.argwhere(crossed if crossed.any() else done)
    row = chosen[:, 0].max()
    return int(row), int(chosen[chosen[:, 0] == row, 1].min())
