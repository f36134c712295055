"""The command line: one verb per workflow rule, and what looks after results. No science in it."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mfsweep._errors import InputError, MfsweepError, refused
from mfsweep.heads import weights
from mfsweep.progress import Progress, log_to, say
from mfsweep.where import CORES, Chosen, takes_slurm, takes_workers

if TYPE_CHECKING:
    from collections.abc import Callable

    from mfsweep.sweep.config import Config
    from mfsweep.sweep.execute import Outcome
    from mfsweep.sweep.grid import Shard

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Sweep mean-field self-attention over beta, d, gap and seeds; see README.md.",
)
app.add_typer(weights, name="weights")


def _log(path: Path | None) -> None:
    if path is not None:
        log_to(path)


ConfigFile = Annotated[Path, typer.Option("--config", help="Config file of the sweep.")]
Results = Annotated[Path, typer.Option("--results", help="Folder that holds the runs.")]
Cores = Annotated[int, typer.Option("--cores", min=1, help="Local worker processes.")]
ShardIds = Annotated[
    list[str] | None, typer.Option("--shard", help="Only this shard (may be repeated).")
]
Log = Annotated[
    Path | None,
    typer.Option("--log", help="Write the lines on standard error here too.", callback=_log),
]

CONFIG, RESULTS = Path("config/config.yaml"), Path("results")


@app.callback()
def _options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Sweep mean-field self-attention over beta, d, gap and seeds; see README.md."""
    context.obj = debug


@app.command()
def init(
    file: Annotated[Path, typer.Argument(help="Config file to write.")] = Path("my.yaml"),
) -> None:
    """Write a commented config file to start from.

    Example: mfsweep init my.yaml
    """
    from mfsweep.sweep.config.explain import STARTER

    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(STARTER.read_text("utf-8"))
    except FileExistsError as error:
        message = f"{file} exists and is kept: name another file"
        raise InputError(message) from error
    typer.echo(f"wrote {file}; next: mfsweep plan --config {file}")


@app.command()
def explain(
    key: Annotated[str, typer.Argument(help="A key, such as time.t_end, or a section, as time.")],
) -> None:
    """Print what a key of the config file means.

    Example: mfsweep explain grid.beta
    """
    from mfsweep.sweep.config.explain import explain as entry

    typer.echo(entry(key))


@app.command()
def plan(
    config: ConfigFile = CONFIG,
    results: Results = RESULTS,
    cores: Cores = CORES,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print it for a job scheduler; refuse nothing.")
    ] = False,
) -> None:
    """Print cells, shards, bytes, memory and time; refuse what cannot fit.

    Example: mfsweep plan --config config/config.yaml --cores 4
    """
    from mfsweep.sweep.plan import plan as estimate
    from mfsweep.sweep.plan import refuse_what_cannot_fit, told

    settings, _ = _open(config, results)
    costs = estimate(settings)
    if as_json:
        typer.echo(told(costs))
        return
    typer.echo(f"{'shard':32} {'cells':>6} {'GB':>8} {'GB/worker':>10} {'core-seconds':>13}")
    for cost in costs:
        typer.echo(
            f"{cost.shard.id:32} {cost.cells:6d} {cost.bytes_stored / 1e9:8.3f} "
            f"{cost.bytes_worker / 1e9:10.2f} {cost.seconds:13.0f}"
        )
    cells, stored = sum(c.cells for c in costs), sum(c.bytes_stored for c in costs) / 1e9
    seconds = sum(c.seconds for c in costs)
    typer.echo(
        f"{len(costs)} shards, {cells} cells, {stored:.2f} GB, "
        f"up to about {seconds / cores / 60:.1f} min on {cores} cores"
    )
    refuse_what_cannot_fit(costs, results, cores)


