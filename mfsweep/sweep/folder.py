"""A run's folder: whose it is, where its parts lie, and what made them."""

import hashlib
import json
import os
import platform
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mfsweep import __version__
from mfsweep._errors import InputError, StoreError
from mfsweep.sweep.config import Config
from mfsweep.sweep.grid import (
    NUMERICS_VERSION,
    Shard,
    cell_digest,
    config_digest,
    simulate_digest,
)

COLLECTED = ("curves", "switch_times", "laws", "bound")
"""Stores of a run that are made from its shards."""
CLOCK_SECONDS = 120.0
"""By how much the clocks of two machines may differ."""
_LIBRARIES = ("dask", "distributed", "numba", "numpy", "POT", "scipy", "xarray", "zarr")


@cache
def _software() -> dict[str, Any]:
    """Versions of the package, its source and its libraries."""
    source = {"git_commit": "unknown", "git_dirty": False}
    if _git("ls-files", Path(__file__).name):  # not some other repository around an installation
        source = {
            "git_commit": _git("rev-parse", "HEAD") or "unknown",
            "git_dirty": bool(_git("status", "--porcelain", ":/")),
        }
    libraries = {name: version(name) for name in _LIBRARIES} | {"python": platform.python_version()}
    return {"mfsweep_version": __version__, **source, "library_versions": json.dumps(libraries)}


def _git(*arguments: str) -> str:
    """Ask git about this package's source; nothing where there is no git or no repository."""
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def provenance(config: Config) -> dict[str, Any]:
    """Return the attributes that every store carries: what made it, from which config."""
    return {
        "Conventions": "CF-1.11",
        "run": config.run,
        "config_digest": config_digest(config),
        "config": config.model_dump_json(exclude_none=True),
        "numerics_version": NUMERICS_VERSION,
        **_software(),
    }


