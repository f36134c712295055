"""Print how plan, the Snakefile, the dry run, status and reading grow with the number of cells.

    python tests/benchmarks/scale.py [shards ...]

Seconds are those of the processor, so that other work on the machine does not count.
Each shard has 100 cells; 100 and 1000 shards if none are given. A shard's store is made once and
linked under the others' names, so that nothing but the book-keeping takes time.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import yaml

from mfsweep import open_results
from mfsweep.sweep import store
from mfsweep.sweep.cell import run_cell, start
from mfsweep.sweep.config import load_config
from mfsweep.sweep.folder import claim, shard_folder
from mfsweep.sweep.grid import shards
from mfsweep.sweep.status import shard_status
from mfsweep.sweep.unasked import unasked

ROOT = Path(__file__).parents[2]
PARSE = "from mfsweep.sweep import figures, grid; from mfsweep.sweep.config import load_config; "


def write(folder, count):
    grid = {
        "family": ["a"],
        "d": [2],
        "gap": [round((i + 1) / (count + 1), 6) for i in range(count)],
        "n_tokens": [8],
        "beta": {"geom": [1, 100, 10]},
        "seed": 10,
    }
    families, times = {"a": {"kind": "aligned"}}, {"t_end": 1.0, "n_times": 3}
    config = {"run": "big", "grid": grid, "families": families, "time": times}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return folder / "config.yaml"


def fill(file, folder):
    """Make the first shard's store and link it under the names of the others."""
    config = load_config(file)
    claim(folder, file, config)
    first, *others = shards(config)
    path = shard_folder(folder, first) / "trajectories.zarr"
    store.prepare(path, config, first, {k: start(config, first, k)[1] for k in first.seeds})
    for cell in first.cells():
        store.write_cell(path, cell, partial(run_cell, config, cell))
    for shard in others:
        copy = shard_folder(folder, shard) / "trajectories.zarr"
        shutil.copytree(path, copy, copy_function=os.link)  # signing replaces, never rewrites
        store.sign(copy, config, shard)
    return config, path


def processor():
    """Seconds of this process and of its children that have ended."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def seconds(task, *arguments):
    began = processor()
    task(*arguments)
    return processor() - began


def snakemake(folder, *arguments):
    command = [sys.executable, "-m", "snakemake", "--cores", "2", "--quiet"]
    options = ["--snakefile", ROOT / "Snakefile", "--configfile", folder / "config.yaml"]
    subprocess.run([*command, *options, *arguments], cwd=folder, check=True, capture_output=True)


def mfsweep(folder, *arguments):
    command = [sys.executable, "-m", "mfsweep", *arguments, "--config", "config.yaml"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def parse(file):
    """Do what the Snakefile does when it is read, in a process of its own."""
    subprocess.run(
        [sys.executable, "-c", f"{PARSE} c = load_config({str(file)!r}); list(grid.shards(c))"],
        check=True,
    )


def measure(count, *, filled):
    """Return seconds by name, and files by cell, for one number of shards."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = write(folder, count)
        found = {
            "parse": seconds(parse, file),
            "snakemake --list": seconds(snakemake, folder, "--list"),
            "snakemake -n": seconds(snakemake, folder, "-n"),
            "plan": seconds(mfsweep, folder, "plan"),
        }
        if filled:
            run = folder / "results/big"
            config, path = fill(file, run)
            found["status"] = seconds(shard_status, config, run) + seconds(unasked, config, run)
            found["open_results"] = seconds(open_results, run)
            chunks = sum(p.is_file() for p in path.rglob("*")) - len(list(path.rglob("zarr.json")))
            found["files a cell"] = chunks / 100
    return found


def main():
    counts = [int(text) for text in sys.argv[1:]] or [100, 1000]
    before = {}
    for count in counts:
        found = measure(count, filled=count <= 100)
        print(f"{count} shards, {100 * count} cells")
        for name, value in found.items():
            growth = f"   x {value / before[name]:.1f}" if name in before else ""
            print(f"  {name:18} {value:8.2f}{growth}")
        print(json.dumps({"shards": count, **found}), file=sys.stderr)
        before = found


if __name__ == "__main__":
    main()
