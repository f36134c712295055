"""Where cells run: workers of this machine, worker jobs of SLURM, or a cluster that runs already.

With `execute` and `slurm` the only module that talks to dask.distributed. Nothing listens beyond
this machine unless a cluster is asked for, and then what crosses the network is encrypted by
certificates that last as long as the cluster.
"""

import asyncio
import json
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dask
from dask.utils import parse_bytes
from distributed import Client, LocalCluster, Security
from distributed.comm.core import connect as greet
from distributed.versions import VersionMismatchWarning

from mfsweep._errors import InputError, StoreError
from mfsweep.progress import say

CONNECT_SECONDS = 15
LEAST_BYTES = 200e6
"""What a worker holds before it computes."""
TRIES = 3
"""How often a cell may fail, or lose its worker, before it is given up."""
_SETTINGS: dict[str, Any] = {
    "distributed.scheduler.allowed-failures": TRIES - 1,
    "distributed.scheduler.worker-saturation": 1.0,  # a dying worker takes no waiting cell along
    **{  # a cell cannot wait for itself to end
        f"distributed.worker.memory.{step}": False for step in ("target", "spill", "pause")
    },
    # a worker that is stopped may complain of a scheduler that is gone
    "distributed.nanny.pre-spawn-environ.DASK_LOGGING__DISTRIBUTED": "critical",
}
_UNCLEAN = "ignore:resource_tracker:UserWarning"
_SAME = ("dask", "distributed", "mfsweep", "numba", "numpy", "zarr")
"""Packages whose versions client and workers must share."""


@dataclass(frozen=True)
class Slurm:
    """What one worker job asks of SLURM, and how many workers there may be."""

    memory: float
    """Bytes of one job, shared by its workers."""
    partition: str | None = None
    account: str | None = None
    walltime: str = "01:00:00"
    cores: int = 1
    """Workers of one job, one thread each."""
    least: int = 0
    """Workers that are kept even while there is nothing to do."""
    most: int = 8
    """Most workers at a time."""
    interface: str | None = None
    """Network interface by which scheduler and workers talk."""
    extra: tuple[str, ...] = ()
    """More options of sbatch."""


@dataclass(frozen=True)
class Workers:
    """Where the cells run: local processes, jobs of SLURM, or a scheduler that runs already."""

    count: int = 1
    """Local worker processes, one thread each."""
    memory: float | None = None
    """Bytes that the local workers share; a worker that exceeds its part is killed."""
    address: str | None = None
    """Address of a running scheduler, such as tcp://host:8786."""
    scheduler_file: Path | None = None
    """Connection file of a running scheduler."""
    slurm: Slurm | None = None
    """What the worker jobs of SLURM ask for."""
    cluster: Any = None
    """The cluster of those jobs while it is up."""

    def at_most(self, tasks: int) -> "Workers":
        """Return no more local workers than there are tasks; each keeps its part of the memory."""
        count = min(self.count, tasks)
        memory = None if self.memory is None else self.memory * count / self.count
        return replace(self, count=count, memory=memory)


@contextmanager
def shared(workers: Workers, logs: Path) -> Iterator[Workers]:
    """Keep one SLURM cluster up for all shards; other workers start and end with a shard.

    Parameters
    ----------
    workers
        Where the cells run.
    logs
        Folder that every node sees; worker jobs log there.

    Raises
    ------
    InputError
        If SLURM would refuse the worker jobs.
    """
    if workers.slurm is None:
        yield workers
        return
    try:
        from mfsweep.sweep.slurm import slurm_cluster
    except ImportError as error:
        message = "--dask slurm needs dask-jobqueue: pip install 'mfsweep[slurm]'"
        raise InputError(message) from error
    _quiet()
    with dask.config.set(_SETTINGS), slurm_cluster(workers.slurm, logs) as cluster:
        yield replace(workers, cluster=cluster)


@contextmanager
def connect(workers: Workers) -> Iterator[Client]:
    """Open a client to local workers or to a cluster, and close it quietly.

    Raises
    ------
    InputError
        If the scheduler does not answer, or runs other versions.
    """
    _quiet()
    if workers.cluster is not None:
        with Client(workers.cluster) as client:
            yield client
    elif workers.address is None and workers.scheduler_file is None:
        with ExitStack() as closing:
            client = closing.enter_context(Client(closing.enter_context(_local_cluster(workers))))
            try:
                yield client
            except SystemExit:  # the cell in flight is abandoned, not waited for
                closing.pop_all()
                raise
    else:
        with _running(workers) as client:
            _check_versions(client)
            if not client.nthreads():
                say("mfsweep: the scheduler has no workers yet; waiting for them")
            yield client


def say_dashboard(client: Client) -> None:
    """Say where the cluster can be watched."""
    if client.dashboard_link:
        without = "" if find_spec("bokeh") else "; it needs bokeh: pip install 'mfsweep[dashboard]'"
        say(f"dashboard: {client.dashboard_link}{without}")


