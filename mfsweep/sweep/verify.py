"""Read everything of a run, name what is damaged, and mark it to be made again."""

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from mfsweep._errors import StoreError
from mfsweep.sweep import layout
from mfsweep.sweep.config import Config
from mfsweep.sweep.folder import (
    owner_record,
    read_done,
    seal,
    shard_folder,
    simulated,
    write_json,
)
from mfsweep.sweep.grid import Shard, shards
from mfsweep.sweep.layout import CELL_DIMS, MISSING, SHARD_DIMS
from mfsweep.sweep.store import (
    Damage,
    erase_mass,
    mark_cell,
    trajectories_damage,
    unreadable,
    whole_damage,
)


def damage(config: Config, run_folder: Path) -> Iterator[Damage]:
    """Yield everything damaged in the run's stores and marks.

    What the config does not ask for is read as well: it counts as done once it is asked for again.

    Parameters
    ----------
    config
        What the results shall hold.
    run_folder
        Folder of the run, results/{run}.

    Yields
    ------
    Damage
        One for each array of a cell, each metadata file, each mark of what is done.
    """
    for mark in (run_folder / "run.json", run_folder / "collect.done"):
        yield from mark_damage(mark)
    asked = shards(config)
    for shard in asked:
        yield from _shard_damage(config, shard, run_folder)
    ids = {shard.id for shard in asked}
    for folder in sorted(run_folder.glob("shards/*")):
        if folder.name not in ids:
            yield from _unasked_damage(folder)
    cells = (*SHARD_DIMS, *CELL_DIMS)
    collected = {
        "curves.zarr": (layout.curves(*cells), (*cells, "time"), SHARD_DIMS),
        "switch_times.zarr": (layout.SWITCH_TIMES, ("estimator", *cells), ()),
        "laws.zarr": (layout.LAWS, ("estimator", "law", *SHARD_DIMS, "cell_status"), ()),
        "bound.zarr": (layout.BOUND, (*SHARD_DIMS, "beta", "time"), ()),
    }
    for name, (layouts, dims, chunk_dims) in collected.items():
        if (run_folder / name).exists():
            yield from whole_damage(run_folder / name, layouts, dims, chunk_dims)


def _unasked_damage(folder: Path) -> Iterator[Damage]:
    """Yield what of a shard that is not asked for cannot be read."""
    yield from _marks_damage(folder)
    for name in ("trajectories.zarr", "curves.zarr"):
        if (folder / name).exists():
            yield from unreadable(folder / name)


def _shard_damage(config: Config, shard: Shard, run_folder: Path) -> Iterator[Damage]:
    folder = shard_folder(run_folder, shard)
    marks = list(_marks_damage(folder))
    yield from marks
    finished = not marks and simulated(run_folder, config, shard) is not None
    path, curves = folder / "trajectories.zarr", folder / "curves.zarr"
    if path.exists():
        yield from trajectories_damage(path, config, shard, finished=finished)
    elif finished:
        yield Damage(path, "zarr.json", "missing, though simulate.done counts it")
    if curves.exists():
        layouts = layout.shard_curves(shard.n_tokens)
        yield from whole_damage(curves, layouts, (*CELL_DIMS, "time"))


def _marks_damage(folder: Path) -> Iterator[Damage]:
    for name in ("simulate.done", "measure.done", "pruned.json"):
        yield from mark_damage(folder / name)


def mark_damage(path: Path) -> Iterator[Damage]:
    """Yield a file that marks what is done, or whose the folder is, if it is not as written."""
    try:
        read_done(path)
    except StoreError:
        yield Damage(path, path.name, "does not match its seal")


def told(found: Damage, run_folder: Path) -> str:
    """Name what is damaged in one line: where, which array, which cell, why."""
    where = found.path.relative_to(run_folder)
    at = [
        f"{name} = {value:g}" if name == "beta" else f"{name} = {value}"
        for name, value in (("beta", found.beta), ("seed", found.seed))
        if value is not None
    ]
    return f"{where}: {' '.join([found.variable, *at])}: {found.why}"


def repair(found: Iterable[Damage], config: Config, config_file: Path, run_folder: Path) -> None:
    """Mark what is damaged to be made again: by the next run, which Snakemake then plans.

    A damaged cell is missing again. Where metadata or coordinates are damaged, nothing tells any
    more which numbers belong to which cell: the whole store goes.
    """
    for one in found:
        if one.path.name == "run.json":
            write_json(one.path, seal(owner_record(run_folder, config_file, config)))
        elif one.path.suffix in (".done", ".json"):
            one.path.unlink(missing_ok=True)
        elif one.path.name == "trajectories.zarr":
            (one.path.parent / "simulate.done").unlink(missing_ok=True)
            _repair_trajectories(one)
        else:
            (one.path.parent / "measure.done").unlink(missing_ok=True)
            shutil.rmtree(one.path, ignore_errors=True)


def _repair_trajectories(one: Damage) -> None:
    if one.beta is not None and one.seed is not None:
        mark_cell(one.path, one.beta, one.seed, MISSING)
    elif one.seed is not None:
        erase_mass(one.path, one.seed)
    else:
        shutil.rmtree(one.path, ignore_errors=True)