def seal(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value with a digest of itself, by which `intact` knows it again.

    >>> intact(seal({"digest": "e0"})), intact(seal({"digest": "e0"}) | {"digest": "e1"})
    (True, False)
    """
    text = json.dumps({k: v for k, v in value.items() if k != "seal"}, sort_keys=True)
    return {**value, "seal": hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}


def intact(value: Mapping[str, Any]) -> bool:
    """Tell whether a sealed value reads as it was written."""
    return bool(value["seal"] == seal(value)["seal"])


def shard_folder(run_folder: Path, shard: Shard) -> Path:
    """Return the folder of one shard's stores."""
    return run_folder / "shards" / shard.id


def claim(run_folder: Path, config_file: Path, config: Config) -> None:
    """Make the run's folder and note which config file owns it, or refuse.

    Raises
    ------
    InputError
        If the folder cannot be written, or belongs to another config file.
    """
    marker = run_folder / "run.json"
    owner = check_claim(run_folder, config_file, config)
    try:
        run_folder.mkdir(parents=True, exist_ok=True)
        write_json(marker, seal(owner))
    except OSError as error:
        message = (
            f"results folder {run_folder} cannot be written ({error.strerror}): choose another"
        )
        raise InputError(message) from error


def owner_record(run_folder: Path, config_file: Path, config: Config) -> dict[str, str]:
    """Return what run.json says of the config that owns the folder."""
    return {
        "config_file": os.path.relpath(config_file.absolute(), run_folder.absolute()),
        "config_digest": config_digest(config),
    }


def check_claim(run_folder: Path, config_file: Path, config: Config) -> dict[str, str]:
    """Return the run's owner record; refuse a folder of another config without touching it."""
    owner = owner_record(run_folder, config_file, config)
    existing = next((p for p in (run_folder, *run_folder.absolute().parents) if p.exists()), None)
    if existing is None or not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        message = f"results folder {run_folder} cannot be written: choose another with --results"
        raise InputError(message)
    marker = run_folder / "run.json"
    occupied = any(_foreign(run_folder))  # asked first: a job beside this one marks, then writes
    if not occupied and not marker.exists():
        return owner
    _check_clock(run_folder)
    remedy = f"choose another name for run, or move {run_folder} away"
    found = _read_sealed(marker)
    if found is None:
        message = f"run = {config.run!r}: {run_folder} was not made by mfsweep; {remedy}"
        raise InputError(message)
    if found["config_file"] != owner["config_file"] and (
        found["config_digest"] != owner["config_digest"]
    ):
        made_by = (run_folder / found["config_file"]).resolve()
        message = (
            f"run = {config.run!r}: {run_folder} was made by another config, {made_by}; {remedy}"
        )
        raise InputError(message)
    return owner


def _check_clock(run_folder: Path) -> None:
    """Refuse a folder whose marks of what is done come from the future.

    Snakemake orders files by their times and would run the same rules again and again.
    """
    now = time.time()
    for mark in (run_folder / "run.json", *run_folder.glob("shards/*/*.done")):
        try:
            ahead = mark.stat().st_mtime - now
        except FileNotFoundError:
            continue
        if ahead > CLOCK_SECONDS:
            message = (
                f"{mark} is dated {ahead / 60:.0f} min after this machine's clock: set the clock, "
                f"or if it is right, run: find {run_folder} -exec touch {{}} +"
            )
            raise InputError(message)


def _foreign(run_folder: Path) -> Iterator[Path]:
    """Yield files that only an owner writes: all but logs, locks, a marker in the making."""
    for folder, _, files in os.walk(run_folder):
        if Path(folder) not in (run_folder / "logs", run_folder / "locks"):
            yield from (Path(folder, name) for name in files if not name.startswith(".run.json."))


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file in one atomic step."""
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    partial.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")
    partial.replace(path)


def write_done(path: Path, config: Config, digest: str, **more: Any) -> None:
    """Write a .done file: the digest of what is done, and the versions that did it."""
    made_by = provenance(config)
    keys = ("mfsweep_version", "numerics_version", "git_commit", "git_dirty", "library_versions")
    versions = {key: made_by[key] for key in keys}
    write_json(path, seal({"digest": digest, "versions": versions, **more}))


def read_done(path: Path) -> dict[str, Any] | None:
    """Return what a .done file says, or None where there is none.

    Raises
    ------
    StoreError
        If the file does not read as it was written.
    """
    return _read_sealed(path)


def _read_sealed(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
        sound = intact(found)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        sound = False
    if not sound:
        message = f"{path} is damaged: run mfsweep verify --repair"
        raise StoreError(message)
    return found


def is_done(path: Path, digest: str) -> bool:
    """Tell whether a .done file says that just this is done."""
    found = read_done(path)
    return found is not None and found["digest"] == digest


def simulated(run_folder: Path, config: Config, shard: Shard) -> dict[str, Any] | None:
    """Return what simulate.done says if it counts every cell that the shard asks for, or more."""
    found = read_done(shard_folder(run_folder, shard) / "simulate.done")
    if found is None or found.get("cell_digest") != cell_digest(config, shard):
        return None
    asked = {*shard.betas} <= {*found["betas"]} and {*shard.seeds} <= {*found["seeds"]}
    return found if asked else None


def write_simulated(run_folder: Path, config: Config, shard: Shard, stale: int) -> None:
    """Write simulate.done: which cells are done, and how many of them are stale."""
    write_done(
        shard_folder(run_folder, shard) / "simulate.done",
        config,
        simulate_digest(config, shard, _prunings(run_folder, shard)),
        cells=len(shard.betas) * len(shard.seeds),
        cell_digest=cell_digest(config, shard),
        betas=shard.betas,
        seeds=shard.seeds,
        stale=stale,
    )


def simulate_mark(run_folder: Path, config: Config, shard: Shard) -> str:
    """Return the digest by which Snakemake knows a shard's simulation.

    It stays for as long as simulate.done counts every cell that is asked for: a smaller grid has
    nothing to simulate.
    """
    try:
        if found := simulated(run_folder, config, shard):
            return str(found["digest"])
        return simulate_digest(config, shard, _prunings(run_folder, shard))
    except StoreError:  # mfsweep verify names it
        return simulate_digest(config, shard)


def count_pruning(folder: Path) -> None:
    """Note that a shard loses cells that were counted as done."""
    path = folder / "pruned.json"
    times = (_read_sealed(path) or {"times": 0})["times"]
    write_json(path, seal({"times": times + 1}))


def _prunings(run_folder: Path, shard: Shard) -> int:
    found = _read_sealed(shard_folder(run_folder, shard) / "pruned.json")
    return int(found["times"]) if found else 0


def holds_stale(run_folder: Path, shard: Shard) -> bool:
    """Tell whether a shard may hold cells of another numerics version, as its mark says.

    A shard without a mark may: it is unfinished.
    """
    found = read_done(shard_folder(run_folder, shard) / "simulate.done")
    if found is None:
        return True
    return bool(found["stale"]) or found["versions"]["numerics_version"] != NUMERICS_VERSION
