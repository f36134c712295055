"""Run a shard's cells on Dask workers, and keep what became of each."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client, KilledWorker, as_completed
from threadpoolctl import ThreadpoolController, threadpool_limits

from mfsweep._errors import StoreError, TransportError, refused
from mfsweep._types import Array
from mfsweep.dynamics.continuum import compile_continuum
from mfsweep.dynamics.simulate import compile_kernels
from mfsweep.sweep import layout
from mfsweep.sweep.blocks import Blocks, block_times
from mfsweep.sweep.cell import (
    measure_cell,
    run_cell,
    start,
    w2_zero_temperature,
    weights_of,
    zero_temperature_flow,
)
from mfsweep.sweep.config import Config
from mfsweep.sweep.continuum import run_continuum
from mfsweep.sweep.failures import add_failure, forget_failures
from mfsweep.sweep.folder import (
    provenance,
    shard_folder,
    simulated,
    write_done,
    write_simulated,
)
from mfsweep.sweep.grid import (
    Cell,
    Shard,
    cell_digest,
    measure_digest,
    times,
)
from mfsweep.sweep.layout import DONE, FAILED, MISSING, STALE
from mfsweep.sweep.plan import worker_bytes
from mfsweep.sweep.store import (
    cell_states,
    mark_cell,
    prepare,
    read_cell,
    read_continuum,
    sign,
    stored_settings,
    write_cell,
    write_continuum,
    write_whole,
)
from mfsweep.sweep.workers import TRIES, Workers, connect, say_dashboard


@dataclass
class Outcome:
    """What happened to a shard's tasks."""

    already_done: int = 0
    computed: int = 0
    stale: int = 0
    """Cells of another numerics version that were kept."""
    failures: list[str] = field(default_factory=list)
    in_flight: int = 0
    """Tasks that workers are busy with."""
    pairs: float = 0.0
    """Pairs of tokens, or sums of the continuum, that the tasks computed."""
    began: float = field(default_factory=lambda: time.monotonic())
    """When workers took up the first task: compiled and connected, on the monotonic clock."""


SECONDS_BETWEEN_COUNTS = 5.0
Advance = Callable[[Outcome, int], None]
"""Called with the outcome so far and the number of tasks asked for."""


Failed = Callable[[int, str], None]
"""Called with the index of a task that is given up, and why."""


def _each(
    client: Client,
    task: Callable[..., Any],
    arguments: Sequence[tuple[Any, ...]],
    names: Sequence[str],
    needs: Callable[[], float],
    outcome: Outcome,
    advance: Advance,
    failed: Failed = lambda *_: None,
) -> Iterator[tuple[int, Any]]:
    """Run the task on every tuple of arguments; yield (index, result) of those that succeed.

    A task that fails, or loses its worker, is tried again; after three times it is given up and
    the others go on. `needs` estimates a worker's memory in bytes.

    Raises
    ------
    StoreError
        If a store cannot be read or written, since the next task would fare no better; or if the
        cluster is gone.
    """
    submitted = client.map(task, *zip(*arguments, strict=True), pure=False, retries=TRIES - 1)
    futures = {future: index for index, future in enumerate(submitted)}
    threads = sum(client.nthreads().values())
    outcome.began = counted = time.monotonic()
    del submitted  # a future that nobody holds is forgotten, and its result with it
    for future in as_completed(futures):
        index = futures.pop(future)
        reason = None
        try:
            yield index, future.result()
            outcome.computed += 1
        except KilledWorker as error:
            reason = _killed(error, needs())
        except CancelledError as error:
            message = (
                f"stopped at {names[index]}: {_gone(error)}; run again: finished cells are kept"
            )
            raise StoreError(message) from error
        except OSError as error:
            raise refused(names[index], error) from error
        except StoreError:
            raise
        except Exception as error:  # one cell's failure must not stop the others
            reason = f"{type(error).__name__}: {error}"
        if reason is not None:
            outcome.failures.append(f"{names[index]}: {reason}")
            failed(index, reason)
        if time.monotonic() - counted > SECONDS_BETWEEN_COUNTS:  # workers come and go
            threads, counted = sum(client.nthreads().values()), time.monotonic()
        outcome.in_flight = min(threads, len(futures))
        advance(outcome, len(arguments))


def _gone(error: CancelledError) -> str:
    """Say why tasks were cancelled: the cluster says it, if it is not gone itself."""
    given_up = getattr(error, "reason", None) == "no-workers"
    return str(error.msg) if given_up else "the Dask scheduler is gone"  # type: ignore[attr-defined]


