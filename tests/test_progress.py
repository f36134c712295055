import io
import re
from itertools import count

import pytest
import xarray as xr
from tiny_run import simulate, write_config

from mfsweep import progress
from mfsweep.progress import Progress
from mfsweep.sweep.config import load_config
from mfsweep.sweep.execute import Outcome
from mfsweep.sweep.folder import shard_folder
from mfsweep.sweep.grid import shards


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only when told to."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])

    def sleep(seconds):
        now[0] += seconds

    monkeypatch.setattr(progress.time, "sleep", sleep)
    return now


def finish(bar, clock, *, every, total=10):
    """Finish ten tasks, the fourth of which fails, one in so many seconds."""
    outcome = Outcome()
    for k in range(total):
        clock[0] += every
        if k == 3:
            outcome.failures.append("cell: reason")
        else:
            outcome.computed += 1
            outcome.pairs += 5e6
        outcome.in_flight = min(2, total - 1 - k)
        bar.advance(outcome, total)


def test_a_log_gets_at_most_a_line_a_minute_and_the_last_one(clock, capsys):
    with Progress("simulate a") as bar:
        finish(bar, clock, every=25.0)
    assert capsys.readouterr().err.splitlines() == [
        "simulate a: 3/10 done, 2 in flight, 0 failed, 2e+05 pairs/s, 175 s left",
        "simulate a: 6/10 done, 2 in flight, 1 failed, 1.7e+05 pairs/s, 100 s left",
        "simulate a: 9/10 done, 1 in flight, 1 failed, 1.8e+05 pairs/s, 25 s left",
        "simulate a: 10/10 done, 0 in flight, 1 failed, 1.8e+05 pairs/s, 0 s left",
    ]


def test_the_time_left_is_that_of_tasks_not_of_compiling(clock, capsys):
    with Progress("simulate a") as bar:
        clock[0] += 55.0  # compiles, starts workers
        finish(bar, clock, every=3.0, total=4)
    first, _ = capsys.readouterr().err.splitlines()
    assert first.endswith("2/4 done, 2 in flight, 0 failed, 1.7e+06 pairs/s, 6 s left")


def test_a_terminal_of_80_columns_shows_all_of_it(clock, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(progress.sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    with Progress("simulate aligned-d2-0a36674e7cf0") as bar:
        finish(bar, clock, every=1.0)
    shown = re.sub(r"\x1b\[[^A-Za-z]*[A-Za-z]", "", terminal.getvalue())
    assert "simulate aligned-d2-0a36674e7cf0\n" in shown
    assert "10/10 done, 0 in flight, 1 failed, 4.5e+06 pairs/s, 0 s left" in shown


def test_watch_prints_a_line_a_minute_until_nothing_is_left(clock, capsys):
    looks = count()
    progress.watch(lambda: ("the table", f"look {(n := next(looks))}", n == 3))
    assert capsys.readouterr().out.splitlines() == ["look 0", "look 1", "look 2", "the table"]
    assert clock[0] == 3 * progress.SECONDS_BETWEEN_LINES


def test_watch_shows_the_whole_text_on_a_terminal(clock, monkeypatch):
    terminal, looks = Terminal(), count()
    monkeypatch.setattr(progress.sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    progress.watch(lambda: (f"table {(n := next(looks))}", "", n == 2))
    assert "table 2" in terminal.getvalue()
    assert clock[0] == 2 * progress.SECONDS_BETWEEN_LOOKS


def test_pairs_are_those_that_the_cells_recorded(tmp_path):
    changes = {"grid": {"n_tokens": [8, float("inf")], "beta": [4.0]}}
    config = load_config(write_config(tmp_path, **changes))
    outcomes = simulate(config, tmp_path)
    for outcome, shard in zip(outcomes, shards(config), strict=True):
        store = shard_folder(tmp_path, shard) / "trajectories.zarr"
        stats = xr.open_zarr(store, consolidated=False)["stats"]
        assert outcome.pairs == float(stats.sel(stat="pairs_computed").sum()) > 0
