"""A root of its own for a confined process: the files that it needs to run, read-only, and nothing else of the machine.

The root is a tmpfs of bounded size. System folders, Python, torch and CUDA are bound into it read-only at their usual
places; the device nodes are those that the process needs. ``/proc`` is its own, with the parts that belong to the whole
machine read-only. (To the kernel, a service that runs as root stays root in here, and root may write to ``/proc/sys``
without any capability.) A path that is not listed does not exist. Torch-free.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from evaluator.sandbox.layers import Layer

__all__ = ["WORKING_FOLDER", "Root", "enter_root", "visible_paths"]

WORKING_FOLDER: Final = "/candidate"
"""The working folder of a confined process, in its own root."""

_SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store")
_CONFIGURATION: Final = (
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/alternatives",
    "/etc/localtime",
)
# Processor and device topology: OpenMP and CUDA's driver read it.
_TOPOLOGY: Final = ("/sys/bus", "/sys/class", "/sys/devices", "/sys/module")
_NODES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_LINKS: Final = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1"}
_PROC_READ_ONLY: Final = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "mtrr")
_PROC_MASKED: Final = ("kcore", "keys", "kmsg", "timer_list", "latency_stats", "sched_debug", "kallsyms")
_WRITABLE: Final = (WORKING_FOLDER, "/tmp", "/dev/shm", "/run")  # noqa: S108 - in a root of its own
_INODES: Final = 2**17

_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_REC = 0x2, 0x4, 0x8, 0x1000, 0x4000
_CLONE_NEWNS: Final = 0x00020000
_MNT_DETACH: Final = 2
_AT_FDCWD: Final = -100
_AT_RECURSIVE: Final = 0x8000
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID = 0x1, 0x2
_SYS_MOUNT_SETATTR: Final = 442  # the same number on every architecture

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Root:
    """The contents of a root: ``visible`` files and folders, ``devices`` nodes, nothing of ``hidden``.

    ``size_bytes`` bounds everything that the process can write, its temporary files and shared memory included.
    """

    visible: tuple[str, ...]
    devices: tuple[str, ...]
    hidden: tuple[str, ...]
    size_bytes: int


def visible_paths(extra: Iterable[str] = ()) -> tuple[str, ...]:
    """Paths that Python, torch and compilers need of this machine, and ``extra``; no path lies within another."""
    paths = sysconfig.get_paths()
    torch = importlib.util.find_spec("torch")
    found = [
        *_SYSTEM,
        *_CONFIGURATION,
        *_TOPOLOGY,
        sys.prefix,
        sys.base_prefix,
        *(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *([] if torch is None or torch.origin is None else [str(Path(torch.origin).parent.parent)]),
        *extra,
    ]
    known: list[Path] = []
    for path in sorted((Path(name) for name in found if name.startswith("/")), key=lambda path: len(path.parts)):
        # A root as a whole would make this pointless.
        if len(path.parts) > 1 and path.exists() and not any(path.is_relative_to(other) for other in known):
            known.append(path)
    return tuple(map(str, known))


def enter_root(root: Root, mount_point: Path, *, own_pids: bool) -> list[Layer]:
    """Make ``root`` over the folder ``mount_point`` and move in; the caller is left in ``WORKING_FOLDER``.

    Returns the layers that the kernel refused. With ``Layer.FILES`` among them nothing has changed but that
    ``mount_point`` may be empty. Needs the capabilities that come with a user namespace.
    """
    try:
        # The caller's parent shares its mounts, and must keep its own root.
        _check(_libc.unshare(_CLONE_NEWNS), "unshare")
        refused = _build(root, mount_point, own_pids)
        os.chdir(mount_point)
        _check(_libc.pivot_root(b".", b"."), "pivot_root")
        _check(_libc.umount2(b".", _MNT_DETACH), "umount")
        os.chdir(WORKING_FOLDER)
    except OSError:
        return [Layer.FILES] if own_pids else [Layer.FILES, Layer.PROC]
    return refused


def _build(root: Root, base: Path, own_pids: bool) -> list[Layer]:
    _mount("tmpfs", base, "tmpfs", _MS_NOSUID | _MS_NODEV, f"size={root.size_bytes},nr_inodes={_INODES},mode=0755")
    for name in root.visible:
        # It was there when the engine started, and may be gone.
        if Path(name).exists():
            _show(Path(name), base)
    for name in root.hidden:
        place = base / name.lstrip("/")
        # A folder that is not bound in does not exist, and cannot be covered.
        if place.is_dir():
            _mount("tmpfs", place, "tmpfs", _MS_NOSUID | _MS_NODEV, "size=4096,mode=0555")
    _set_read_only(base, recursive=True)
    _set_writable(base)
    for name in (*_WRITABLE, "/etc"):
        folder = base / name.lstrip("/")
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o1777)
    (base / "etc/passwd").write_text(f"candidate:x:1000:1000::{WORKING_FOLDER}:/bin/sh\n")
    (base / "etc/group").write_text("candidate:x:1000:\n")
    for name in (*_NODES, *root.devices):
        if Path(name).exists():
            place = base / name.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
            _mount(name, place, None, _MS_BIND)
    for name, target in _LINKS.items():
        (base / "dev" / name).symlink_to(target)
    refused = _mount_proc(base / "proc", own_pids)
    for name in _WRITABLE:
        folder = base / name.lstrip("/")
        # With everything visible below it: Python itself may be in a temporary folder.
        _mount(str(folder), folder, None, _MS_BIND | _MS_REC)
    _set_read_only(base)
    return refused


def _mount_proc(place: Path, own_pids: bool) -> list[Layer]:
    place.mkdir()
    refused: list[Layer] = []
    try:
        if not own_pids:
            raise OSError("its processes are everybody's")
        _mount("proc", place, "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    except OSError:
        _mount("/proc", place, None, _MS_BIND | _MS_REC)
        refused.append(Layer.PROC)
    try:
        for name in _PROC_READ_ONLY:
            if (place / name).exists():
                _mount(str(place / name), place / name, None, _MS_BIND)
                _set_read_only(place / name)
        for name in _PROC_MASKED:
            if (place / name).exists():
                _mount("/dev/null", place / name, None, _MS_BIND)
    except OSError:
        refused.append(Layer.PROC)
    return refused[:1]


def _show(path: Path, base: Path) -> None:
    """Bind ``path`` at the same place below ``base``; a symbolic link stays one, and its target is bound, too."""
    place = base / str(path).lstrip("/")
    if place.exists() or place.is_symlink():
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    real = path.resolve()
    if real != path:
        if path.is_symlink():
            place.symlink_to(path.readlink())
        _show(real, base)
        if path.is_symlink():
            return
    if path.is_dir():
        place.mkdir()
    else:
        place.touch()
    _mount(str(path), place, None, _MS_BIND | _MS_REC)


def _mount(source: str, target: Path, kind: str | None, flags: int, data: str | None = None) -> None:
    fields: Sequence[bytes | None] = [None if text is None else text.encode() for text in (kind, data)]
    _check(_libc.mount(os.fsencode(source), os.fsencode(target), fields[0], flags, fields[1]), f"mount {target}")


def _set_read_only(path: Path, *, recursive: bool = False) -> None:
    _set_mount(path, _AT_RECURSIVE if recursive else 0, set_flags=_MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID)


def _set_writable(path: Path) -> None:
    _set_mount(path, 0, clear_flags=_MOUNT_ATTR_RDONLY)


def _set_mount(path: Path, at_flags: int, *, set_flags: int = 0, clear_flags: int = 0) -> None:
    attributes = (ctypes.c_uint64 * 4)(set_flags, clear_flags, 0, 0)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    result = _libc.syscall(_SYS_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(path), at_flags, ctypes.byref(attributes), size)
    _check(result, f"mount_setattr {path}")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
