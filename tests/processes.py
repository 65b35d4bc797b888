"""Looking at processes through /proc, for tests that nothing is left behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """A process; ``started`` tells it from a later one with the same number."""

    pid: int
    started: int
    # A process that is just being started or ended shows another command, and is the same all the same.
    command: str = field(compare=False)

    @property
    def alive(self) -> bool:
        now = look(self.pid)
        return now is not None and now.started == self.started


def look(pid: int) -> Process | None:
    """The process with this number; a zombie is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field, a name in brackets, may hold anything.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else Process(pid, int(fields[19]), command)


def resident_bytes(pid: int) -> int:
    """How much of the machine's memory a process has. Raises ``OSError`` where there is none."""
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0]) * 1024


def children(pid: int) -> list[Process]:
    """Every process that ``pid`` is the parent of."""
    return [process for process in map(look, sorted(_below(_parents(), {pid}))) if process is not None]


def descendants(pid: int) -> list[Process]:
    """Every process below ``pid``, however deep."""
    parents = _parents()
    found, layer = [], {pid}
    while layer := _below(parents, layer):
        found += [process for process in map(look, sorted(layer)) if process is not None]
    return found


def _parents() -> dict[int, int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
    return parents


def _below(parents: dict[int, int], layer: set[int]) -> set[int]:
    return {child for child, parent in parents.items() if parent in layer}


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = 30.0) -> None:
    """Wait until ``condition`` holds; fail with ``what`` if it does not."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s in vain: {what}"
        time.sleep(0.05)


def wait_until_gone(processes: Iterable[Process], timeout_s: float = 30.0) -> None:
    """Wait until none of ``processes`` is alive."""
    wanted = list(processes)

    def left() -> list[str]:
        return [f"{process.pid} {process.command}" for process in wanted if process.alive]

    deadline = time.monotonic() + timeout_s
    while left():
        assert time.monotonic() < deadline, f"still alive: {left()}"
        time.sleep(0.05)