def _killed(error: KilledWorker, needs: float) -> str:
    """Say what a cell needs and had when its workers died, and what to change."""
    limit = error.last_worker.memory_limit
    had = f"of the {limit / 1e9:.2f} GB that a worker has" if limit else "and workers have no limit"
    return (
        f"its worker died {error.allowed_failures + 1} times, most likely for memory: an estimated "
        f"{needs / 1e9:.2f} GB {had}; give more --memory, use fewer --cores, or lower n_tokens (or "
        "allow more --walltime, if the worker's job ended)"
    )


# ---- simulate ------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _threads() -> ThreadpoolController:
    """Return the process's pools of threads: finding them takes as long as a small cell."""
    return ThreadpoolController()


def _simulate_cell(config: Config, cell: Cell, path: Path) -> float:
    """Run one cell into its file; return its pairs. Runs on a worker."""
    try:
        with _threads().limit(limits=1):
            stats = write_cell(path, cell, lambda keep: run_cell(config, cell, keep))
    except OSError:  # says nothing about the cell
        raise
    except Exception:
        mark_cell(path, cell.beta, cell.seed, FAILED)
        raise
    return _pairs(stats)


def _pairs(stats: Array) -> float:
    return float(stats[layout.STAT_NAMES.index("pairs_computed")])


def _solve_cell(config: Config, cell: Cell, path: Path) -> float:
    """Solve one cell of the continuum and write its chunks; return its sums. Runs on a worker."""
    try:
        with _threads().limit(limits=1):
            found = run_continuum(config, cell)
    except Exception:
        mark_cell(path, cell.beta, cell.seed, FAILED)
        raise
    write_continuum(path, cell, found)
    return _pairs(found["stats"])


def simulate_shard(
    config: Config,
    shard: Shard,
    run_folder: Path,
    workers: Workers,
    advance: Advance,
    *,
    keep_stale: bool = False,
) -> Outcome:
    """Compute the shard's cells that are missing, failed or stale; then write simulate.done.

    Parameters
    ----------
    config, shard
        What to compute.
    run_folder
        Folder of the run, results/{run}.
    workers
        Where to compute.
    advance
        Told after every cell.
    keep_stale
        Keep cells that another numerics version made under the same settings.

    Returns
    -------
    Outcome
        Counts, and a line for each cell that failed.

    Raises
    ------
    StoreError
        If the store cannot be read or written.
    """
    folder = shard_folder(run_folder, shard).absolute()
    path, done = folder / "trajectories.zarr", folder / "simulate.done"
    drawn = () if shard.continuum else shard.seeds
    masses = {seed: start(config, shard, seed)[1] for seed in drawn}
    try:
        counted = simulated(run_folder, config, shard)
        if counted is None:
            done.unlink(missing_ok=True)
        prepare(path, config, shard, masses)
        states = cell_states(path, shard)
        good = (DONE, STALE) if keep_stale else (DONE,)
        pending = [cell for cell in shard.cells() if states[cell.beta, cell.seed] not in good]
        pending.sort(key=lambda cell: cell.seed)  # large beta cost more: what is left looks alike
        outcome = Outcome(len(states) - len(pending))
        outcome.stale = list(states.values()).count(STALE) if keep_stale else 0
        if pending:
            done.unlink(missing_ok=True)
            sign(path, config, shard)
            _simulate_cells(config, shard, path, pending, workers, outcome, advance)
        same = counted is not None and not pending and counted["stale"] == outcome.stale
        if not outcome.failures and not same:
            forget_failures(folder)
            write_simulated(run_folder, config, shard, outcome.stale)
    except OSError as error:
        raise refused(shard.id, error) from error
    return outcome


def _simulate_cells(
    config: Config,
    shard: Shard,
    path: Path,
    pending: Sequence[Cell],
    workers: Workers,
    outcome: Outcome,
    advance: Advance,
) -> None:
    if shard.continuum:
        compile_continuum()
    else:
        compile_kernels(shard.d)
    task = _solve_cell if shard.continuum else _simulate_cell
    names = [f"{shard.id} beta = {cell.beta:g} seed = {cell.seed}" for cell in pending]
    tasks = [(config, cell, path) for cell in pending]
    needs = partial(worker_bytes, config, shard)

    def failed(index: int, reason: str) -> None:
        cell = pending[index]
        mark_cell(path, cell.beta, cell.seed, FAILED)  # which a worker that died did not
        add_failure(path.parent, cell, reason)

    with connect(workers.at_most(len(pending))) as client:
        say_dashboard(client)
        for _, pairs in _each(client, task, tasks, names, needs, outcome, advance, failed):
            outcome.pairs += pairs


# ---- measure -------------------------------------------------------------------------------


