"""Taking away what a process does not need: Linux namespaces, privileges, environment, descriptors.

Each function acts on the calling process. Python 3.11 has no ``os.unshare``, hence ``ctypes``.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Final

__all__ = [
    "adopt_orphans",
    "clear_environment",
    "close_descriptors",
    "die_with_parent",
    "drop_privileges",
    "kill_descendants",
    "limit_resources",
    "make_read_only",
    "members",
    "remount_proc",
    "unshare_all",
]

_CLONE_NEWNS: Final = 0x00020000
_CLONE_NEWUTS: Final = 0x04000000
_CLONE_NEWIPC: Final = 0x08000000
_CLONE_NEWUSER: Final = 0x10000000
_CLONE_NEWPID: Final = 0x20000000
_CLONE_NEWNET: Final = 0x40000000
_MS_REC_PRIVATE: Final = 0x4000 | 0x40000
_MS_BIND: Final = 0x1000
_AT_FDCWD: Final = -100
_AT_RECURSIVE: Final = 0x8000
_MOUNT_ATTR_RDONLY: Final = 0x1
_SYS_MOUNT_SETATTR: Final = 442  # the same number on every architecture
_MS_PROC_FLAGS: Final = 0x2 | 0x4 | 0x8  # nosuid, nodev, noexec
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_CAPBSET_DROP: Final = 24
_CAPABILITY_VERSION_3: Final = 0x20080522
_INSIDE_UID: Final = 1000

_OPTIONAL: Final = {
    "pid": _CLONE_NEWPID,
    "network": _CLONE_NEWNET,
    "ipc": _CLONE_NEWIPC,
    "uts": _CLONE_NEWUTS,
    "mount": _CLONE_NEWNS,
}

_libc = ctypes.CDLL(None, use_errno=True)


def unshare_all(kinds: Iterable[str] = tuple(_OPTIONAL)) -> list[str]:
    """Move into a new user namespace and new namespaces of ``kinds``; returns the layers that the kernel refused.

    A new PID namespace holds the *children* of the caller. The kernel's uid stays the same (CUDA IPC
    needs that); inside, it looks like an ordinary user's.
    """
    wanted = {kind: _OPTIONAL[kind] for kind in kinds}
    uid, gid = os.geteuid(), os.getegid()
    everything = _CLONE_NEWUSER
    for flag in wanted.values():
        everything |= flag
    refused: list[str] = []
    if _libc.unshare(everything) == 0:
        _map_ids(uid, gid)
    elif _libc.unshare(_CLONE_NEWUSER) == 0:
        _map_ids(uid, gid)
        refused = [kind for kind, flag in wanted.items() if _libc.unshare(flag) != 0]
    else:
        refused = ["user", *(kind for kind, flag in wanted.items() if _libc.unshare(flag) != 0)]
    if "mount" in wanted and "mount" not in refused:
        # Without this, a mount made here would show outside as well.
        _libc.mount(None, b"/", None, _MS_REC_PRIVATE, None)
    return refused


def remount_proc() -> bool:
    """Mount a ``/proc`` that shows only the caller's PID namespace. False where the kernel refuses.

    In a mount namespace of the caller's own: its parent, outside of that PID namespace, still needs the old one.
    """
    if _libc.unshare(_CLONE_NEWNS) != 0:
        return False
    return bool(_libc.mount(b"proc", b"/proc", b"proc", _MS_PROC_FLAGS, None) == 0)


def make_read_only(writable: Path) -> bool:
    """Make every mount read-only but the folder ``writable``. False where the kernel refuses (before Linux 5.12).

    Needs a mount namespace of the caller's own, and the capabilities that came with it. ``/proc`` stays
    as it is: CUDA names its threads there, and nothing in the caller's own PID namespace is worth protecting.
    """
    folder = os.fsencode(writable)
    if _libc.mount(folder, folder, None, _MS_BIND, None) != 0:
        return False
    return _set_mount(b"/", _AT_RECURSIVE, set_flags=_MOUNT_ATTR_RDONLY) and all(
        _set_mount(path, 0, clear_flags=_MOUNT_ATTR_RDONLY) for path in (folder, b"/proc")
    )


def _set_mount(path: bytes, at_flags: int, *, set_flags: int = 0, clear_flags: int = 0) -> bool:
    attributes = (ctypes.c_uint64 * 4)(set_flags, clear_flags, 0, 0)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    result = _libc.syscall(_SYS_MOUNT_SETATTR, _AT_FDCWD, path, at_flags, ctypes.byref(attributes), size)
    return bool(result == 0)


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


def limit_resources(file_bytes: int) -> None:
    """No core dumps; no file larger than ``file_bytes``."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))


def clear_environment(replacement: dict[str, str]) -> None:
    """Replace the whole environment. Only for what is read later: the process's own start-up is over."""
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


def members(pid: int) -> list[int]:
    """Every process in the PID namespace of ``pid``, as seen from here; only ``pid`` where it shares ours."""
    try:
        namespace = Path(f"/proc/{pid}/ns/pid").readlink()
    except OSError:
        return []
    if namespace == Path("/proc/self/ns/pid").readlink():
        return [pid]
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if (entry / "ns/pid").readlink() == namespace:
                    found.append(int(entry.name))
    return found


def _map_ids(uid: int, gid: int) -> None:
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/gid_map").write_text(f"{_INSIDE_UID} {gid} 1")
    Path("/proc/self/uid_map").write_text(f"{_INSIDE_UID} {uid} 1")
