"""Options of the command line that say where cells run, shared by the verbs that compute."""

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mfsweep._errors import InputError

if TYPE_CHECKING:
    from mfsweep.sweep.config import Config
    from mfsweep.sweep.grid import Shard
    from mfsweep.sweep.workers import Workers

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
RUNNING = {
    "dask_address": Annotated[
        str | None, typer.Option("--dask-address", help="Address of a running Dask scheduler.")
    ],
    "scheduler_file": Annotated[
        Path | None,
        typer.Option("--scheduler-file", help="Connection file of a running Dask scheduler."),
    ],
}
LOCAL = {
    "cores": Annotated[
        int | None,
        typer.Option(
            "--cores", min=1, help="Worker processes: all cores here, 1 in a job of --dask slurm."
        ),
    ],
    "memory": Annotated[
        str | None,
        typer.Option("--memory", help="What they share, such as 4GB; a job's is from the plan."),
    ],
}
SLURM = {
    "partition": Annotated[str | None, typer.Option("--partition", help="SLURM partition.")],
    "account": Annotated[str | None, typer.Option("--account", help="SLURM account.")],
    "walltime": Annotated[
        str | None,
        typer.Option(
            "--walltime", help="Of one worker job, in minutes or as SLURM writes it; 01:00:00."
        ),
    ],
    "min_workers": Annotated[
        int | None, typer.Option("--min-workers", min=0, help="Kept while idle; 0.")
    ],
    "max_workers": Annotated[
        int | None, typer.Option("--max-workers", min=1, help="Most at a time; 8.")
    ],
    "interface": Annotated[
        str | None, typer.Option("--interface", help="Network interface to the nodes, such as ib0.")
    ],
    "sbatch": Annotated[
        list[str] | None,
        typer.Option("--sbatch", help="One more option of sbatch, such as --sbatch=--qos=low."),
    ],
}
DASK = {
    "dask": Annotated[str | None, typer.Option("--dask", help="slurm: workers are jobs of SLURM.")]
}
_KEYS = {
    "partition": "partition",
    "account": "account",
    "walltime": "walltime",
    "min_workers": "least",
    "max_workers": "most",
    "interface": "interface",
}
Chosen = Callable[["Config", "list[Shard]"], "Workers"]
"""Returns where the cells of these shards of a config run."""


def takes_workers(verb: Callable[..., None]) -> Callable[..., None]:
    """Give a verb the options that say where cells run; it gets them as `workers`, a `Chosen`."""
    return _with_options(verb, {**LOCAL, **DASK, **SLURM, **RUNNING}, chosen_workers)


def takes_slurm(verb: Callable[..., None]) -> Callable[..., None]:
    """Give a verb the options of SLURM's worker jobs; it gets them as `workers`, a `Chosen`."""
    return _with_options(verb, {**LOCAL, **SLURM}, functools.partial(chosen_workers, dask="slurm"))


def _with_options(
    verb: Callable[..., None], options: Mapping[str, Any], choose: Callable[..., Any]
) -> Callable[..., None]:
    signature = inspect.signature(verb)
    own = [value for name, value in signature.parameters.items() if name != "workers"]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in options.items()
    ]

    @functools.wraps(verb)
    def run(**given: Any) -> None:
        asked = {name: given.pop(name) for name in options}
        verb(**given, workers=choose(**asked))

    run.__annotations__ = {one.name: one.annotation for one in (*own, *added)}
    run.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
    return run


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def chosen_workers(**asked: Any) -> Chosen:
    """Return where cells run by the options given; those of another place are refused.

    Raises
    ------
    InputError
        If an option would be ignored.
    """
    given = {name: value for name, value in asked.items() if value not in (None, [])}
    dask = given.get("dask")
    if dask not in (None, "slurm"):
        message = f"--dask {dask}: must be slurm; leave it out for workers on this machine"
        raise InputError(message)
    running = [name for name in RUNNING if name in given]
    places = [*running, *(["dask"] if dask else [])]
    if len(places) > 1:
        message = f"{_flag(places[0])} and {_flag(places[1])} exclude each other: give one of them"
        raise InputError(message)
    for name in given:
        if name in SLURM and not dask:
            message = f"{_flag(name)} {given[name]}: asks SLURM; add --dask slurm or leave it out"
            raise InputError(message)
        if name in LOCAL and running:
            message = (
                f"{_flag(name)} {given[name]}: {_flag(running[0])} names workers that run already; "
                "leave it out"
            )
            raise InputError(message)
    return functools.partial(_workers, given)


def _workers(given: Mapping[str, Any], config: "Config", shards: "list[Shard]") -> "Workers":
    from mfsweep.sweep.workers import Workers, bytes_of

    memory = bytes_of("--memory", given["memory"]) if "memory" in given else None
    if given.get("dask") == "slurm":
        return Workers(slurm=_slurm(given, config, shards, memory))
    return Workers(
        given.get("cores", CORES), memory, given.get("dask_address"), given.get("scheduler_file")
    )


def _slurm(
    given: Mapping[str, Any], config: "Config", shards: "list[Shard]", memory: float | None
) -> Any:
    """Return what worker jobs ask for; their memory, if not given, is what the plan says."""
    from mfsweep.sweep.plan import job_bytes
    from mfsweep.sweep.workers import Slurm

    cores = given.get("cores", 1)
    if memory is None:
        memory = cores * max(job_bytes(config, shard) for shard in shards)
    named = {key: given[name] for name, key in _KEYS.items() if name in given}
    asked = Slurm(memory, cores=cores, extra=tuple(given.get("sbatch", ())), **named)
    if asked.least > asked.most:
        message = (
            f"--min-workers {asked.least}: must be at most --max-workers {asked.most}; lower it"
        )
        raise InputError(message)
    return asked
