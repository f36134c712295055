"""Where cells run: what is refused, in one line and in time, and what listens to whom."""

import json
import logging
import os
import socket
import subprocess
import sys
import time

import psutil
import pytest
from tiny_run import mfsweep, write_config

from mfsweep._errors import InputError, StoreError
from mfsweep.sweep import execute, workers
from mfsweep.sweep.config import load_config
from mfsweep.sweep.failures import failures
from mfsweep.sweep.folder import shard_folder
from mfsweep.sweep.grid import shards
from mfsweep.sweep.layout import DONE, FAILED
from mfsweep.sweep.slurm import seconds_of
from mfsweep.sweep.store import cell_states
from mfsweep.sweep.workers import Slurm, Workers, connect, scheduler_file

SCHEDULER = """
import asyncio, sys
from distributed import Scheduler, Worker
import distributed.versions as versions
if len(sys.argv) > 2:
    known = versions._version_cached
    versions._version_cached = lambda name: "1.0" if name == sys.argv[2] else known(name)
async def main():
    async with Scheduler(host="127.0.0.1", dashboard_address="127.0.0.1:0") as scheduler:
        async with Worker(scheduler.address, nthreads=1, dashboard_address="127.0.0.1:0"):
            open(sys.argv[1], "w").write('{"address": "%s"}' % scheduler.address)
            print("up", flush=True)
            await scheduler.finished()
asyncio.run(main())
"""


