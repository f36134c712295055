"""A shard's store without the cells that nobody asks for."""

import os
from pathlib import Path
from typing import Any

from mfsweep._errors import StoreError
from mfsweep.sweep.config import Config
from mfsweep.sweep.grid import Shard
from mfsweep.sweep.layout import CELL_DIMS, trajectories
from mfsweep.sweep.store.arrays import naming_damage, open_group, partial_folder, put_in_place
from mfsweep.sweep.store.trajectories import create_trajectories


def drop_cells(path: Path, config: Config, shard: Shard) -> None:
    """Remove the betas and seeds that the shard does not ask for.

    The successor is made beside the store: new metadata, and the chunks of the cells that stay as
    further names of the same files. Then it takes the store's place.

    Raises
    ------
    StoreError
        If the file system knows no hard links.
    """
    with naming_damage(path):
        group = open_group(path, "r")
        betas = [beta for beta in group["beta"][:].tolist() if beta in shard.betas]
        seeds = [seed for seed in group["seed"][:].tolist() if seed in shard.seeds]
        kept = {
            "beta": [group["beta"][:].tolist().index(beta) for beta in betas],
            "seed": [group["seed"][:].tolist().index(seed) for seed in seeds],
        }
        partial = partial_folder(path)
        attrs = {key: value for key, value in group.attrs.items() if key != "seal"}
        create_trajectories(partial, config, shard, attrs, betas, seeds)
    for name, variable in trajectories(shard.n_tokens).items():
        _link_chunks(path / name / "c", partial / name / "c", variable.dims, kept)
    put_in_place(partial, path)


def _link_chunks(old: Path, new: Path, dims: tuple[str, ...], kept: dict[str, Any]) -> None:
    """Name the chunks of the cells that stay by their new place."""
    for chunk in old.rglob("*"):
        if not chunk.is_file() or chunk.suffix == ".partial":
            continue
        at = [int(step) for step in chunk.relative_to(old).parts]
        if any(dim in CELL_DIMS and i not in kept[dim] for dim, i in zip(dims, at, strict=True)):
            continue
        moved = [
            kept[dim].index(i) if dim in CELL_DIMS else i for dim, i in zip(dims, at, strict=True)
        ]
        target = new.joinpath(*map(str, moved))
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(chunk, target)
        except OSError as error:
            message = f"{target}: cannot link the kept chunk ({error.strerror}); nothing removed"
            raise StoreError(message) from error
