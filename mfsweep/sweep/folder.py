"""A run's folder: whose it is, where its parts lie, and what made them."""

import json
import os
import platform
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mfsweep import __version__
from mfsweep._errors import InputError
from mfsweep.sweep.config import Config
from mfsweep.sweep.grid import NUMERICS_VERSION, Shard, config_digest

_LIBRARIES = ("dask", "distributed", "numba", "numpy", "POT", "scipy", "xarray", "zarr")


@cache
def _software() -> dict[str, Any]:
    """Versions of the package, its source and its libraries."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True)
        state = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True)
        source = {"git_commit": commit.stdout.strip() or "unknown", "git_dirty": bool(state.stdout)}
    except OSError:
        source = {"git_commit": "unknown", "git_dirty": False}
    libraries = {name: version(name) for name in _LIBRARIES} | {"python": platform.python_version()}
    return {"mfsweep_version": __version__, **source, "library_versions": json.dumps(libraries)}


def provenance(config: Config) -> dict[str, Any]:
    """Return the attributes that every store carries: what made it, from which config."""
    return {
        "Conventions": "CF-1.11",
        "run": config.run,
        "config_digest": config_digest(config),
        "config": config.model_dump_json(),
        "numerics_version": NUMERICS_VERSION,
        **_software(),
    }


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
        write_json(marker, owner)
    except OSError as error:
        message = (
            f"results folder {run_folder} cannot be written ({error.strerror}): choose another"
        )
        raise InputError(message) from error


def check_claim(run_folder: Path, config_file: Path, config: Config) -> dict[str, str]:
    """Return the run's owner record; refuse a folder of another config without touching it."""
    owner = {
        "config_file": os.path.relpath(config_file.absolute(), run_folder.absolute()),
        "config_digest": config_digest(config),
    }
    existing = next((p for p in (run_folder, *run_folder.absolute().parents) if p.exists()), None)
    if existing is None or not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        message = f"results folder {run_folder} cannot be written: choose another with --results"
        raise InputError(message)
    marker = run_folder / "run.json"
    occupied = any(_foreign(run_folder))  # asked first: a job beside this one marks, then writes
    if not occupied and not marker.exists():
        return owner
    remedy = f"choose another name for run, or move {run_folder} away"
    try:
        found = json.loads(marker.read_text())
    except (OSError, ValueError) as error:
        message = f"run = {config.run!r}: {run_folder} was not made by mfsweep; {remedy}"
        raise InputError(message) from error
    if found["config_file"] != owner["config_file"] and (
        found["config_digest"] != owner["config_digest"]
    ):
        made_by = (run_folder / found["config_file"]).resolve()
        message = (
            f"run = {config.run!r}: {run_folder} was made by another config, {made_by}; {remedy}"
        )
        raise InputError(message)
    return owner


def _foreign(run_folder: Path) -> Iterator[Path]:
    """Yield files that only an owner writes: all but logs and a marker in the making."""
    for folder, _, files in os.walk(run_folder):
        if Path(folder) != run_folder / "logs":
            yield from (Path(folder, name) for name in files if not name.startswith(".run.json."))


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file in one atomic step."""
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    partial.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")
    partial.replace(path)


def read_done(path: Path) -> dict[str, Any] | None:
    """Return what a .done file says, or None where there is none."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return found
