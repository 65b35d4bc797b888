"""Stopping all processes of a runner, and letting them go on. Torch-free.

With a control group the kernel stops them all at once, and nothing but the judge wakes them. Without one they get
SIGSTOP one by one until none is new and none is on a processor. Processor time that they use while stopped is counted.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from evaluator.errors import InfrastructureFault

__all__ = ["CannotBeStopped", "Freezer", "Waits", "total_wait_ms"]

_FREEZE_S: Final = 10.0
_MIN_CHECKS: Final = 100
"""With fewer checks than this, the judge was held up itself, by an overloaded machine."""
_FREEZE_POLL_S: Final = 0.00002
_UNINTERRUPTIBLE_S: Final = 0.05
"""A process that waits within the kernel for longer than this, in seconds, counts as stopped. The parent of a vfork
waits for as long as its child is stopped.
"""
_STOPPED: Final = "TtZXx"
_TICK_S: Final = 1.0 / os.sysconf("SC_CLK_TCK")


Waits = dict[int, int]
"""Nanoseconds by thread."""


class CannotBeStopped(InfrastructureFault):
    """The kernel does not finish stopping a runner: a process of it is amid a request that takes long."""

    def __init__(self) -> None:
        super().__init__(f"its processes could not be stopped within {_FREEZE_S:.0f} s")


class Freezer:
    """A runner and its descendants. To be closed.

    ``pid``: as seen from here; ``group``: its control group, if any.
    """

    def __init__(self, pid: int, group: str | None) -> None:
        self.pid = pid
        self._group = None if group is None else _Freezer(Path(group))
        self._stopped: set[int] = set()
        self._ticks: dict[int, int] = {}
        self.ran_while_stopped_s = 0.0
        """Processor time that was used between a ``freeze`` and the ``thaw`` after it."""

    @property
    def processors(self) -> frozenset[int]:
        """The runner's allowed processors; if it is gone, our own: its control socket reports its end."""
        with contextlib.suppress(ProcessLookupError):
            return frozenset(os.sched_getaffinity(self.pid))
        return frozenset(os.sched_getaffinity(0))

    def freeze(self) -> None:
        """Stop everything, and wait until the kernel has finished the threads' requests and removed ended processes.

        Raises ``CannotBeStopped``.
        """
        if self._group is not None:
            self._group.freeze()
            return
        self._stop(every_thread=True)
        self._ticks = self._consumed()

    def halt(self) -> None:
        """Stop everything as quickly as possible, within a clock. To be followed by ``thaw``. Raises
        ``CannotBeStopped``.

        Without a control group, other threads than the first of a process may still be within the kernel.
        """
        if self._group is not None:
            self._group.freeze()
            return
        # The number of a process's threads must not decide the time of this, or it would show in its latency.
        self._stop(every_thread=False)
        self._ticks = {}

    def thaw(self) -> None:
        """Let everything go on."""
        if self._group is not None:
            self._group.thaw()
            return
        if self._ticks:
            now = self._consumed()
            # One by one: an ended process has no figure, and must not hide the others' use.
            ticks = sum(max(0, now.get(pid, 0) - before) for pid, before in self._ticks.items())
            self.ran_while_stopped_s += ticks * _TICK_S
        self._signal(self._stopped, signal.SIGCONT)
        self._stopped = set()

    def waits(self) -> Waits:
        """Return the waiting time of each thread of the runner's own process for a processor so far.

        Empty if it is gone, or the kernel does not count that.
        """
        found: Waits = {}
        with contextlib.suppress(OSError, ValueError):
            for thread in _threads(self.pid):
                _, waited, _ = _read(f"/proc/{self.pid}/task/{thread}/schedstat").split()
                found[int(thread)] = int(waited)
        return found

    def close(self) -> None:
        if self._group is not None:
            self._group.close()

    def _stop(self, *, every_thread: bool) -> None:
        """Stop one process after the other until, twice in a row, none was new and none was running.

        Once is not enough, because the last one could have woken the first. A single process has no other one to wake
        it.
        """
        known = {self.pid}
        self._signal(known, signal.SIGSTOP)
        begin, checks, quiet = time.monotonic(), 0, 0
        while quiet < min(2, len(known)):
            patient = time.monotonic() < begin + _UNINTERRUPTIBLE_S
            running = {pid for pid in known if _runs(pid, every_thread=every_thread, patient=patient)}
            # Listed only then: a running process could have started another one unseen by the listing. And the first
            # check takes a moment only.
            members = known if running and not checks else self._members()
            new = members - known
            if not running and not new:
                quiet += 1
                continue
            quiet = 0
            # The numbers of the others may belong to new processes by now.
            self._signal(new | running & members, signal.SIGSTOP)
            known = members
            checks += 1
            if checks > _MIN_CHECKS and time.monotonic() > begin + _FREEZE_S:
                self._stopped = known
                raise CannotBeStopped
            time.sleep(_FREEZE_POLL_S)  # the processes to be stopped may need this processor to get there
        self._stopped = known

    def _signal(self, pids: Iterable[int], number: int) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _members(self) -> set[int]:
        """Return the runner and its descendants: orphans fall to it, because it is the first of its PID namespace."""
        found, waiting = set(), [self.pid]
        while waiting:
            pid = waiting.pop()
            if pid in found:
                continue
            found.add(pid)
            for thread in _threads(pid):
                with contextlib.suppress(OSError):
                    waiting.extend(map(int, _read(f"/proc/{pid}/task/{thread}/children").split()))
        return found

    def _consumed(self) -> dict[int, int]:
        """Return the ticks of processor time that each of the stopped processes has used so far."""
        ticks = {}
        for pid in self._stopped:
            with contextlib.suppress(OSError, IndexError):
                fields = _fields(f"/proc/{pid}/stat")
                ticks[pid] = int(fields[11]) + int(fields[12])
        return ticks


