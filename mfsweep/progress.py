"""Live progress on a terminal, plain lines in a log."""

import sys
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    from mfsweep.sweep.execute import Outcome

SECONDS_BETWEEN_LINES = 60.0
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
    """Count of finished tasks with the time left, on standard error."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.began = self.spoke = time.monotonic()
        self._bar = None
        if sys.stderr.isatty():
            from rich import progress
            from rich.console import Console

            self._bar = progress.Progress(
                progress.TextColumn("{task.description}"),
                progress.BarColumn(),
                progress.MofNCompleteColumn(),
                progress.TextColumn("{task.fields[failed]} failed"),
                progress.TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._task = self._bar.add_task(title, total=None, failed=0)

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
        finished, failed = outcome.computed + len(outcome.failures), len(outcome.failures)
        if self._bar is not None:
            self._bar.update(self._task, completed=finished, total=total, failed=failed)
        now = time.monotonic()
        if finished == total or now - self.spoke >= SECONDS_BETWEEN_LINES:
            self.spoke = now
            left = (now - self.began) / finished * (total - finished)
            line = f"{self.title}: {finished}/{total} done, {failed} failed, {left:.0f} s left"
            (say if self._bar is None else _log)(line)
