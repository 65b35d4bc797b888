"""A list of all processes that this one has started, however indirectly."""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path
from typing import Final

__all__ = ["adopt_orphans", "descendants"]

_PR_SET_CHILD_SUBREAPER: Final = 36


def adopt_orphans() -> None:
    """Make this process adopt descendants whose parent dies, from now on. So none of them can be missed."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


def descendants() -> list[tuple[int, str]]:
    """Return (process id, command line) of every living process below this one. Zombies do not count."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The command's name may hold any character, but no field after the last parenthesis does.
            state, parent = stat.read_text(errors="replace").rpartition(")")[2].split()[:2]
            if state not in ("Z", "X"):
                children.setdefault(int(parent), []).append(int(stat.parent.name))
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return [(pid, _command_line(pid)) for pid in sorted(found)]


def _command_line(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""