@app.command()
@takes_workers
def simulate(
    workers: Chosen,
    config: ConfigFile = CONFIG,
    results: Results = RESULTS,
    shard: ShardIds = None,
    keep_stale: Annotated[
        bool, typer.Option("--keep-stale", help="Keep cells of another numerics version.")
    ] = False,
    _: Log = None,
) -> None:
    """Compute the cells that are missing, failed or stale.

    Example: mfsweep simulate --config config/config.yaml --cores 4
    """
    from functools import partial

    from mfsweep.sweep.execute import simulate_shard

    task = partial(simulate_shard, keep_stale=keep_stale)
    _run(task, "simulate", config, results, shard, workers)


@app.command()
@takes_workers
def measure(
    workers: Chosen,
    config: ConfigFile = CONFIG,
    results: Results = RESULTS,
    shard: ShardIds = None,
    _: Log = None,
) -> None:
    """Measure the curves of every simulated cell.

    Example: mfsweep measure --config config/config.yaml --cores 4
    """
    from mfsweep.sweep.execute import measure_shard

    _run(measure_shard, "measure", config, results, shard, workers)


@app.command()
@takes_slurm
def cluster(
    workers: Chosen,
    to: Annotated[Path, typer.Option("--to", help="Scheduler file to write.")],
    config: ConfigFile = CONFIG,
    results: Results = RESULTS,
    _: Log = None,
) -> None:
    """Keep workers on SLURM for whoever names the scheduler file, until Ctrl-C.

    Example: mfsweep cluster --to scheduler.json --partition main --max-workers 64
    """
    from mfsweep.sweep.grid import shards
    from mfsweep.sweep.workers import scheduler_file, shared

    settings, folder = _open(config, results)
    with (
        shared(workers(settings, [*shards(settings)]), folder / "logs") as jobs,
        scheduler_file(to, jobs.cluster),
    ):
        say(f"cluster: give --scheduler-file {to}, or set MFSWEEP_SCHEDULER_FILE; Ctrl-C ends it")
        with suppress(KeyboardInterrupt):
            while True:
                signal.pause()


@app.command()
def collect(config: ConfigFile = CONFIG, results: Results = RESULTS, _: Log = None) -> None:
    """Join curves, estimate switch times, fit laws.

    Example: mfsweep collect --config config/config.yaml
    """
    from mfsweep.sweep.collect import collect as join
    from mfsweep.sweep.folder import claim

    settings, folder = _open(config, results)
    claim(folder, config, settings)
    with _holding(folder, ["collect"], "mfsweep collect"):
        versions = join(settings, folder)
    if len(versions) > 1:
        say(f"collect: the cells are of numerics versions {', '.join(map(str, versions))}")


@app.command()
def plot(
    config: ConfigFile = CONFIG,
    results: Results = RESULTS,
    figure: Annotated[
        list[str] | None, typer.Option("--figure", help="Only this figure (may be repeated).")
    ] = None,
    style: Annotated[
        Path | None, typer.Option("--style", help="A matplotlib style file of your own.")
    ] = None,
    width: Annotated[
        str, typer.Option("--width", help="Of a journal's page: single column, or double.")
    ] = "double",
    to: Annotated[
        Path | None, typer.Option("--to", help="Folder to write to; figures in the run's folder.")
    ] = None,
    _: Log = None,
) -> None:
    """Draw the figures from the stores.

    Example: mfsweep plot --config config/config.yaml --figure w2_curves --to paper
    """
    from contextlib import nullcontext

    from mfsweep.plotting import write_figures

    settings, folder = _open(config, results)
    with _holding(folder, ["figures"], "mfsweep plot") if to is None else nullcontext():
        for path in write_figures(settings, folder, figure or (), style, width, to):
            typer.echo(path)


