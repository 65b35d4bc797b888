"""Namespaces, privileges, environment and descriptors that a process gives up. Torch-free.

Each function acts on the calling process. Python 3.11 has no ``os.unshare``, hence ``ctypes``.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from evaluator.sandbox.layers import Layer

__all__ = [
    "adopt_orphans",
    "clear_environment",
    "close_descriptors",
    "die_with_parent",
    "drop_privileges",
    "kill_descendants",
    "unshare_all",
]

_CLONE_NEWUSER: Final = 0x10000000
_FLAGS: Final = {
    Layer.PID: 0x20000000,
    Layer.NETWORK: 0x40000000,
    Layer.IPC: 0x08000000,
    Layer.UTS: 0x04000000,
    Layer.MOUNT: 0x00020000,
}
_MS_REC_PRIVATE: Final = 0x4000 | 0x40000
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_CAPBSET_DROP: Final = 24
_CAPABILITY_VERSION_3: Final = 0x20080522
_INSIDE_UID: Final = 1000

_libc = ctypes.CDLL(None, use_errno=True)


def unshare_all() -> list[Layer]:
    """Move into a new user namespace and new namespaces of every kind; returns the layers that the kernel refused.

    A new PID namespace holds the *children* of the caller. The kernel's uid stays the same (CUDA IPC needs that);
    inside, it looks like an ordinary user's.
    """
    uid, gid = os.geteuid(), os.getegid()
    everything = _CLONE_NEWUSER
    for flag in _FLAGS.values():
        everything |= flag
    refused: list[Layer] = []
    if _libc.unshare(everything) == 0:
        _map_ids(uid, gid)
    elif _libc.unshare(_CLONE_NEWUSER) == 0:
        _map_ids(uid, gid)
        refused = [layer for layer, flag in _FLAGS.items() if _libc.unshare(flag) != 0]
    else:
        refused = [Layer.USER, *(layer for layer, flag in _FLAGS.items() if _libc.unshare(flag) != 0)]
    if Layer.MOUNT not in refused:
        # Without this, a mount made here would show outside as well.
        _libc.mount(None, b"/", None, _MS_REC_PRIVATE, None)
    return refused


def die_with_parent() -> None:
    """Be killed when the thread that forked this process ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, so that none escapes ``kill_descendants``."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def drop_privileges() -> None:
    """Give up every capability for good; no program started from here can gain any."""

    class Header(ctypes.Structure):
        _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))

    class Data(ctypes.Structure):
        _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))

    for capability in range(64):
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _libc.capset(ctypes.byref(Header(_CAPABILITY_VERSION_3, 0)), (Data * 2)())


def clear_environment(replacement: dict[str, str]) -> None:
    """Replace the whole environment, for later reads alone: the process's own start-up is over."""
    os.environ.clear()
    os.environ.update(replacement)


def close_descriptors(keep: Iterable[int]) -> None:
    """Close every descriptor that is not in ``keep``."""
    kept = set(keep)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names only, before imports are cheap
        descriptor = int(name)
        if descriptor not in kept:
            with contextlib.suppress(OSError):
                os.close(descriptor)


def kill_descendants() -> None:
    """Kill and reap every descendant of the caller (see ``adopt_orphans``)."""
    while True:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        if not children:
            return
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)


def _map_ids(uid: int, gid: int) -> None:
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/gid_map").write_text(f"{_INSIDE_UID} {gid} 1")
    Path("/proc/self/uid_map").write_text(f"{_INSIDE_UID} {uid} 1")
