"""Live progress on a terminal, plain lines in a log."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    from mfsweep.sweep.execute import Outcome

SECONDS_BETWEEN_LINES = 60.0
SECONDS_BETWEEN_LOOKS = 2.0
_logs: list[TextIO] = []


def log_to(path: Path) -> None:
    """Write every line to this file as well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _logs.append(path.open("w", buffering=1))


def say(line: str) -> None:
    """Print one line on standard error and in the log."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201
    _log(line)


def _log(line: str) -> None:
    for log in _logs:
        log.write(line + "\n")


class Progress:
    """Count of finished tasks, their speed and the time left, on standard error."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.spoke = time.monotonic()
        self._bar = None
        if sys.stderr.isatty():
            from rich import progress
            from rich.console import Console

            say(title)  # a line of its own: the bar must fit into 80 columns
            self._bar = progress.Progress(
                progress.BarColumn(bar_width=15),
                progress.TextColumn("{task.fields[told]}"),
                console=Console(stderr=True),
            )
            self._task = self._bar.add_task(title, total=None, told="starting workers")

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, outcome: "Outcome", total: int) -> None:
        """Show one more finished task; in a log, at most one line a minute and the last one."""
        now = time.monotonic()
        finished = outcome.computed + len(outcome.failures)
        told = _told(outcome, total, now - outcome.began)
        if self._bar is not None:
            self._bar.update(self._task, completed=finished, total=total, told=told)
        if finished == total or now - self.spoke >= SECONDS_BETWEEN_LINES:
            self.spoke = now
            (say if self._bar is None else _log)(f"{self.title}: {told}")


def _told(outcome: "Outcome", total: int, seconds: float) -> str:
    """Say how far a verb is, such as 12/48 done, 2 in flight, 0 failed, 3.1e+08 pairs/s."""
    failed = len(outcome.failures)
    finished = outcome.computed + failed
    parts = [f"{finished}/{total} done", f"{outcome.in_flight} in flight", f"{failed} failed"]
    if outcome.pairs:
        parts.append(f"{outcome.pairs / seconds:.2g} pairs/s")
    parts.append(f"{seconds / finished * (total - finished):.0f} s left")
    return ", ".join(parts)


def watch(look: Callable[[], tuple[str, str, bool]]) -> None:
    """Show a text until it says that it is final: live, or in a log one line a minute.

    Parameters
    ----------
    look
        Returns the whole text, its summary of one line, and whether it is final.
    """
    if not sys.stdout.isatty():
        while True:
            text, line, final = look()
            print(text if final else line, flush=True)  # noqa: T201
            if final:
                return
            time.sleep(SECONDS_BETWEEN_LINES)
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False) as live:
        while True:
            text, _, final = look()
            live.update(Text(text), refresh=True)
            if final:
                return
            time.sleep(SECONDS_BETWEEN_LOOKS)
