"""Control groups (v2): limits for all processes of a runner together, and stopping all of them at once. Torch-free.

A group is used where one can be made, by root or in a delegated subtree (systemd: ``Delegate=yes``). Without
the controllers for memory and processes it still freezes.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

__all__ = ["Group", "GroupParent"]

_CONTROLLERS: Final = ("memory", "pids")
_REMOVE_S: Final = 5.0
_WEIGHT: Final = 20
"""Share of the processors under contention; our own processes have the kernel's default of 100."""


class GroupParent:
    """The folder below which the groups of one fork server are made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        _enable(path, (*_CONTROLLERS, "cpu"))
        enabled = _read(path / "cgroup.subtree_control").split()
        self.limits = all(controller in enabled for controller in _CONTROLLERS)
        """Whether memory and the number of processes can be limited."""

    @classmethod
    def open(cls) -> GroupParent | None:
        """Open one below the caller's own group, or below the nearest group above that allows it; ``None``: there is
        none.
        """
        best: GroupParent | None = None
        for base in _candidates():
            _enable(base, _CONTROLLERS)
            path = base / f"kerneljudge-{os.getpid()}"
            with contextlib.suppress(OSError):
                path.mkdir()
                parent = cls(path)
                if parent.limits:
                    if best is not None:
                        best.close()
                    return parent
                if best is None:
                    best = parent
                else:
                    parent.close()
        return best

    def create(self, name: str, *, memory_bytes: int, processes: int) -> Group | None:
        """Create a group; ``None`` where it cannot be made after all."""
        path = self.path / name
        try:
            path.mkdir()
        except OSError:
            return None
        if self.limits:
            _write(path / "memory.max", str(memory_bytes))
            _write(path / "memory.swap.max", "0")
            # All of a candidate or nothing: half a candidate would hang or lie.
            _write(path / "memory.oom.group", "1")
            _write(path / "pids.max", str(processes))
            _write(path / "cpu.weight", str(_WEIGHT))
        return Group(path, limits=self.limits)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.path.rmdir()


class Group:
    """One group, by its folder."""

    def __init__(self, path: Path, *, limits: bool) -> None:
        self.path = path
        self.limits = limits
        """Whether it limits memory and the number of processes."""

    def join(self) -> bool:
        """Move the calling process in."""
        return _write(self.path / "cgroup.procs", "0")

    def ran_out_of_memory(self) -> bool:
        """Whether a process of it was killed because the group's own limit was reached."""
        events = self._memory_events()
        # "oom" counts the times that its limit left no room, "oom_kill" all kills in it, for whatever reason.
        return bool(events.get("oom_kill") and events.get("oom", 1))

    def was_killed_for_others(self) -> bool:
        """Whether a process of it was killed for want of the machine's memory, within the group's own limit."""
        return bool(self._memory_events().get("oom_kill")) and not self.ran_out_of_memory()

    def _memory_events(self) -> dict[str, int]:
        words = _read(self.path / "memory.events").split()
        return {name: int(count) for name, count in zip(words[::2], words[1::2], strict=False)}

    def remove(self) -> bool:
        """Kill the remaining processes, and delete the group. False where some survive: the group is not empty."""
        _write(self.path / "cgroup.kill", "1")
        deadline = time.monotonic() + _REMOVE_S
        while True:
            try:
                self.path.rmdir()
            except FileNotFoundError:
                return True
            except OSError:
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.001)
            else:
                return True


def _candidates() -> Iterator[Path]:
    """Yield the folders of the caller's own group and of those above it."""
    mount = next((line.split()[1] for line in _read(Path("/proc/mounts")).splitlines() if " cgroup2 " in line), None)
    own = next((line[3:] for line in _read(Path("/proc/self/cgroup")).splitlines() if line.startswith("0::")), None)
    if mount is None or own is None:
        return
    top, folder = Path(mount), Path(mount) / own.lstrip("/")
    while folder.is_relative_to(top):
        if os.access(folder, os.W_OK):
            yield folder
        folder = folder.parent


def _enable(folder: Path, controllers: Iterable[str]) -> None:
    """Let the groups below ``folder`` have these controllers, as far as it has them itself."""
    for controller in controllers:
        _write(folder / "cgroup.subtree_control", f"+{controller}")


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _write(path: Path, text: str) -> bool:
    try:
        path.write_text(text)
    except OSError:
        return False
    return True
