"""Worker jobs lost before their worker connects: submitted anew, and given up in the end."""

import asyncio
from types import SimpleNamespace

import pytest

from mfsweep.sweep import slurm


@pytest.fixture
def cluster(monkeypatch):
    """A cluster that submits a lost job anew at every look, and ends when it cancels its tasks."""
    cancelled = []

    def cancel(keys, client, *, force, reason, msg):
        cancelled.append((keys, client, reason, msg))
        found.status.name = "closed"

    found = SimpleNamespace(
        status=SimpleNamespace(name="running"),
        workers={"w-0": SimpleNamespace(job_id="1"), "w-1": SimpleNamespace(job_id=None)},
        scheduler_info={"workers": {}},
        scheduler=SimpleNamespace(clients=["c"], tasks=["t"], stimulus_cancel=cancel),
        queued=set(),
        looks=0,
        cancelled=cancelled,
    )

    async def queued():
        found.looks += 1
        if found.looks > 8:
            found.status.name = "closed"
        before = set(found.queued)
        for name in {"w-0", "w-1"} - set(found.workers):
            found.workers[name] = SimpleNamespace(job_id=f"{name} {found.looks}")
        return before

    monkeypatch.setattr(slurm, "LOOK_SECONDS", 0)
    monkeypatch.setattr(slurm, "_queued", queued)
    return found


def look(cluster, tmp_path):
    asyncio.run(slurm._look_after(cluster, tmp_path))


def test_tasks_are_cancelled_with_the_place_of_the_logs_if_no_worker_ever_arrives(
    cluster, tmp_path
):
    look(cluster, tmp_path)
    ((keys, client, reason, told),) = cluster.cancelled
    assert (keys, client, reason) == (["t"], "c", slurm.NO_WORKERS)
    assert f"ended before their worker started: see {tmp_path}/dask-worker" in told


def test_lost_jobs_are_submitted_anew_as_long_as_a_worker_is_there(cluster, tmp_path):
    cluster.queued = {"1"}
    cluster.scheduler_info["workers"] = {"tls://a:1": {"name": "w-0"}}
    look(cluster, tmp_path)
    assert cluster.workers["w-0"].job_id == "1"
    assert cluster.workers.get("w-1") is None or cluster.workers["w-1"].job_id is not None
    assert not cluster.cancelled


def test_jobs_that_wait_in_the_queue_are_left_alone(cluster, tmp_path):
    cluster.workers["w-1"].job_id = "2"
    cluster.queued = {"1", "2"}
    look(cluster, tmp_path)
    assert [job.job_id for job in cluster.workers.values()] == ["1", "2"]
    assert not cluster.cancelled


def test_nothing_is_lost_while_slurm_does_not_answer(cluster, tmp_path, monkeypatch):
    async def silent():
        cluster.looks += 1
        if cluster.looks > 5:
            cluster.status.name = "closed"

    monkeypatch.setattr(slurm, "_queued", silent)
    look(cluster, tmp_path)
    assert len(cluster.workers) == 2
