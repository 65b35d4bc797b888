"""Stopping all processes of a runner, and letting them go on. Torch-free.

With a control group the kernel stops them all at once, and nothing but the judge wakes them. Without one they
get SIGSTOP one by one until none is new; what they consume while they should stand still is counted.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from pathlib import Path
from typing import Final

from evaluator.errors import InfrastructureFault

__all__ = ["CannotBeStopped", "Enclosure", "Waits", "longest_wait_ms"]

_FREEZE_S: Final = 10.0
_FEWEST_LOOKS: Final = 100
"""Whoever looked less often was held up itself, by a machine that came to nothing."""
_FREEZE_POLL_S: Final = 0.00002
_MAX_PASSES: Final = 50
_TICK_S: Final = 1.0 / os.sysconf("SC_CLK_TCK")


Waits = dict[int, int]
"""Nanoseconds by thread."""


class CannotBeStopped(InfrastructureFault):
    """The kernel does not come to an end with stopping a runner: something of it is amid a request that takes long."""


class Enclosure:
    """A runner and all that it has started. ``pid``: as seen from here; ``group``: its control group, if any. To be
    closed."""

    def __init__(self, pid: int, group: str | None) -> None:
        self.pid = pid
        self._group = None if group is None else _Freezer(Path(group))
        self._stopped: set[int] = set()
        self._ticks = 0
        self.ran_while_stopped_s = 0.0
        """Processor time that was used between a ``freeze`` and the ``thaw`` after it."""

    @property
    def processors(self) -> frozenset[int]:
        """Those that the runner may use; if it is gone, our own: its link will say so."""
        with contextlib.suppress(ProcessLookupError):
            return frozenset(os.sched_getaffinity(self.pid))
        return frozenset(os.sched_getaffinity(0))

    def freeze(self) -> None:
        """Stop everything. Raises ``CannotBeStopped``."""
        if self._group is not None:
            self._group.freeze()
            return
        for _ in range(_MAX_PASSES):
            members = self._members()
            running = {pid for pid in members if pid not in self._stopped or _runs(pid)}
            if not running:
                break
            self._signal(running, signal.SIGSTOP)
            self._stopped |= members
        self._ticks = self._consumed()

    def thaw(self) -> None:
        """Let everything go on."""
        if self._group is not None:
            self._group.thaw()
            return
        if self._stopped:
            self.ran_while_stopped_s += max(0, self._consumed() - self._ticks) * _TICK_S
        self._signal(self._stopped, signal.SIGCONT)
        self._stopped = set()

    def waits(self) -> Waits:
        """How long each thread of the runner's own process has waited for a processor so far. Empty if it is gone, or
        the kernel does not count that."""
        found: Waits = {}
        with contextlib.suppress(OSError, ValueError):
            for thread in Path(f"/proc/{self.pid}/task").iterdir():
                _, waited, _ = (thread / "schedstat").read_text().split()
                found[int(thread.name)] = int(waited)
        return found

    def close(self) -> None:
        if self._group is not None:
            self._group.close()

    def _signal(self, pids: set[int], number: int) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _members(self) -> set[int]:
        """The runner and its descendants: orphans fall to it, since it is the first of its PID namespace."""
        found, waiting = set(), [self.pid]
        while waiting:
            pid = waiting.pop()
            if pid in found:
                continue
            found.add(pid)
            with contextlib.suppress(OSError):
                for thread in Path(f"/proc/{pid}/task").iterdir():
                    with contextlib.suppress(OSError):
                        waiting.extend(map(int, (thread / "children").read_text().split()))
        return found

    def _consumed(self) -> int:
        """Ticks of processor time that the stopped processes have used so far."""
        total = 0
        for pid in self._stopped:
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                total += int(fields[11]) + int(fields[12])
        return total


def longest_wait_ms(before: Waits, after: Waits) -> float:
    """How long the thread that waited most has waited for a processor in between."""
    return max((waited - before.get(thread, 0) for thread, waited in after.items()), default=0) / 1e6


class _Freezer:
    """A control group's two files, kept open: both are needed many times in each call, once within the judge's clock.

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
                raise InfrastructureFault(f"a runner's control group cannot be opened: {error}") from error

    def freeze(self) -> None:
        deadline = time.monotonic() + _FREEZE_S
        with contextlib.suppress(OSError):
            os.pwrite(self._switch, b"1", 0)
            looks = 0
            while b"frozen 1" not in os.pread(self._events, 256, 0):
                looks += 1
                if looks > _FEWEST_LOOKS and time.monotonic() > deadline:
                    raise CannotBeStopped(f"its processes could not be stopped within {_FREEZE_S:.0f} s")
                time.sleep(_FREEZE_POLL_S)  # whoever is to be stopped may need this processor to get there

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


def _runs(pid: int) -> bool:
    """Whether a process is neither stopped nor at its end."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "TtZXx"
    except OSError:
        return False
