"""The only room that touches Zarr: create, grow, fill, read and check the stores of a run.

- ``arrays``: groups and arrays as every store has them.
- ``whole``: stores that are written whole beside their place and moved there.
- ``trajectories``: a shard's cells. The shard's job creates the store from the template (or grows
  it) and alone writes metadata; workers fill disjoint whole files, one cell a file of an array, and
  the cell's status byte last.
- ``tokens``: a cell's tokens, written block by block as time goes on.
- ``states``: which cells are done, fast.
- ``drop``: a shard's store without the cells that nobody asks for.
- ``integrity``: what is damaged. Chunks carry crc32c, attributes a seal, and an array's metadata
  must equal the template's.
"""

from mfsweep.sweep.store.drop import drop_cells
from mfsweep.sweep.store.integrity import Damage, trajectories_damage, unreadable, whole_damage
from mfsweep.sweep.store.states import cell_states, mean_seconds
from mfsweep.sweep.store.trajectories import (
    axes,
    erase_mass,
    mark_cell,
    prepare,
    read_cell,
    read_continuum,
    sign,
    stored_settings,
    write_cell,
    write_continuum,
)
from mfsweep.sweep.store.whole import attributes, read_whole, write_whole

__all__ = [
    "Damage",
    "attributes",
    "axes",
    "cell_states",
    "drop_cells",
    "erase_mass",
    "mark_cell",
    "mean_seconds",
    "prepare",
    "read_cell",
    "read_continuum",
    "read_whole",
    "sign",
    "stored_settings",
    "trajectories_damage",
    "unreadable",
    "whole_damage",
    "write_cell",
    "write_continuum",
    "write_whole",
]