@app.command()
def report(config: ConfigFile = CONFIG, results: Results = RESULTS, _: Log = None) -> None:
    """Write the report page and say where everything lies.

    Example: mfsweep report --config config/config.yaml
    """
    from mfsweep.report import write_report
    from mfsweep.sweep.folder import COLLECTED

    settings, folder = _open(config, results)
    with _holding(folder, ["report"], "mfsweep report"):
        path = write_report(settings, folder)
    typer.echo(f"report   {path}")
    typer.echo(f"figures  {folder / 'figures'}")
    for name in COLLECTED:
        typer.echo(f"store    {folder / name}.zarr")


@app.command()
def status(
    config: ConfigFile = CONFIG,
    results: Results = RESULTS,
    cores: Cores = CORES,
    watch: Annotated[
        bool, typer.Option("--watch", help="Look again until nothing is left; Ctrl-C ends it.")
    ] = False,
) -> None:
    """Show per shard what is done, failed and pending, and the time left.

    Example: mfsweep status --config config/config.yaml --watch
    """
    from mfsweep.progress import watch as show
    from mfsweep.sweep.status import status_text

    settings, folder = _open(config, results)
    if watch:
        with suppress(KeyboardInterrupt):
            show(lambda: status_text(settings, folder, cores))
    else:
        typer.echo(status_text(settings, folder, cores)[0])


@app.command()
def prune(
    config: ConfigFile = CONFIG,
    results: Results = RESULTS,
    yes: Annotated[bool, typer.Option("--yes", help="Remove without asking.")] = False,
) -> None:
    """Remove what the config does not ask for, after asking.

    Example: mfsweep prune --config config/config.yaml
    """
    from mfsweep.sweep.lock import RUN
    from mfsweep.sweep.unasked import leftovers, size, unasked
    from mfsweep.sweep.unasked import prune as remove

    settings, folder = _open(config, results)
    if not folder.exists():
        message = f"{folder} does not exist: nothing to prune; correct --config or --results"
        raise InputError(message)
    with _holding(folder, [RUN], "mfsweep prune"):
        found = [*unasked(settings, folder), *leftovers(folder)]
        for one in found:
            of = "of " if one.shard else ""
            typer.echo(f"{one.path}: {one.what} ({of}{size(one) / 1e6:.3f} MB)")
        if found and not yes and not sys.stdin.isatty():
            message = "prune asks before it removes and nobody can answer here: add --yes"
            raise InputError(message)
        if not found or not (yes or typer.confirm("Remove all of these?")):
            typer.echo("nothing removed")
            return
        remove(found, settings)
        typer.echo(f"{len(found)} removed")


@app.command()
def verify(
    config: ConfigFile = CONFIG,
    results: Results = RESULTS,
    repair: Annotated[
        bool, typer.Option("--repair", help="Mark what is damaged to be computed again.")
    ] = False,
) -> None:
    """Read every byte of the stores and name what is damaged; exit 1 if anything is.

    Example: mfsweep verify --config config/config.yaml --repair
    """
    from contextlib import nullcontext

    from mfsweep.sweep.config import load_config
    from mfsweep.sweep.lock import RUN
    from mfsweep.sweep.verify import damage, mark_damage, told
    from mfsweep.sweep.verify import repair as mark

    settings = load_config(config)
    folder = results / settings.run
    if not folder.exists():
        message = f"{folder} does not exist: nothing to verify; correct --config or --results"
        raise InputError(message)
    if not list(mark_damage(folder / "run.json")):  # a damaged one cannot say whose folder this is
        _open(config, results)
    found = []
    with _holding(folder, [RUN], "mfsweep verify") if repair else nullcontext():
        for one in damage(settings, folder):
            found.append(one)
            typer.echo(told(one, folder))
        if repair:
            mark(found, settings, config, folder)
    if not found:
        typer.echo("nothing is damaged")
        return
    remedy = "marked: run the sweep again" if repair else "--repair marks them to be made again"
    typer.echo(f"{len(found)} damaged; {remedy}")
    raise typer.Exit(1)