def bytes_of(option: str, text: str) -> float:
    """Return the bytes that a text such as 4GB says.

    Raises
    ------
    InputError
        If it says none, or fewer than a worker needs to start.
    """
    try:
        found = float(parse_bytes(text))
    except ValueError:
        found = 0.0
    if found < LEAST_BYTES:
        least = f"{LEAST_BYTES / 1e6:.0f} MB"
        message = f"{option} {text}: must be a number and a unit, such as 4GB, at least {least}"
        raise InputError(message)
    return found


def _quiet() -> None:
    for library in ("distributed", "tornado.application", "asyncio"):
        logging.getLogger(library).setLevel(logging.CRITICAL)


def _local_cluster(workers: Workers) -> LocalCluster:
    """Start workers that are not given up after silence: a laptop may sleep for hours."""
    count = workers.count
    if _UNCLEAN not in sys.warnoptions:  # read by the process that cleans up after a signal
        sys.warnoptions.append(_UNCLEAN)
    limit = "auto" if workers.memory is None else int(workers.memory / count)
    try:
        with dask.config.set({"distributed.scheduler.worker-ttl": None, **_SETTINGS}):
            return LocalCluster(
                n_workers=count,
                threads_per_worker=1,
                processes=count > 1 or workers.memory is not None,  # one needs no second process
                memory_limit=limit,
                protocol="tcp",
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
            )
    except (OSError, RuntimeError) as error:
        message = (
            f"{count} workers did not start ({type(error).__name__}: {error}): raise the limit of "
            "open files (ulimit -n), free memory, or use fewer workers"
        )
        raise StoreError(message) from error


# ---- a scheduler that runs already ---------------------------------------------------------


def _running(workers: Workers) -> Client:
    """Return a client of a scheduler that runs already."""
    security = None
    if workers.scheduler_file is None:
        option, address = f"--dask-address {workers.address}", workers.address
    else:
        option = f"--scheduler-file {workers.scheduler_file}"
        address, security = _read_scheduler_file(workers.scheduler_file)
    try:
        asyncio.run(_greet(str(address), security or Security()))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", VersionMismatchWarning)  # refused later, in one line
            return Client(address, security=security, timeout=CONNECT_SECONDS)
    except Exception as error:  # something else may listen there and answer anything
        message = (
            f"{option}: the scheduler at {address} does not answer ({type(error).__name__}: "
            f"{error}): start it, or name one that runs"
        )
        raise InputError(message) from error


async def _greet(address: str, security: Security) -> None:
    """Shake hands with a scheduler; a client would wait for minutes for one that keeps silent."""
    arguments = security.get_connection_args("client")
    greeting = greet(address, timeout=CONNECT_SECONDS, **arguments)
    channel = await asyncio.wait_for(greeting, CONNECT_SECONDS)
    await channel.close()


def _read_scheduler_file(path: Path) -> tuple[str, Security | None]:
    """Return the address in a scheduler file, and the certificates if it has any."""
    try:
        found = json.loads(path.read_text())
        return str(found["address"]), Security(**found["tls"]) if "tls" in found else None
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = (
            f"--scheduler-file {path} cannot be read ({type(error).__name__}: {error}): name the "
            "file that the scheduler wrote"
        )
        raise InputError(message) from error


@contextmanager
def scheduler_file(path: Path, cluster: Any) -> Iterator[None]:
    """Hold a file that says where a cluster is, with its certificates, for its owner only."""
    keys = ("tls_ca_file", "tls_client_cert", "tls_client_key")
    tls = {key: getattr(cluster.security, key) for key in keys} | {"require_encryption": True}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    try:
        path.write_text(json.dumps({"address": cluster.scheduler_address, "tls": tls}))
        yield
    finally:
        path.unlink(missing_ok=True)


def _check_versions(client: Client) -> None:
    """Refuse a scheduler or a worker of other versions than this process."""
    found: Any = client.get_versions(packages=[*_SAME])
    mine = _versions(found["client"])
    for who, versions in (
        ("the scheduler", _versions(found["scheduler"], ("dask", "distributed"))),
        *((f"worker {name}", _versions(one)) for name, one in found["workers"].items()),
    ):
        for package, version in versions.items():
            if version != mine[package]:
                message = (
                    f"{who} has {package} {version or 'not installed'}, this process has "
                    f"{mine[package]}: start the cluster from this environment"
                )
                raise InputError(message)


def _versions(found: dict[str, Any], packages: tuple[str, ...] = _SAME) -> dict[str, str | None]:
    """Return the versions that matter, of Python the first two numbers."""
    python = ".".join(found["packages"]["python"].split(".")[:2])
    return {"python": python, **{name: found["packages"][name] for name in packages}}
