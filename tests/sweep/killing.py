"""Runs a sweep in forked children that can be killed: imports and kernels are loaded once.

Reads lines `seconds` from standard input. For each it forks a child that simulates every shard with
one Dask worker, kills it by SIGKILL after so many seconds (never, if negative), and prints JSON:
whether it was killed, and the cells that it began.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path


def child(config, folder, journal):
    from mfsweep.sweep import execute
    from mfsweep.sweep.grid import shards

    run_cell = execute.run_cell

    def journalled(config, cell, keep):
        with journal.open("a") as file:
            file.write(f"{cell.beta} {cell.seed}\n")
        time.sleep(0.02)  # so that a random moment is likely to fall into a cell
        return run_cell(config, cell, keep)

    execute.run_cell = journalled
    for shard in shards(config):
        execute.simulate_shard(config, shard, folder, execute.Workers(1), lambda *_: None)


def main(config_file, folder, journal):
    import distributed  # noqa: F401

    from mfsweep.dynamics.simulate import compile_kernels
    from mfsweep.sweep import execute  # noqa: F401
    from mfsweep.sweep.config import load_config

    config = load_config(config_file)
    compile_kernels(2)
    for line in sys.stdin:
        journal.write_text("")
        pid = os.fork()
        if pid == 0:
            child(config, folder, journal)
            os._exit(0)
        if float(line) >= 0:
            time.sleep(float(line))
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        began = journal.read_text().splitlines()
        told = {"killed": os.WIFSIGNALED(status), "code": status, "began": began}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
