"""Worker jobs of SLURM: one Dask cluster whose workers are jobs, as many as there is work for."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dask_jobqueue.slurm import SLURMCluster, SLURMJob
from distributed import Security
from distributed.utils import get_ip_interface

from mfsweep._errors import InputError
from mfsweep.progress import say
from mfsweep.sweep.sbatch import check_job

if TYPE_CHECKING:
    from mfsweep.sweep.workers import Slurm

NO_WORKERS = "no-workers"
"""Why tasks are cancelled when no worker ever arrives."""
LOOK_SECONDS = 10
"""How often SLURM is asked which worker jobs there are."""
MOST_LOST = 3
"""Jobs in a row that may end before their worker reaches the scheduler."""
JOB_BYTES = 300e6
"""What a worker job holds beside its workers."""
_WALLTIME = re.compile(r"(?:(\d+)-(\d+)(?::(\d+))?(?::(\d+))?|(?:(\d+):)?(\d+):(\d+)|(\d+))")


def seconds_of(walltime: str) -> int:
    """Return the seconds of a walltime as SLURM writes it: M, M:S, H:M:S, D-H, D-H:M or D-H:M:S.

    Raises
    ------
    InputError
        If it is none of these, or zero.

    Examples
    --------
    >>> seconds_of("90"), seconds_of("01:30:00"), seconds_of("1-12")
    (5400, 5400, 129600)
    """
    match = _WALLTIME.fullmatch(walltime)
    numbers = [int(text or 0) for text in match.groups()] if match else 8 * [0]
    d, dh, dm, ds, h, m, s, minutes = numbers
    found = ((24 * d + dh + h) * 60 + dm + m + minutes) * 60 + ds + s
    if not found:
        message = f"--walltime {walltime}: must be minutes, H:M:S or D-H:M:S, more than none"
        raise InputError(message)
    return found


@contextmanager
def slurm_cluster(asked: "Slurm", logs: Path) -> Iterator[Any]:
    """Start a scheduler here that submits worker jobs as there is work, and ends them at the end.

    Parameters
    ----------
    asked
        What a job asks for.
    logs
        Folder that every node sees, for logs and for the certificates of the workers.

    Yields
    ------
    dask_jobqueue.SLURMCluster

    Raises
    ------
    InputError
        If there is no sbatch, or SLURM would refuse a job.
    """
    lifetime = _lifetime(asked.walltime)
    logs = logs.absolute()
    for path in (str(logs), sys.executable):
        if re.search(r"\s", path):
            message = f"--dask slurm: {path} has a blank, which job scripts cannot hold: move it"
            raise InputError(message)
    logs.mkdir(parents=True, exist_ok=True)
    cluster: Any = SLURMCluster(
        job_cls=cast("Any", _Job),
        queue=asked.partition,
        account=asked.account,
        walltime=asked.walltime,
        cores=asked.cores,
        processes=asked.cores,
        memory=f"{asked.memory:.0f}B",
        job_mem=f"{(asked.memory + JOB_BYTES) / 2**20:.0f}M",
        interface=_checked(asked.interface),
        job_extra_directives=[*asked.extra],
        log_directory=str(logs),
        shared_temp_directory=str(logs),
        local_directory="${TMPDIR:-/tmp}",
        security=Security.temporary(),
        death_timeout=60,
        job_script_prologue=[
            f"export DASK_DISTRIBUTED__WORKER__MEMORY__{step}=False"
            for step in ("TARGET", "SPILL", "PAUSE")  # a cell cannot wait for itself to end
        ],
        worker_extra_args=[
            *("--lifetime", f"{lifetime}s"),
            *("--dashboard-address", "127.0.0.1:0"),
        ],
        scheduler_options={"dashboard_address": "127.0.0.1:0"},
        silence_logs="CRITICAL",
    )
    with cluster:
        remedy = "--partition, --account, --walltime, --memory or --cores"
        check_job("--dask slurm", cluster.job_script(), remedy)
        cluster.adapt(minimum=asked.least, maximum=asked.most, interval="2s", wait_count=15)
        cluster.loop.add_callback(_look_after, cluster, logs)
        yield cluster


class _Job(SLURMJob):
    """A worker job that says why SLURM refused it."""

    async def start(self) -> None:
        try:
            await super().start()
        except RuntimeError as error:
            reason = str(error).rpartition("stderr:")[2]
            say(f"mfsweep: SLURM refuses a worker job for now: {' '.join(reason.split())}")
            raise


def _lifetime(walltime: str) -> int:
    """Return when a worker leaves by itself, so that its cell moves on before SLURM kills it."""
    seconds = seconds_of(walltime)
    return max(seconds - 60, seconds // 2)


def _checked(interface: str | None) -> str | None:
    """Refuse an interface that this machine does not have."""
    if interface is not None:
        try:
            get_ip_interface(interface)
        except ValueError as error:
            message = f"--interface {interface}: {error}"
            raise InputError(message) from error
    return interface


# ---- jobs that never come ------------------------------------------------------------------


async def _look_after(cluster: Any, logs: Path) -> None:
    """Let jobs that are gone be submitted anew; give up when no job's worker ever arrives.

    Adaptive scaling waits for ever for a job that SLURM refused, or that ended before its worker
    connected.
    """
    arrived: set[str] = set()
    lost = 0
    while cluster.status.name in ("running", "starting", "created"):
        await asyncio.sleep(LOOK_SECONDS)
        jobs = {name: job.job_id for name, job in cluster.workers.items()}
        queued = await _queued()
        there = {str(info["name"]) for info in cluster.scheduler_info["workers"].values()}
        here = {
            job
            for name, job in jobs.items()
            if job and any(one == str(name) or one.startswith(f"{name}-") for one in there)
        }
        if here - arrived:
            lost = 0
        arrived |= here
        if queued is None:
            continue
        for name, job in jobs.items():
            if job not in queued | arrived and cluster.workers.pop(name, None) is not None:
                lost += 1
        if lost >= MOST_LOST and not here:
            reason = (
                f"{lost} worker jobs ended before their worker started: see {logs}/dask-worker*"
            )
            _give_up(cluster.scheduler, reason)
            lost = 0


async def _queued() -> set[str] | None:
    """Return the ids of this user's jobs that wait or run; None if SLURM does not say."""
    command = ["squeue", "--me", "--noheader", "--format=%A"]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    out, _ = await process.communicate()
    return set(out.decode().split()) if process.returncode == 0 else None


def _give_up(scheduler: Any, reason: str) -> None:
    """Cancel every task, so that those who wait for them hear why."""
    for client in [*scheduler.clients]:
        scheduler.stimulus_cancel(
            [*scheduler.tasks], client, force=True, reason=NO_WORKERS, msg=reason
        )
