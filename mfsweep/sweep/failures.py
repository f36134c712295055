"""Why cells of a shard failed: written by the shard's job, read by status and report."""

import json
from pathlib import Path

from mfsweep._errors import StoreError
from mfsweep.sweep.folder import write_json
from mfsweep.sweep.grid import Cell

_NAME = "failures.json"


def add_failure(folder: Path, cell: Cell, reason: str) -> None:
    """Note why a cell of the shard in this folder failed, in place of an earlier reason."""
    known = failures(folder) | {(cell.beta, cell.seed): reason}
    listed = [{"beta": repr(b), "seed": s, "reason": why} for (b, s), why in known.items()]
    write_json(folder / _NAME, {"failures": listed})


def failures(folder: Path) -> dict[tuple[float, int], str]:
    """Return why cells failed by (beta, seed), those included that have been computed since.

    Raises
    ------
    StoreError
        If the file is damaged.
    """
    path = folder / _NAME
    try:
        listed = json.loads(path.read_bytes())["failures"]
        return {(float(one["beta"]), int(one["seed"])): str(one["reason"]) for one in listed}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError) as error:
        message = f"{path} is damaged: remove it"
        raise StoreError(message) from error


def forget_failures(folder: Path) -> None:
    """Forget why cells failed: none is failed any more."""
    (folder / _NAME).unlink(missing_ok=True)
