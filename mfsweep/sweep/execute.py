"""The only module that talks to dask.distributed: run a shard's cells on workers."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask
import numpy as np
from distributed import Client, KilledWorker, LocalCluster, as_completed
from threadpoolctl import threadpool_limits

from mfsweep._errors import InputError, StoreError, TransportError, refused
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

CONNECT_SECONDS = 30


@dataclass(frozen=True)
class Workers:
    """Where the cells run: local processes, or a scheduler that runs already."""

    count: int = 1
    """Local worker processes, one thread each."""
    address: str | None = None
    """Address of a running scheduler, such as tcp://host:8786."""
    scheduler_file: Path | None = None
    """Connection file of a running scheduler."""

    def at_most(self, tasks: int) -> "Workers":
        """Return no more workers than there are tasks."""
        return Workers(min(self.count, tasks), self.address, self.scheduler_file)


@dataclass
class Outcome:
    """What happened to a shard's tasks."""

    already_done: int = 0
    computed: int = 0
    stale: int = 0
    """Cells of another numerics version that were kept."""
    failures: list[str] = field(default_factory=list)


Advance = Callable[[Outcome, int], None]
"""Called with the outcome so far and the number of tasks asked for."""


@contextmanager
def connect(workers: Workers) -> Iterator[Client]:
    """Open a client to local workers or to a running scheduler, and close it quietly.

    Raises
    ------
    InputError
        If the scheduler does not answer within 30 seconds.
    """
    for library in (
        "distributed",
        "tornado.application",
        "asyncio",
    ):
        logging.getLogger(library).setLevel(logging.CRITICAL)
    if workers.address is None and workers.scheduler_file is None:
        with _local_cluster(workers.count) as cluster, Client(cluster) as client:
            yield client
        return
    try:
        client = Client(
            workers.address,
            scheduler_file=workers.scheduler_file and str(workers.scheduler_file),
            timeout=CONNECT_SECONDS,
        )
    except (OSError, ValueError) as error:
        where = workers.address or workers.scheduler_file
        message = f"scheduler {where} does not answer: start it or correct the address ({error})"
        raise InputError(message) from error
    with client:
        yield client


def _local_cluster(count: int) -> LocalCluster:
    """Start workers that are not given up after silence: a laptop may sleep for hours."""
    try:
        with dask.config.set({"distributed.scheduler.worker-ttl": None}):
            return LocalCluster(
                n_workers=count,
                threads_per_worker=1,
                processes=count > 1,  # one worker needs no second process
                protocol="tcp",
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
            )
    except (OSError, RuntimeError) as error:
        message = (
            f"{count} workers did not start ({type(error).__name__}: {error}): raise the limit of "
            "open files (ulimit -n), free memory, or use fewer workers"
        )
        raise StoreError(message) from error


def _each(
    client: Client,
    task: Callable[..., Any],
    arguments: Sequence[tuple[Any, ...]],
    names: Sequence[str],
    outcome: Outcome,
    advance: Advance,
) -> Iterator[tuple[int, Any]]:
    """Run the task on every tuple of arguments; yield (index, result) of those that succeed.

    Raises
    ------
    StoreError
        If a store cannot be read or written: the next task would fare no better.
    """
    futures = {
        client.submit(task, *values, pure=False): index for index, values in enumerate(arguments)
    }
    for future in as_completed(futures):
        index = futures.pop(future)
        try:
            yield index, future.result()
            outcome.computed += 1
        except KilledWorker:
            reason = "its worker died repeatedly, likely for memory; use fewer workers"
            outcome.failures.append(f"{names[index]}: {reason}")
        except OSError as error:
            raise refused(names[index], error) from error
        except StoreError:
            raise
        except Exception as error:  # one cell's failure must not stop the others
            outcome.failures.append(f"{names[index]}: {type(error).__name__}: {error}")
        advance(outcome, len(arguments))


# ---- simulate ------------------------------------------------------------------------------


def _simulate_cell(config: Config, cell: Cell, path: Path) -> None:
    """Run one cell into its file; runs on a worker."""
    try:
        with threadpool_limits(1):
            write_cell(path, cell, lambda keep: run_cell(config, cell, keep))
    except OSError:  # says nothing about the cell
        raise
    except Exception:
        mark_cell(path, cell.beta, cell.seed, FAILED)
        raise


def _solve_cell(config: Config, cell: Cell, path: Path) -> None:
    """Solve one cell of the continuum and write its chunks; runs on a worker."""
    try:
        with threadpool_limits(1):
            found = run_continuum(config, cell)
    except Exception:
        mark_cell(path, cell.beta, cell.seed, FAILED)
        raise
    write_continuum(path, cell, found)


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
        outcome = Outcome(len(states) - len(pending))
        outcome.stale = list(states.values()).count(STALE) if keep_stale else 0
        if pending:
            done.unlink(missing_ok=True)
            sign(path, config, shard)
            _simulate_cells(config, shard, path, pending, workers, outcome, advance)
        same = counted is not None and not pending and counted["stale"] == outcome.stale
        if not outcome.failures and not same:
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
    with connect(workers.at_most(len(pending))) as client:
        for _ in _each(client, task, tasks, names, outcome, advance):
            pass


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

    Raises
    ------
    StoreError
        If the shard has not been simulated to its end, or a store cannot be read or written.
    """
    folder = shard_folder(run_folder, shard).absolute()
    path, done = folder / "trajectories.zarr", folder / "measure.done"
    digest = measure_digest(config, shard)
    try:
        _refuse_unfinished(config, shard, run_folder)
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
            for column, result in _each(client, task, tasks, names, outcome, advance):
                versions |= result[1]
                for name, rows in result[0].items():
                    curves[name][:, column] = rows
        if not outcome.failures:
            attrs = {"digest": digest, "numerics_versions": sorted(versions), **shard.place}
            write_whole(
                folder / "curves.zarr",
                curves,
                layouts,
                {"beta": shard.betas, "seed": shard.seeds, "time": times(config.time)},
                {**provenance(config), **attrs},
            )
            write_done(done, config, digest, cells=len(shard.betas) * len(shard.seeds))
    except OSError as error:
        raise refused(shard.id, error) from error
    return outcome


def _refuse_unfinished(config: Config, shard: Shard, run_folder: Path) -> None:
    """Refuse a shard with cells to compute; stale cells count unless simulate kept them."""
    path = shard_folder(run_folder, shard) / "trajectories.zarr"
    states = list(cell_states(path, shard).values())
    if stored_settings(path) != cell_digest(config, shard, numerics=False):
        states = [MISSING] * len(states)
    good = (DONE, STALE) if simulated(run_folder, config, shard) else (DONE,)
    unfinished = sum(state not in good for state in states)
    if unfinished:
        message = f"{shard.id}: {unfinished} cells are not simulated; run mfsweep simulate first"
        raise StoreError(message)