@pytest.fixture
def scheduler(tmp_path):
    """Return a function that starts a scheduler with a worker; its file, and its process."""
    started = []

    def start(*arguments):
        file = tmp_path / "scheduler.json"
        command = [sys.executable, "-c", SCHEDULER, file, *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        started.append(process)
        assert process.stdout.readline() == b"up\n"
        return file, process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def told(capsys, *arguments):
    """Run the command line; return the one line that it ends with, and the seconds that it took."""
    began = time.monotonic()
    assert mfsweep(*arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line, time.monotonic() - began


def simulate(tmp_path, *arguments):
    file = tmp_path / "config.yaml"
    return "simulate", "--config", file, "--results", tmp_path / "results", *arguments


def test_a_scheduler_file_of_a_cluster_that_ended_is_refused(
    tmp_path, scheduler, capsys, monkeypatch
):
    monkeypatch.setattr(workers, "CONNECT_SECONDS", 2)
    write_config(tmp_path)
    file, process = scheduler()
    process.kill()
    process.wait()
    line, _ = told(capsys, *simulate(tmp_path, "--scheduler-file", file))
    assert f"--scheduler-file {file}: the scheduler at tcp://127.0.0.1:" in line
    assert "does not answer" in line
    assert "start it, or name one that runs" in line


def test_a_port_that_listens_and_says_nothing_is_refused_within_half_a_minute(tmp_path, capsys):
    write_config(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        line, seconds = told(capsys, *simulate(tmp_path, "--dask-address", address))
    assert f"--dask-address {address}: the scheduler at {address} does not answer" in line
    assert seconds < 30


@pytest.mark.parametrize("text", [None, "", "{}", "[1]", '{"address": "nowhere://x"}'])
def test_a_scheduler_file_that_names_no_scheduler_is_refused(text, tmp_path, capsys):
    write_config(tmp_path)
    file = tmp_path / "scheduler.json"
    if text is not None:
        file.write_text(text)
    line, _ = told(capsys, *simulate(tmp_path, "--scheduler-file", file))
    assert line.startswith(f"mfsweep: --scheduler-file {file}")


@pytest.mark.parametrize("package", ["distributed", "zarr"])
def test_workers_of_other_versions_are_refused(package, tmp_path, scheduler, capsys):
    write_config(tmp_path)
    file, _ = scheduler(package)
    line, _ = told(capsys, *simulate(tmp_path, "--scheduler-file", file))
    assert f" has {package} 1.0, this process has " in line
    assert "start the cluster from this environment" in line


def test_a_scheduler_that_ends_in_the_middle_stops_the_run_and_fails_no_cell(tmp_path, scheduler):
    grid = {"d": [3], "n_tokens": [250], "beta": [4.0], "seed": 200}
    config = load_config(write_config(tmp_path, grid=grid, time={"t_end": 40.0, "n_times": 3}))
    (shard,) = shards(config)
    file, process = scheduler()

    def end_it(outcome, total):
        if outcome.computed == 2:
            process.kill()

    with pytest.raises(StoreError, match=r"the Dask scheduler is gone; run again: finished"):
        execute.simulate_shard(config, shard, tmp_path, Workers(scheduler_file=file), end_it)
    states = cell_states(shard_folder(tmp_path, shard) / "trajectories.zarr", shard)
    assert list(states.values()).count(DONE) >= 2
    assert FAILED not in states.values()


def test_a_cell_that_fails_three_times_is_given_up_and_one_that_fails_twice_is_not(
    tmp_path, monkeypatch
):
    config = load_config(write_config(tmp_path, grid={"beta": [4.0], "seed": 3}))
    (shard,) = shards(config)
    run_cell, tries = execute.run_cell, []

    def failing(config, cell, keep):
        tries.append(cell.seed)
        if cell.seed == 1 or (cell.seed == 2 and tries.count(2) < 3):
            message = "no luck"
            raise ValueError(message)
        return run_cell(config, cell, keep)

    monkeypatch.setattr(execute, "run_cell", failing)
    outcome = execute.simulate_shard(config, shard, tmp_path, Workers(1), lambda *_: None)
    assert outcome.failures == [f"{shard.id} beta = 4 seed = 1: ValueError: no luck"]
    assert [tries.count(seed) for seed in (0, 1, 2)] == [1, 3, 3]
    folder = shard_folder(tmp_path, shard)
    assert failures(folder) == {(4.0, 1): "ValueError: no luck"}
    assert cell_states(folder / "trajectories.zarr", shard)[4.0, 1] == FAILED
    monkeypatch.undo()
    outcome = execute.simulate_shard(config, shard, tmp_path, Workers(1), lambda *_: None)
    assert (outcome.computed, outcome.failures, failures(folder)) == (1, [], {})


def test_a_worker_killed_for_memory_is_told_as_cell_estimate_limit_and_remedy(tmp_path, capsys):
    write_config(tmp_path, grid={"beta": [4.0], "seed": 1})
    assert mfsweep(*simulate(tmp_path, "--cores", "1", "--memory", "200MB")) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert (
        "beta = 4 seed = 0: its worker died 3 times, most likely for memory: an estimated" in line
    )
    assert "0.27 GB of the 0.20 GB that a worker has; give more --memory" in line
    assert mfsweep("status", *simulate(tmp_path)[1:]) == 0
    assert "beta = 4 seed = 0: its worker died 3 times" in capsys.readouterr().out


@pytest.mark.parametrize(("count", "sockets"), [(1, 3), (2, 5)])
def test_local_workers_listen_on_this_machine_only(count, sockets):
    known = {id(one) for one in psutil.Process().net_connections("tcp")}
    with connect(Workers(count)) as client:
        assert client.submit(sum, [1, 2]).result() == 3
        processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
        listening = [
            one.laddr.ip
            for process in processes
            for one in process.net_connections("tcp")
            if one.status == psutil.CONN_LISTEN and id(one) not in known
        ]
    assert len(listening) >= sockets
    assert set(listening) == {"127.0.0.1"}


def test_a_scheduler_file_is_its_owners_alone_and_goes_with_the_cluster(tmp_path):
    class Cluster:
        scheduler_address = "tls://127.0.0.1:1"

        class security:
            tls_ca_file, tls_client_cert, tls_client_key = "a", "b", "c"

    path = tmp_path / "scheduler.json"
    with scheduler_file(path, Cluster):
        assert path.stat().st_mode & 0o777 == 0o600
        address, security = workers._read_scheduler_file(path)
        assert address == "tls://127.0.0.1:1"
        assert (security.tls_client_key, security.require_encryption) == ("c", True)
        assert json.loads(path.read_text())["tls"]["tls_ca_file"] == "a"
    assert not path.exists()


REFUSED = {
    "another engine": (("--dask", "kubernetes"), "--dask kubernetes: must be slurm"),
    "SLURM unasked": (("--partition", "p"), "--partition p: asks SLURM; add --dask slurm"),
    "two places": (
        ("--dask", "slurm", "--dask-address", "tcp://a:1"),
        "--dask-address and --dask exclude each other",
    ),
    "cores of others": (("--dask-address", "tcp://a:1", "--cores", "2"), "--cores 2: "),
    "memory": (("--memory", "much"), "--memory much: must be a number and a unit, such as 4GB"),
    "too little memory": (("--memory", "1MB"), "at least 200 MB"),
    "walltime": (("--dask", "slurm", "--walltime", "soon"), "--walltime soon: must be minutes"),
    "interface": (("--dask", "slurm", "--interface", "no0"), "--interface no0: 'no0' is not"),
    "fewer than least": (
        ("--dask", "slurm", "--min-workers", "3", "--max-workers", "2"),
        "--min-workers 3: must be at most --max-workers 2",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_options_that_cannot_be_followed_are_refused(name, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("mfsweep.sweep.sbatch.shutil.which", lambda _: "/bin/true")
    write_config(tmp_path)
    options, expected = REFUSED[name]
    line, _ = told(capsys, *simulate(tmp_path, *options))
    assert expected in line


def test_without_sbatch_the_line_says_where_to_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    write_config(tmp_path)
    line, _ = told(capsys, *simulate(tmp_path, "--dask", "slurm"))
    assert "there is no sbatch on the path: run this where SLURM jobs are submitted" in line


def test_slurm_that_does_not_answer_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("mfsweep.sweep.sbatch.SUBMIT_SECONDS", 1)
    sbatch = tmp_path / "sbatch"
    sbatch.write_text("#!/bin/sh\nexec sleep 30\n")
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with (
        pytest.raises(InputError, match="sbatch did not answer in 1 s"),
        workers.shared(Workers(slurm=Slurm(1e9, interface="lo")), tmp_path / "logs"),
    ):
        pass


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 5400), ("2:30", 150), ("1:00:00", 3600), ("1-0", 86400), ("1-1:1:1", 90061)],
)
def test_walltimes_are_read_as_slurm_reads_them(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "1h", "-5", "1:2:3:4", "a-b"])
def test_what_is_no_walltime_is_refused(text):
    with pytest.raises(InputError, match="must be minutes"):
        seconds_of(text)


def _level():
    return logging.getLogger("distributed.worker").getEffectiveLevel()


def test_workers_that_are_stopped_log_no_traceback_of_a_scheduler_that_is_gone():
    with connect(Workers(2)) as client:
        assert set(client.run(_level).values()) == {logging.CRITICAL}


def test_cells_run_seed_by_seed_for_the_sake_of_the_time_left(tmp_path, monkeypatch):
    config = load_config(write_config(tmp_path, grid={"beta": [4.0, 8.0], "seed": 3}))
    (shard,) = shards(config)
    run_cell, ran = execute.run_cell, []

    def noted(config, cell, keep):
        ran.append((cell.seed, cell.beta))
        return run_cell(config, cell, keep)

    monkeypatch.setattr(execute, "run_cell", noted)
    execute.simulate_shard(config, shard, tmp_path, Workers(1), lambda *_: None)
    assert ran == [(seed, beta) for seed in range(3) for beta in (4.0, 8.0)]
