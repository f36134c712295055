"""What lies in a run's folder that its config does not ask for."""

import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mfsweep.sweep.config import Config
from mfsweep.sweep.figures import TOKEN_FIGURES, figure_files, figure_names
from mfsweep.sweep.folder import count_pruning, read_done, seal, shard_folder, write_json
from mfsweep.sweep.grid import Shard, cell_digest, shards
from mfsweep.sweep.store import axes, drop_cells, stored_settings

_RULES = ("simulate", "measure")


@dataclass(frozen=True)
class Unasked:
    """Something that the config does not ask for."""

    path: Path
    what: str
    shard: Shard | None = None
    """The shard whose store holds cells too many; None if all of `path` is unasked."""


def unasked(config: Config, run_folder: Path) -> list[Unasked]:
    """List shards, cells, logs and figures that the config does not ask for."""
    asked = {shard.id: shard for shard in shards(config)}
    folders = sorted(path for path in run_folder.glob("shards/*") if path.is_dir())
    gone = [path for path in folders if path.name not in asked]
    found = [Unasked(path, "a shard that the config does not ask for") for path in gone]
    for shard in asked.values():
        found += _cells(config, shard, shard_folder(run_folder, shard) / "trajectories.zarr")
    logs = [run_folder / f"logs/{rule}-{p.name}.log" for p in gone for rule in _RULES]
    found += [Unasked(path, "its log") for path in logs if path.exists()]
    stems = {*figure_names(config), "continuum", *TOKEN_FIGURES.values()}
    for path in sorted(run_folder.glob("figures/*")):
        if path.stem in stems and path.name not in figure_files(config):
            found.append(Unasked(path, "a figure that the config does not ask for"))
    return found


def _cells(config: Config, shard: Shard, path: Path) -> Iterator[Unasked]:
    """Yield the store if it holds betas or seeds too many."""
    betas, seeds = axes(path)
    extra = {
        "beta": [f"{beta:g}" for beta in betas if beta not in shard.betas],
        "seed": [str(seed) for seed in seeds if seed not in shard.seeds],
    }
    named = [f"{name} = {', '.join(values)}" for name, values in extra.items() if values]
    same = stored_settings(path) == cell_digest(config, shard, numerics=False)
    if named and same:  # a store of other settings is replaced by the next run
        cells = len(betas) * len(seeds) - sum(b in shard.betas for b in betas) * sum(
            s in shard.seeds for s in seeds
        )
        yield Unasked(path, f"{cells} cells at {' and '.join(named)}", shard)


def leftovers(run_folder: Path) -> list[Unasked]:
    """List what interrupted runs left half written; only while nothing is at work."""
    return [
        Unasked(path, "left half written by an interrupted run")
        for path in sorted(run_folder.rglob("*"))
        if (path.suffix == ".partial" or (path.name.startswith(".") and path.parts[-2] != "locks"))
        and not any(part.startswith(".") for part in path.relative_to(run_folder).parts[:-1])
    ]


def size(found: Unasked) -> int:
    """Return the bytes that lie there; of a shard's store, those of all its cells."""
    files = found.path.rglob("*") if found.path.is_dir() else [found.path]
    return sum(path.lstat().st_size for path in files if path.is_file())


def prune(found: Iterable[Unasked], config: Config) -> None:
    """Remove what `unasked` and `leftovers` found; nothing that the config asks for is touched."""
    for one in found:
        if one.shard is not None:
            _drop(one.path, config, one.shard)
        elif one.path.is_dir():
            shutil.rmtree(one.path)
        else:
            one.path.unlink(missing_ok=True)


def _drop(path: Path, config: Config, shard: Shard) -> None:
    """Drop cells; a kill meanwhile leaves no simulate.done, so that the next run looks again."""
    done = path.with_name("simulate.done")
    counted = read_done(done)
    if counted is None:
        drop_cells(path, config, shard)
        return
    written = done.stat()
    count_pruning(done.parent)
    done.unlink()
    drop_cells(path, config, shard)
    for name, asked in (("betas", shard.betas), ("seeds", shard.seeds)):
        counted[name] = [value for value in counted[name] if value in asked]
    counted["cells"] = len(counted["betas"]) * len(counted["seeds"])
    write_json(done, seal(counted))
    os.utime(done, ns=(written.st_atime_ns, written.st_mtime_ns))  # nothing after it is made again
