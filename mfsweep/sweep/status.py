"""What of a run is done, what failed, what is left, and what lies there unasked."""

from dataclasses import dataclass
from pathlib import Path

from mfsweep.sweep.config import Config
from mfsweep.sweep.failures import failures
from mfsweep.sweep.folder import is_done, shard_folder, simulated
from mfsweep.sweep.grid import Shard, cell_digest, measure_digest, shards
from mfsweep.sweep.layout import DONE, FAILED, MISSING, STALE
from mfsweep.sweep.store import cell_states, mean_seconds, stored_settings


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
    stale: int = 0
    """Cells of another numerics version: computed again, or kept with --keep-stale."""
    failures: tuple[tuple[str, str], ...] = ()
    """Which cells failed, and why."""

    @property
    def unknown(self) -> bool:
        """Whether cells are left but none is done to estimate their time from."""
        return self.done + self.stale == 0 and self.pending + self.failed > 0


def shard_status(config: Config, run_folder: Path) -> list[ShardStatus]:
    """Return the state of every shard that the config asks for."""
    return [_status(config, shard, run_folder) for shard in shards(config)]


def _status(config: Config, shard: Shard, run_folder: Path) -> ShardStatus:
    folder = shard_folder(run_folder, shard)
    path = folder / "trajectories.zarr"
    cells = cell_states(path, shard)
    if stored_settings(path) != cell_digest(config, shard, numerics=False):
        cells = dict.fromkeys(cells, MISSING)
    states = list(cells.values())
    reasons = failures(folder) if FAILED in states else {}
    count = {state: states.count(state) for state in (DONE, FAILED, MISSING, STALE)}
    kept = simulated(run_folder, config, shard) is not None
    left = count[FAILED] + count[MISSING] + (0 if kept else count[STALE])
    known = left > 0 and count[DONE] + count[STALE] > 0
    return ShardStatus(
        shard.id,
        count[DONE],
        count[FAILED],
        count[MISSING],
        left == 0 and is_done(folder / "measure.done", measure_digest(config, shard)),
        left * mean_seconds(path, shard) if known else 0.0,
        count[STALE],
        tuple(
            (f"beta = {beta:g} seed = {seed}", reasons.get((beta, seed), "for no known reason"))
            for (beta, seed), state in cells.items()
            if state == FAILED
        ),
    )
