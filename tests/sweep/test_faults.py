"""What the machine may refuse: one line that names it, finished cells intact, resume afterwards."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import xarray as xr
from tiny_run import mfsweep, run_all, simulate, write_config

from mfsweep.sweep import execute
from mfsweep.sweep.config import load_config
from mfsweep.sweep.grid import shards
from mfsweep.sweep.layout import DONE
from mfsweep.sweep.store import cell_states
from mfsweep.sweep.verify import damage

LARGE = {"grid": {"n_tokens": [64], "seed": 8}, "time": {"t_end": 2.0, "n_times": 50}}


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 700 kB; a function that mounts it anew with other options."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(options):
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder]
        return subprocess.run(command, capture_output=True).returncode

    if os.geteuid() != 0 or mount("size=700k"):
        pytest.skip("only root may mount the small file system that this test fills")
    yield folder, lambda options: mount(f"remount,{options}")
    subprocess.run(["umount", "-l", folder], check=True)


def store(config, folder):
    return folder / "tiny/shards" / shards(config)[0].id / "trajectories.zarr"


def done(config, folder):
    return list(cell_states(store(config, folder), shards(config)[0]).values()).count(DONE)


def refused(capsys, file, folder, verb="simulate"):
    """The one line with which a verb ends."""
    capsys.readouterr()
    workers = () if verb == "collect" else ("--cores", 1)
    assert mfsweep(verb, "--config", file, "--results", folder, *workers) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("mfsweep:")]
    assert len(lines) == 1, lines
    return lines[0]


def test_a_full_disk_is_one_error_and_finished_cells_are_kept(small_disk, tmp_path, capsys):
    disk, mount = small_disk
    file = write_config(tmp_path, **LARGE)
    config = load_config(file)
    assert "No space left on device" in (line := refused(capsys, file, disk))
    assert "free some space and run again: finished cells are kept" in line
    kept = done(config, disk)
    assert 0 < kept < 16
    assert not store(config, disk).with_name("simulate.done").exists()
    assert list(damage(config, disk / "tiny")) == []
    mount("size=8m")
    assert run_all(file, disk / "tiny") == 16 - kept
    simulate(config, tmp_path / "fresh/tiny")
    xr.testing.assert_identical(
        *(
            xr.open_zarr(store(config, folder), consolidated=False).load().drop_vars("stats")
            for folder in (disk, tmp_path / "fresh")
        )
    )


@pytest.mark.parametrize(("verb", "before"), [("measure", ()), ("collect", ("measure",))])
def test_a_disk_that_fills_later_is_one_error_and_what_was_finished_is_kept(
    small_disk, tmp_path, capsys, verb, before
):
    disk, mount = small_disk
    mount("size=8m")
    file = write_config(tmp_path)
    config = load_config(file)
    for earlier in ("simulate", *before):
        assert mfsweep(earlier, "--config", file, "--results", disk, "--cores", 1) == 0
    marks = {path.name for path in disk.rglob("*.done")}
    room = os.statvfs(disk)
    mount(f"size={(room.f_blocks - room.f_bfree + 8) * room.f_frsize}")
    line = refused(capsys, file, disk, verb)
    assert "No space left on device" in line
    assert "free some space and run again" in line
    assert {path.name for path in disk.rglob("*.done")} == marks
    assert list(damage(config, disk / "tiny")) == []
    mount("size=8m")
    assert run_all(file, disk / "tiny") == 0
    assert list(damage(config, disk / "tiny")) == []
    run_all(file, tmp_path / "fresh/tiny")
    one, other = (
        xr.open_zarr(folder / "tiny/switch_times.zarr", consolidated=False).load()
        for folder in (disk, tmp_path / "fresh")
    )
    xr.testing.assert_identical(one, other)


def at_cell(monkeypatch, number, action):
    """Do something when so many cells have begun."""
    begun = []
    write_cell = execute.write_cell

    def acting(path, cell, run):
        begun.append(cell)
        if len(begun) == number:
            action()
        return write_cell(path, cell, run)

    monkeypatch.setattr(execute, "write_cell", acting)


def test_a_file_system_that_turns_read_only_is_named(small_disk, tmp_path, capsys, monkeypatch):
    disk, mount = small_disk
    file = write_config(tmp_path)
    at_cell(monkeypatch, 3, lambda: mount("ro"))
    assert "Read-only file system" in refused(capsys, file, disk)
    config = load_config(file)
    assert done(config, disk) == 2
    assert mfsweep("simulate", "--config", file, "--results", disk) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"results folder {disk / 'tiny'} cannot be written" in line
    mount("rw,size=8m")
    assert run_all(file, disk / "tiny") == 2


def test_a_folder_deleted_during_the_run_is_named_and_the_next_run_starts_anew(
    tmp_path, capsys, monkeypatch
):
    file, folder = write_config(tmp_path), tmp_path / "results"
    at_cell(monkeypatch, 2, lambda: shutil.rmtree(folder / "tiny"))
    line = refused(capsys, file, folder)
    assert "No such file or directory" in line
    assert "moved or deleted" in line
    assert run_all(file, folder / "tiny") == 4
    assert list(damage(load_config(file), folder / "tiny")) == []


EXHAUST = """
import os, resource, sys
from mfsweep.sweep import execute
write_cell, begun = execute.write_cell, []
def hoarding(path, cell, run):
    begun.append(cell)
    if len(begun) == 3:
        most = max(map(int, os.listdir("/proc/self/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        hoard = []
        try:
            while True:
                hoard.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
    return write_cell(path, cell, run)
execute.write_cell = hoarding
from mfsweep.cli import main
main()
"""


def test_exhausted_file_handles_are_named(tmp_path):
    file, folder = write_config(tmp_path), tmp_path / "results"
    command = [sys.executable, "-c", EXHAUST, "simulate", "--config", file, "--results", folder]
    run = subprocess.run([*command, "--cores", "1"], capture_output=True, text=True, check=False)
    assert run.returncode == 1, run.stderr
    assert "Too many open files" in run.stderr
    assert "raise the limit of open files (ulimit -n)" in run.stderr
    assert "Traceback" not in run.stderr
    config = load_config(file)
    finished = done(config, folder)  # a cell that is tried again may find a handle
    assert finished in (2, 3)
    assert list(damage(config, folder / "tiny")) == []
    assert run_all(file, folder / "tiny") == 4 - finished


@pytest.mark.parametrize("mark", ["run.json", "simulate.done"])
def test_a_clock_set_back_is_named(tmp_path, capsys, mark):
    file, folder = write_config(tmp_path), tmp_path / "results"
    run_all(file, folder / "tiny")
    (path,) = (folder / "tiny").rglob(mark)
    later = time.time() + 3600
    os.utime(path, (later, later))
    capsys.readouterr()
    assert mfsweep("simulate", "--config", file, "--results", folder) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{path} is dated 60 min after this machine's clock" in line
    remedy = line.partition("run: ")[2]
    assert remedy == f"find {folder / 'tiny'} -exec touch {{}} +"
    subprocess.run(remedy, shell=True, check=True)
    assert run_all(file, folder / "tiny") == 0


def test_every_write_stays_in_the_results_folder(tmp_path, monkeypatch):
    """A name that would escape is refused; a weights file is only ever read."""
    outside = tmp_path / "outside"
    outside.mkdir()
    monkeypatch.chdir(tmp_path)
    for name in ("../outside", "/outside", "a/../../outside", "..", "."):
        file = write_config(tmp_path, run=name)
        assert mfsweep("simulate", "--config", file, "--results", tmp_path / "results") == 2
    for label in ("../x", "a/b", "/x", ".."):
        file = write_config(
            tmp_path, grid={"family": [label]}, families={label: {"kind": "aligned"}}
        )
        assert mfsweep("simulate", "--config", file, "--results", tmp_path / "results") == 2
    assert not list(outside.iterdir())
    assert not Path(tmp_path / "results").exists()
