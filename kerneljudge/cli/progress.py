"""Progress on standard error: one line that is updated on a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from typing_extensions import Self

from kerneljudge.cli.render import plain

__all__ = ["ProgressLine"]

_PLAIN_INTERVAL_S: Final = 5.0
"""The interval of messages about a long stage where there is no terminal."""


class ProgressLine:
    """A display of the current stage and of the time since the start. It is a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()
        self._stage = ""
        self._printed = 0.0
        self._task: TaskID | None = None
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._progress.start()
            self._task = self._progress.add_task("", total=None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._progress.stop()

    def show(self, stage: str, message: str, share: float | None = None) -> None:
        """Show the current work. ``share`` (0 to 1) is the finished part of it."""
        line = plain(f"{stage}: {message}" if message else stage)
        if self._task is not None:
            self._progress.update(self._task, description=line, total=None if share is None else 1.0, completed=share)
        elif stage != self._stage or time.monotonic() - self._printed >= _PLAIN_INTERVAL_S:
            self._stage, self._printed = stage, time.monotonic()
            elapsed = self._printed - self._started
            self._console.print(f"[{elapsed:6.1f} s] {line}", markup=False, highlight=False, soft_wrap=True)
