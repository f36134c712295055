"""The command line with cells that take half a second more: python slow.py simulate ..."""

import time

from mfsweep.cli import main
from mfsweep.sweep import execute

run_cell = execute.run_cell


def slow(config, cell, keep):
    time.sleep(0.5)
    return run_cell(config, cell, keep)


if __name__ == "__main__":
    execute.run_cell = slow
    main()
