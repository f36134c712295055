"""What of a run is done, what failed, what is left, and what lies there unasked."""

from dataclasses import dataclass
from pathlib import Path

from mfsweep.sweep.config import Config
from mfsweep.sweep.failures import failures
from mfsweep.sweep.folder import is_done, shard_folder, simulated
from mfsweep.sweep.grid import Shard, cell_digest, measure_digest, shards
from mfsweep.sweep.layout import DONE, FAILED, MISSING, STALE
from mfsweep.sweep.lock import held
from mfsweep.sweep.store import cell_states, mean_seconds, stored_settings
from mfsweep.sweep.unasked import unasked


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


def status_text(config: Config, run_folder: Path, cores: int) -> tuple[str, str, bool]:
    """Describe a run: a table with what failed and what lies there unasked, and the time left.

    Returns
    -------
    tuple of str, str, bool
        The whole text, its summary of one line, and whether nothing is left to do.
    """
    rows = shard_status(config, run_folder)
    heads = ("done", "failed", "pending")
    lines = [f"{'shard':32} {' '.join(f'{head:>7}' for head in heads)} measured   stale"]
    for row in rows:
        counts = " ".join(f"{getattr(row, head):7d}" for head in heads)
        lines.append(f"{row.id:32} {counts} {'yes' if row.measured else 'no':>8} {row.stale:7d}")
    for row in rows:
        lines += [f"failed: {row.id} {cell}: {reason}" for cell, reason in row.failures]
    minutes = sum(row.seconds_left for row in rows) / cores / 60
    bound = "at least " if any(row.unknown for row in rows) else ""
    left = f"left: {bound}{minutes:.1f} min on {cores} cores"
    lines.append(left)
    for path, holder in held(run_folder):
        gone = f"; it is gone and its lock {path} counts for nothing" if holder.gone else ""
        lines.append(f"at work: {holder}{gone}")
    extra = [f"unasked: {one.path}: {one.what}" for one in unasked(config, run_folder)]
    lines += [*extra, "mfsweep prune removes what is unasked"] if extra else []
    done, failed, pending = (sum(getattr(row, head) for row in rows) for head in heads)
    line = f"{config.run}: {done}/{done + failed + pending} done, {failed} failed, {left}"
    return "\n".join(lines), line, all(row.measured for row in rows)


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