def _measure_seed(
    config: Config, shard: Shard, seed: int, path: Path
) -> tuple[dict[str, Array], set[int]]:
    """Measure all betas of one seed; arrays (beta, time), and the numerics versions behind them.

    Goes through time block by block, as the zero-temperature flow does. Runs on a worker.
    """
    weights = weights_of(config, shard)
    initial, _ = start(config, shard, seed)
    shape = (len(shard.betas), config.time.n_times)
    curves = {name: np.full(shape, np.nan) for name in layout.CURVES}
    versions = set()

    def measure(when: slice, reference: Array) -> None:
        zero = {"w2_zero_temperature": w2_zero_temperature(config, shard, seed, reference)}
        for row, beta in enumerate(shard.betas):
            cell = read_cell(path, beta, seed, when)
            if cell is None:
                continue
            tokens, mass = cell.pop("tokens"), cell.pop("mass")
            versions.add(int(cell.pop("numerics_version")))
            try:
                measured = measure_cell(tokens, mass, weights, initial, reference, beta)
            except TransportError as error:
                message = f"beta = {beta:g}, from time index {when.start} on, {error}"
                raise TransportError(message) from error
            for name, curve in (measured | zero | cell).items():
                curves[name][row, when] = curve

    with threadpool_limits(1):
        blocks = Blocks(config.time.n_times, block_times(config, shard), measure)
        zero_temperature_flow(config, shard, seed, blocks.add)
    return curves, versions


def _pass_on_seed(
    config: Config, shard: Shard, seed: int, path: Path
) -> tuple[dict[str, Array], set[int]]:
    """Return what the continuum's cells measured as they ran, as `_measure_seed` does."""
    shape = (len(shard.betas), config.time.n_times)
    curves = {name: np.full(shape, np.nan) for name in layout.shard_curves(shard.n_tokens)}
    versions = set()
    for row, beta in enumerate(shard.betas):
        if (cell := read_continuum(path, beta, seed)) is not None:
            versions.add(int(cell.pop("numerics_version")))
            for name, curve in cell.items():
                curves[name][row] = curve
    return curves, versions


def measure_shard(
    config: Config, shard: Shard, run_folder: Path, workers: Workers, advance: Advance
) -> Outcome:
    """Measure every curve of the shard and replace its curves.zarr; write measure.done.

    Cells that failed are left out, and then no measure.done is written.

    Raises
    ------
    StoreError
        If the shard has not been simulated to its end, or a store cannot be read or written.
    """
    folder = shard_folder(run_folder, shard).absolute()
    path, done = folder / "trajectories.zarr", folder / "measure.done"
    digest = measure_digest(config, shard)
    try:
        left_out = _failed_cells(config, shard, run_folder)
        if not shard.continuum:
            compile_kernels(shard.d)
        task = _pass_on_seed if shard.continuum else _measure_seed
        outcome = Outcome()
        names = [f"{shard.id} seed = {seed}" for seed in shard.seeds]
        tasks = [(config, shard, seed, path) for seed in shard.seeds]
        shape = (len(shard.betas), len(shard.seeds), config.time.n_times)
        layouts = layout.shard_curves(shard.n_tokens)
        curves = {name: np.full(shape, np.nan) for name in layouts}
        versions: set[int] = set()
        with connect(workers.at_most(len(tasks))) as client:
            needs = partial(worker_bytes, config, shard)
            for column, result in _each(client, task, tasks, names, needs, outcome, advance):
                versions |= result[1]
                for name, rows in result[0].items():
                    curves[name][:, column] = rows
        if outcome.computed == len(tasks):
            attrs = {"digest": digest, "numerics_versions": sorted(versions), **shard.place}
            write_whole(
                folder / "curves.zarr",
                curves,
                layouts,
                {"beta": shard.betas, "seed": shard.seeds, "time": times(config.time)},
                {**provenance(config), **attrs},
            )
        outcome.failures += [f"{shard.id} {cell} failed and is left out" for cell in left_out]
        if outcome.failures:
            done.unlink(missing_ok=True)
        else:
            write_done(done, config, digest, cells=len(shard.betas) * len(shard.seeds))
    except OSError as error:
        raise refused(shard.id, error) from error
    return outcome


def _failed_cells(config: Config, shard: Shard, run_folder: Path) -> list[str]:
    """Describe the cells that failed, and refuse a shard whose simulation has not ended.

    Stale cells count as computed unless simulate did not keep them.
    """
    path = shard_folder(run_folder, shard) / "trajectories.zarr"
    states = cell_states(path, shard)
    if stored_settings(path) != cell_digest(config, shard, numerics=False):
        states = dict.fromkeys(states, MISSING)
    good = (DONE, STALE) if simulated(run_folder, config, shard) else (DONE,)
    unfinished = sum(state not in (*good, FAILED) for state in states.values())
    failed = [cell for cell, state in states.items() if state == FAILED]
    if unfinished or len(failed) == len(states):
        count = unfinished or len(failed)
        message = f"{shard.id}: {count} cells are not simulated; run mfsweep simulate first"
        raise StoreError(message)
    return [f"beta = {beta:g} seed = {seed}" for beta, seed in failed]