def total_wait_ms(before: Waits, after: Waits) -> float:
    """Return the total waiting time of all threads for a processor between two measurements, in milliseconds.

    Where threads wait for one another, as after each parallel loop, any of them holds the others up.
    """
    return sum(waited - before.get(thread, 0) for thread, waited in after.items()) / 1e6


class _Freezer:
    """A control group's two files, kept open, because both are needed many times in each call, once within the judge's
    clock.

    A group that has ended with its runner cannot be stopped any more, and need not be.
    """

    def __init__(self, group: Path) -> None:
        self._files = contextlib.ExitStack()
        self._switch = self._events = -1
        try:
            self._switch = self._open(group / "cgroup.freeze", os.O_WRONLY)
            self._events = self._open(group / "cgroup.events", os.O_RDONLY)
        except OSError as error:
            self.close()
            if error.errno not in (errno.ENOENT, errno.ENODEV):
                raise InfrastructureFault(f"a runner's control group cannot be opened: {error.strerror}") from error

    def freeze(self) -> None:
        deadline = time.monotonic() + _FREEZE_S
        with contextlib.suppress(OSError):
            os.pwrite(self._switch, b"1", 0)
            checks = 0
            while b"frozen 1" not in os.pread(self._events, 256, 0):
                checks += 1
                if checks > _MIN_CHECKS and time.monotonic() > deadline:
                    raise CannotBeStopped
                time.sleep(_FREEZE_POLL_S)  # the processes to be stopped may need this processor to get there

    def thaw(self) -> None:
        with contextlib.suppress(OSError):
            os.pwrite(self._switch, b"0", 0)

    def close(self) -> None:
        self._files.close()
        self._switch = self._events = -1

    def _open(self, path: Path, flags: int) -> int:
        descriptor = os.open(path, flags | os.O_CLOEXEC)
        self._files.callback(os.close, descriptor)
        return descriptor


def _runs(pid: int, *, every_thread: bool, patient: bool) -> bool:
    """Whether a process, by its first thread or by any of them, is neither stopped nor at its end.

    Not ``patient``: a thread that cannot be interrupted within the kernel counts as stopped.
    """
    tasks = [f"/proc/{pid}/task/{thread}" for thread in _threads(pid)] if every_thread else [f"/proc/{pid}"]
    still = _STOPPED if patient else _STOPPED + "D"
    for task in tasks:
        with contextlib.suppress(OSError, IndexError):
            if _fields(f"{task}/stat")[0] not in still:
                return True
    return False


def _threads(pid: int) -> list[str]:
    """Return the threads of a process, by their numbers; none if it is gone."""
    try:
        with os.scandir(f"/proc/{pid}/task") as entries:
            return [entry.name for entry in entries]
    except OSError:
        return []


def _fields(path: str) -> list[str]:
    """Return the fields of a ``stat`` file of ``/proc`` behind the name. Raises ``OSError``."""
    return _read(path).rpartition(")")[2].split()


def _read(path: str) -> str:
    # Many of these are read within a clock: a ``Path`` would take twice as long.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC), "rb", buffering=0) as file:
        return file.read().decode("utf-8", "replace")
