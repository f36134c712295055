"""Who is at work in a results folder: one small file for each part of a run that is held.

A lock is made by exclusive creation, which needs no file locking across nodes. It names the host,
the process and when it began. A process that is gone, or whose number another one has now, is
known on its own host; there its lock is cleared. Elsewhere SLURM is asked, if the process ran in
one of its jobs; otherwise a human must say so.

A shard's job holds its shard. Whatever works alone (`RUN`: the whole run from the command line,
`WORKFLOW`: Snakemake, whose jobs then hold their shards) is refused while anyone else is at work,
and a part is refused while `RUN` is held.
"""

import fcntl
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from mfsweep._errors import InputError

RUN, WORKFLOW = "run", "workflow"
_ALONE = {RUN, WORKFLOW}
_PATIENCE = 2.0
"""Seconds in which a lock file that was just created gets its content."""
_SLURM_SECONDS = 10.0
"""Seconds in which SLURM answers."""
_CLOCKS = 30.0
"""Seconds by which the clocks of SLURM and of its nodes may differ."""


@dataclass(frozen=True)
class Holder:
    """A process that holds a part of a run."""

    verb: str
    host: str
    pid: int
    process: str
    """What tells this process from a later one of the same number."""
    since: str
    job: str = ""
    """The SLURM job that it runs in, if any."""

    @classmethod
    def me(cls, verb: str) -> "Holder":
        """Describe this process."""
        since = datetime.now().astimezone().isoformat(timespec="seconds")
        host, process, job = socket.gethostname(), _process(os.getpid()) or "", _this_job()
        return cls(verb, host, os.getpid(), process, since, job)

    @property
    def gone(self) -> bool:
        """Whether the process is known to have ended: by its host, or by SLURM."""
        if self.host == socket.gethostname():
            return _process(self.pid) != self.process
        return bool(self.job) and _job_ended(self.job, datetime.fromisoformat(self.since))

    def __str__(self) -> str:
        job = f", SLURM job {self.job}" if self.job else ""
        return f"{self.verb} on host {self.host}, process {self.pid}{job}, since {self.since}"


def _this_job() -> str:
    return os.environ.get("SLURM_JOB_ID", "")


def _job_ended(job: str, since: datetime) -> bool:
    """Ask SLURM whether a job has ended, or has been started anew since; False if it is silent."""
    command = ["squeue", "--noheader", "--jobs", job, "--format=%S"]
    states = "--states=RUNNING,COMPLETING,SUSPENDED,STOPPED"
    environment = {**os.environ, "SLURM_TIME_FORMAT": "%s"}
    try:
        run = subprocess.run(
            [*command, states],
            capture_output=True,
            text=True,
            env=environment,
            timeout=_SLURM_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    if run.returncode:
        return "Invalid job id" in run.stderr
    began = run.stdout.split()
    return not began or float(began[0]) > since.timestamp() + _CLOCKS


def _process(pid: int) -> str | None:
    """Return what tells a live process from others of its number: its boot and start time."""
    if not Path("/proc/self/stat").exists():
        command = ["ps", "-o", "lstart=", "-p", str(pid)]
        return subprocess.run(command, capture_output=True, text=True).stdout.strip() or None
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return None if fields[0] in "ZX" else f"{boot} {fields[19]}"


def held(run_folder: Path) -> Iterator[tuple[Path, Holder]]:
    """Yield every lock of a run with its holder, stale ones too."""
    for path in sorted((run_folder / "locks").glob("*.json")):
        holder = _read(path)
        if holder is not None:
            yield path, holder


def _read(path: Path) -> Holder | None:
    """Read a lock; None if it is gone."""
    patience = time.monotonic() + _PATIENCE
    while True:
        try:
            return Holder(**json.loads(path.read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            if time.monotonic() > patience:
                message = f"{path} names no holder: if nothing is at work there, remove it"
                raise InputError(message) from error
            time.sleep(0.05)


def _remove(path: Path, holder: Holder) -> bool:
    """Remove the lock of this holder and no other; tell whether it was there."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.{socket.gethostname()}")
    try:
        path.rename(aside)
    except FileNotFoundError:
        return False
    same = _read(aside) == holder
    if not same:
        path.hardlink_to(aside)
    aside.unlink()
    return same


class Lock:
    """Parts of a run, held from `take` to `release` or as a context.

    Parameters
    ----------
    run_folder
        Folder of the run, results/{run}.
    names
        Shard ids, or `RUN`, or `WORKFLOW`, or the name of a rule.
    verb
        What the holder does, for those who are refused.

    Raises
    ------
    InputError
        On taking: if another process is at work; the line names it.
    """

    def __init__(self, run_folder: Path, names: list[str], verb: str) -> None:
        self.folder, self.names, self.verb = run_folder / "locks", names, verb
        self.mine: dict[Path, Holder] = {}
        self.cleared: list[Holder] = []
        """Holders whose locks were found stale and removed."""

    def take(self) -> None:
        """Take every part or none."""
        self.folder.mkdir(parents=True, exist_ok=True)
        me = Holder.me(self.verb)
        try:
            for name in self.names:
                self._take(self.folder / f"{name}.json", me)
            self._refuse_others()
        except BaseException:
            self.release()
            raise

    def _take(self, path: Path, me: Holder) -> None:
        while True:
            try:
                file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            except FileExistsError:
                self._clear(path)
                continue
            self.mine[path] = me
            with os.fdopen(file, "w") as stream:
                stream.write(json.dumps(asdict(me)) + "\n")
            return

    def _refuse_others(self) -> None:
        """Refuse what may not go on beside these parts; taken first, so two cannot both pass."""
        alone = bool(_ALONE & set(self.names))
        for path in sorted(self.folder.glob("*.json")):
            if path not in self.mine and (alone or path.stem == RUN):
                self._clear(path)

    def _clear(self, path: Path) -> None:
        """Remove a lock whose process is known to be gone, or refuse.

        A file lock keeps two processes of one host from clearing at once. Between hosts, which
        file locks do not reach, the lock is moved aside, which one of them can do, and moved back
        if it is a new one.
        """
        with (self.folder / ".clearing").open("w") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
            holder = _read(path)
            if holder is None:
                return
            if holder.gone:
                if _remove(path, holder):
                    self.cleared.append(holder)
                return
        message = (
            f"{self.folder.parent} is in use: {holder}; wait for it to end, or if it is gone, "
            f"remove {path}"
        )
        raise InputError(message)

    def release(self) -> None:
        """Give up what was taken, unless someone removed it and took it since."""
        for path, me in self.mine.items():
            if _read(path) == me:
                path.unlink(missing_ok=True)
        self.mine.clear()

    def __enter__(self) -> Self:
        self.take()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()
