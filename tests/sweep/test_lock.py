import json
import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest
from tiny_run import mfsweep, write_config

from mfsweep._errors import InputError
from mfsweep.sweep.lock import RUN, WORKFLOW, Holder, Lock, held

HOLD = """
import sys, time
from pathlib import Path
from mfsweep.sweep.lock import Lock
with Lock(Path(sys.argv[1]), sys.argv[2:], "mfsweep simulate"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def hold():
    """Return a function that holds parts of a run in another process."""
    processes = []

    def start(folder, *names):
        command = [sys.executable, "-c", HOLD, folder, *names]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def record(folder, name, **changes):
    """Write a lock by hand."""
    (folder / "locks").mkdir(parents=True, exist_ok=True)
    holder = {**vars(Holder.me("mfsweep simulate")), **changes}
    (folder / f"locks/{name}.json").write_text(json.dumps(holder))


def test_shards_of_one_run_are_held_side_by_side_and_each_once(tmp_path):
    with Lock(tmp_path, ["a"], "x"), Lock(tmp_path, ["b"], "x") as other:
        assert len(list(held(tmp_path))) == 2
        with pytest.raises(InputError, match="is in use"):
            Lock(tmp_path, other.names, "x").take()
    assert list(held(tmp_path)) == []


@pytest.mark.parametrize(
    ("first", "second"),
    [("a", RUN), ("a", WORKFLOW), (RUN, "a"), (RUN, RUN), (WORKFLOW, RUN), (RUN, WORKFLOW)],
)
def test_what_works_alone_and_what_works_beside_it_refuse_each_other(tmp_path, first, second):
    with Lock(tmp_path, [first], "x"):
        with pytest.raises(InputError, match="is in use"):
            Lock(tmp_path, [second], "x").take()
        assert [path.stem for path, _ in held(tmp_path)] == [first]
    Lock(tmp_path, [second], "x").take()


def test_jobs_of_snakemake_work_while_it_holds_the_workflow(tmp_path):
    with Lock(tmp_path, [WORKFLOW], "snakemake"), Lock(tmp_path, ["a"], "mfsweep simulate"):
        pass


def test_the_second_run_is_refused_with_host_process_and_start_time(tmp_path, hold, capsys):
    file, folder = write_config(tmp_path), tmp_path / "results/tiny"
    verbs = ("simulate", "measure", "collect", "prune", "verify")
    assert mfsweep("simulate", "--config", file, "--results", tmp_path / "results") == 0
    process = hold(folder, RUN)
    holder = json.loads((folder / "locks/run.json").read_text())
    assert holder["pid"] == process.pid
    capsys.readouterr()
    for verb in verbs:
        extra = ["--repair"] if verb == "verify" else []
        code = mfsweep(verb, "--config", file, "--results", tmp_path / "results", *extra)
        (line,) = capsys.readouterr().err.splitlines()
        assert code == 2
        assert f"mfsweep simulate on host {os.uname().nodename}, process {process.pid}" in line
        assert f"since {holder['since']}" in line
    assert mfsweep("status", "--config", file, "--results", tmp_path / "results") == 0
    assert f"at work: mfsweep simulate on host {os.uname().nodename}" in capsys.readouterr().out


def test_the_lock_of_a_killed_process_is_cleared_with_a_word(tmp_path, hold, capsys):
    file, folder = write_config(tmp_path), tmp_path / "results/tiny"
    process = hold(folder, RUN)
    process.kill()  # a zombie until it is waited for: gone all the same
    time.sleep(0.2)
    assert mfsweep("simulate", "--config", file, "--results", tmp_path / "results") == 0
    assert f"cleared the lock of mfsweep simulate on host {os.uname().nodename}, process " + str(
        process.pid
    ) in (capsys.readouterr().err)
    assert list(held(folder)) == []


@pytest.mark.parametrize(("number", "cores"), [(signal.SIGTERM, 1), (signal.SIGUSR1, 2)])
def test_a_process_that_is_ended_politely_leaves_no_lock_and_no_worker(tmp_path, number, cores):
    file = write_config(
        tmp_path, grid={"n_tokens": [3000], "seed": 50}, time={"t_end": 500.0, "n_times": 2}
    )
    command = [sys.executable, "-m", "mfsweep", "simulate", "--config", file]
    command += ["--cores", str(cores)]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    lock = tmp_path / "results/tiny/locks/run.json"
    end = time.monotonic() + 60
    while not lock.exists() and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(5)  # until cells are under way
    below = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    _, told = process.communicate(timeout=20)
    assert process.returncode == 128 + number
    assert f"mfsweep: stopped by {number.name}: what is finished is kept" in told
    assert "Traceback" not in told
    assert "Warning" not in told
    assert not lock.exists()
    assert not psutil.wait_procs(below, timeout=10)[1]


def test_a_number_that_another_process_has_now_is_no_holder(tmp_path):
    record(tmp_path, RUN, process="an earlier boot 12345")
    with Lock(tmp_path, [RUN], "x") as lock:
        assert [holder.pid for holder in lock.cleared] == [os.getpid()]


def test_a_lock_of_another_host_is_kept_and_the_line_says_how_to_clear_it(tmp_path):
    record(tmp_path, RUN, host="elsewhere", process="gone")
    path = tmp_path / "locks/run.json"
    with pytest.raises(InputError, match=f"on host elsewhere.* if it is gone, remove {path}"):
        Lock(tmp_path, ["a"], "x").take()
    assert [path.stem for path, _ in held(tmp_path)] == [RUN]
    path.unlink()
    Lock(tmp_path, ["a"], "x").take()


def test_a_lock_without_a_holder_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("mfsweep.sweep.lock._PATIENCE", 0.1)
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks/run.json").write_text("")
    with pytest.raises(InputError, match="names no holder: if nothing is at work there, remove it"):
        Lock(tmp_path, [RUN], "x").take()


def test_a_lock_taken_by_another_since_is_not_released(tmp_path):
    lock = Lock(tmp_path, ["a"], "x")
    lock.take()
    record(tmp_path, "a", host="elsewhere")
    lock.release()
    assert [holder.host for _, holder in held(tmp_path)] == ["elsewhere"]


def test_of_many_that_find_a_stale_lock_one_gets_it(tmp_path):
    for attempt in range(20):
        folder = tmp_path / str(attempt)
        record(folder, "a", process="gone")
        ready, taken, refused = threading.Barrier(8), [], []

        def attempt_it(folder=folder, ready=ready, taken=taken, refused=refused):
            ready.wait()
            try:
                Lock(folder, ["a"], "x").take()
                taken.append(1)
            except InputError:
                refused.append(1)

        threads = [threading.Thread(target=attempt_it) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(taken), len(refused)) == (1, 7)


@pytest.fixture
def squeue(tmp_path, monkeypatch):
    """Return a function that makes a squeue which says and returns something."""
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    (tmp_path / "bin").mkdir()

    def says(out, err="", code=0):
        script = f"#!/bin/sh\necho '{out}'\necho '{err}' >&2\nexit {code}\n"
        (tmp_path / "bin/squeue").write_text(script)
        (tmp_path / "bin/squeue").chmod(0o755)

    return says


@pytest.mark.parametrize(
    "said",
    [("",), ("", "slurm_load_jobs error: Invalid job id specified", 1), (str(2**33),)],
    ids=["it has ended", "it is forgotten", "it was started anew"],
)
def test_a_lock_of_another_node_is_cleared_when_slurm_knows_that_its_job_ended(
    said, tmp_path, squeue
):
    record(tmp_path, "a", host="node7", job="12")
    squeue(*said)
    with Lock(tmp_path, ["a"], "x") as lock:
        assert [holder.job for holder in lock.cleared] == ["12"]
    assert list((tmp_path / "locks").glob("*a.json*")) == []


@pytest.mark.parametrize(
    "said",
    [(str(2**30),), ("", "Unable to contact slurm controller", 1)],
    ids=["it runs", "nobody knows"],
)
def test_a_lock_of_another_node_is_kept_while_its_job_may_run(said, tmp_path, squeue):
    record(tmp_path, "a", host="node7", job="12")
    squeue(*said)
    with pytest.raises(InputError, match=r"SLURM job 12, since .* if it is gone, remove"):
        Lock(tmp_path, ["a"], "x").take()


def test_a_new_lock_in_place_of_a_stale_one_is_put_back(tmp_path):
    from mfsweep.sweep.lock import _remove

    record(tmp_path, "a", process="gone")
    ((path, stale),) = held(tmp_path)
    record(tmp_path, "a", host="elsewhere")
    assert not _remove(path, stale)
    assert [holder.host for _, holder in held(tmp_path)] == ["elsewhere"]
    assert [one.name for one in (tmp_path / "locks").iterdir()] == ["a.json"]
