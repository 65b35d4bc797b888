"""A supervisor that keeps a few processes running, and ends all of them.

Each child leads a separate session, so Ctrl-C reaches only the supervisor. Processes that a child leaves behind in its
process group end with the child. A child also has the reading end of a pipe, the parent-death watch. When the
supervisor dies in any way, the pipe ends and the children stop by themselves.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from runtime.parent_death import PARENT_VARIABLE

__all__ = ["STOPPING_S", "ChildSpec", "Supervisor"]

_FIRST_DELAY_S: Final = 0.2
_LONGEST_DELAY_S: Final = 10.0
_STEADY_AFTER_S: Final = 30.0
STOPPING_S: Final = 20.0
"""The seconds that a child may take to stop, besides the time that it is given to finish its work."""
_POLL_S: Final = 0.05
_LOG_BYTES: Final = 10 * 2**20
_TAIL_BYTES: Final = 4096
_LINE_CHARACTERS: Final = 200


@dataclass(frozen=True)
class ChildSpec:
    """A process to keep running.

    Its output is appended to ``log``, whose older part is in ``*.old.log``. ``None``: it goes to this process's output.
    """

    name: str
    argv: Sequence[str]
    log: Path | None


class Supervisor:
    """A supervisor that starts children, restarts those that end, and stops them all. Use it as a context manager.

    ``say`` gets the messages for the user, in one line each. The descriptor ``keep``, where there is one, stays open in
    every child. ``grace_s``: the seconds that children get to stop.
    """

    def __init__(
        self,
        specs: Sequence[ChildSpec],
        environment: Mapping[str, str],
        say: Callable[[str], None],
        *,
        keep: int | None = None,
        grace_s: float = STOPPING_S,
    ) -> None:
        self._grace_s = grace_s
        self._parent_pipe, self._parent_pipe_end = os.pipe()
        environment = {**environment, PARENT_VARIABLE: str(self._parent_pipe)}
        descriptors = (self._parent_pipe,) if keep is None else (self._parent_pipe, keep)
        self._children = [_Child(spec, environment, descriptors) for spec in specs]
        self._say = say

    def __enter__(self) -> Self:
        for child in self._children:
            child.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            os.close(self._parent_pipe_end)
            os.close(self._parent_pipe)

    @property
    def deaths(self) -> Mapping[str, int]:
        """The number of times that each child ended by itself, by name."""
        return {child.spec.name: child.deaths for child in self._children}

    @property
    def last_status(self) -> Mapping[str, int | None]:
        """The last exit status of each child, or the negated signal, by name; ``None`` if it has not ended."""
        return {child.spec.name: child.last_status for child in self._children}

    def check(self) -> None:
        """Restart children that have ended, each time after a longer pause, and keep logs short. Call it often."""
        for child in self._children:
            how = child.ended()
            if how is not None:
                self._say(
                    f"{child.spec.name} ended ({how}); starting it again in {child.delay_s:g} s"
                    f"{_where(child.spec.log, last_line=True)}"
                )
            child.shorten_log()
            child.restart_if_due()

    def stop(self) -> None:
        """Ask every child to stop, and kill those that have not stopped after ``grace_s``."""
        for child in self._children:
            child.signal(signal.SIGTERM)
        deadline = time.monotonic() + self._grace_s
        while any(child.running for child in self._children) and time.monotonic() < deadline:
            for child in self._children:
                child.ended()
            time.sleep(_POLL_S)
        self.kill()

    def kill(self) -> None:
        """Kill every child that is still running."""
        for child in self._children:
            if child.running:
                self._say(f"{child.spec.name} did not stop by itself and was killed{_where(child.spec.log)}")
                child.kill()


class _Child:
    def __init__(self, spec: ChildSpec, environment: Mapping[str, str], descriptors: Sequence[int]) -> None:
        self.spec = spec
        self.deaths = 0
        self.last_status: int | None = None
        self.delay_s = _FIRST_DELAY_S
        self._environment = environment
        self._descriptors = descriptors
        self._process: subprocess.Popen[Any] | None = None
        self._started_at = 0.0
        self._due_at: float | None = None

    @property
    def running(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        log = self.spec.log
        with contextlib.ExitStack() as opened:
            output = None
            if log is not None:
                log.parent.mkdir(parents=True, exist_ok=True)
                self.shorten_log()
                output = opened.enter_context(log.open("ab"))
            self._process = subprocess.Popen(
                self.spec.argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environment,
                pass_fds=self._descriptors,
                start_new_session=True,
            )
        self._started_at = time.monotonic()
        self._due_at = None

    def shorten_log(self) -> None:
        """Move the log's content aside once it is long; the child goes on writing, at the new end."""
        log = self.spec.log
        if log is None or not log.exists() or log.stat().st_size <= _LOG_BYTES:
            return
        # On a full disk, the service goes on without its older log.
        with contextlib.suppress(OSError):
            shutil.copyfile(log, log.with_suffix(".old.log"))
        os.truncate(log, 0)

    def ended(self) -> str | None:
        """Return how the child ended, if it has since the last call, and kill the rest of its process group."""
        process = self._process
        # Not reaped yet: as long as it is a zombie, its group's number cannot belong to another process.
        if process is None or os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return None
        self.signal(signal.SIGKILL)
        self.last_status = status = process.wait()
        self._process = None
        self.deaths += 1
        now = time.monotonic()
        steady = now - self._started_at > _STEADY_AFTER_S
        self.delay_s = _FIRST_DELAY_S if steady or self.deaths == 1 else min(2 * self.delay_s, _LONGEST_DELAY_S)
        self._due_at = now + self.delay_s
        return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"

    def restart_if_due(self) -> None:
        if self._due_at is not None and time.monotonic() >= self._due_at:
            self.start()

    def signal(self, number: signal.Signals) -> None:
        """Send the signal ``number``: SIGKILL to the child's whole group, any other to the child alone."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if number == signal.SIGKILL else os.kill)(self._process.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
            self._process = None


def _where(log: Path | None, *, last_line: bool = False) -> str:
    """Return the note on a child's log, with its last line on request; empty where it has none."""
    return "" if log is None else f" (log: {log}{_last_line(log) if last_line else ''})"


def _last_line(log: Path) -> str:
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        lines = file.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f", which ends with: {last[:_LINE_CHARACTERS]}" if last else ""
    return ""
