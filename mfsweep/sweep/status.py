"""What of a run is done, what failed and what is left."""

from dataclasses import dataclass
from pathlib import Path

from mfsweep.sweep.config import Config
from mfsweep.sweep.folder import read_done, shard_folder
from mfsweep.sweep.grid import cell_digest, shards, simulate_digest
from mfsweep.sweep.layout import DONE, FAILED, MISSING
from mfsweep.sweep.store import cell_states, mean_seconds, stored_digest


@dataclass(frozen=True)
class ShardStatus:
    """Counts of one shard's cells."""

    id: str
    done: int
    failed: int
    pending: int
    measured: bool
    seconds_left: float
    """Worker-seconds, from the mean of the cells done."""

    @property
    def unknown(self) -> bool:
        """Whether cells are left but none is done to estimate their time from."""
        return self.done == 0 and self.pending + self.failed > 0


def shard_status(config: Config, run_folder: Path) -> list[ShardStatus]:
    """Return the state of every shard that the config asks for."""
    rows = []
    for shard in shards(config):
        folder = shard_folder(run_folder, shard)
        path = folder / "trajectories.zarr"
        stale = stored_digest(path) != cell_digest(config, shard)
        states = list(cell_states(path, shard).values())
        count = {state: states.count(state) for state in (DONE, FAILED, MISSING)}
        if stale:
            count = {DONE: 0, FAILED: 0, MISSING: len(states)}
        made = read_done(folder / "measure.done")
        current = made is not None and made["digest"] == simulate_digest(config, shard)
        measured = current and count[DONE] == len(states)
        left = (count[FAILED] + count[MISSING]) * (mean_seconds(path) if count[DONE] else 0.0)
        rows.append(
            ShardStatus(shard.id, count[DONE], count[FAILED], count[MISSING], measured, left)
        )
    return rows
