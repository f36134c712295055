"""Coordinates of a run's results, and where each shard lies along them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mfsweep.sweep.grid import Shard
from mfsweep.sweep.layout import SHARD_DIMS


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