@app.command()
def show(
    folder: Annotated[Path, typer.Argument(help="Folder of a run, such as results/demo.")],
) -> None:
    """Print what made the stores of a run: config, software, numerics.

    Example: mfsweep show results/demo
    """
    from mfsweep.sweep.show import show as describe

    typer.echo(describe(folder))


@contextmanager
def _holding(folder: Path, names: list[str], verb: str) -> "Iterator[None]":
    """Hold parts of a run, and say whose locks were found stale."""
    from mfsweep.sweep.lock import Lock

    with Lock(folder, names, verb) as lock:
        for holder in lock.cleared:
            say(f"mfsweep: cleared the lock of {holder}, which is gone")
        yield


def _open(config: Path, results: Path) -> "tuple[Config, Path]":
    """Load the config and check that the run's folder is its own."""
    from mfsweep.sweep.config import load_config
    from mfsweep.sweep.folder import check_claim

    settings = load_config(config)
    folder = results / settings.run
    check_claim(folder, config, settings)
    return settings, folder


def _run(
    task: "Callable[..., Outcome]",
    verb: str,
    config: Path,
    results: Path,
    ids: list[str] | None,
    choose: Chosen,
) -> None:
    """Run one verb over the shards; exit 1 if a cell failed."""
    from mfsweep.sweep.folder import claim
    from mfsweep.sweep.lock import RUN
    from mfsweep.sweep.workers import shared

    settings, folder = _open(config, results)
    chosen = _chosen(settings, ids)
    claim(folder, config, settings)
    names = [shard.id for shard in chosen] if ids else [RUN]
    failures = 0
    with (
        _holding(folder, names, f"mfsweep {verb}"),
        shared(choose(settings, chosen), folder / "logs") as workers,
    ):
        for shard in chosen:
            with Progress(f"{verb} {shard.id}") as progress:
                outcome = task(settings, shard, folder, workers, progress.advance)
            stale = f", {outcome.stale} of them stale" if outcome.stale else ""
            say(
                f"{verb} {shard.id}: {outcome.computed} computed, "
                f"{outcome.already_done} already done{stale}, {len(outcome.failures)} failed"
            )
            for line in outcome.failures:
                say(f"mfsweep: {line}")
            failures += len(outcome.failures)
    if failures:
        raise typer.Exit(1)


def _chosen(settings: "Config", ids: list[str] | None) -> "list[Shard]":
    from mfsweep.sweep.grid import shards

    asked = {shard.id: shard for shard in shards(settings)}
    unknown = [name for name in ids or () if name not in asked]
    if unknown:
        message = f"--shard {unknown[0]}: not in this config; mfsweep plan lists its shards"
        raise InputError(message)
    return [asked[name] for name in ids or asked]


_STOPS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""What batch systems send before a job's time is over, or when it is cancelled."""


class _Stopped(SystemExit):
    """A signal to stop: locks are released and workers ended on the way out."""

    code: int


def _stop(number: int, _: object) -> None:
    for other in _STOPS:  # they may come one after the other
        signal.signal(other, signal.SIG_IGN)
    raise _Stopped(128 + number)


def main() -> None:
    """Run the command line; one line on standard error and exit 2 for bad input, 1 for failure."""
    debug = "--debug" in sys.argv
    sys.argv = [argument for argument in sys.argv if argument != "--debug"]
    for number in _STOPS:
        signal.signal(number, _stop)
    try:
        app()
    except _Stopped as stopped:
        name = signal.Signals(stopped.code - 128).name
        say(f"mfsweep: stopped by {name}: what is finished is kept; run the same command again")
        os._exit(stopped.code)  # workers end with this process, threads would be waited for
    except (MfsweepError, OSError) as error:
        if debug:
            raise
        told = refused(Path(sys.argv[0]).stem, error) if isinstance(error, OSError) else error
        say(f"mfsweep: {' '.join(str(told).split())}")
        sys.exit(2 if isinstance(error, InputError) else 1)
