"""Putting a sandbox on: the last step of a process of ours before it runs code of strangers.

Used for runners, compilers and tools alike: the first process of its new namespaces puts the sandbox on. Torch-free.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from evaluator.sandbox import namespaces
from evaluator.sandbox.filesystem import Root, enter_root
from evaluator.sandbox.layers import Layer
from evaluator.sandbox.syscalls import apply_filter

__all__ = ["Confinement", "confine", "move_in"]

_PID_MAX: Final = Path("/proc/sys/kernel/pid_max")
# Since Linux 6.14 every PID namespace has its own; writing it before would set the whole machine's.
_PID_MAX_SINCE: Final = (6, 14)
# Numbers below are given out once only.
_RESERVED_PIDS: Final = 300
# Since Linux 5.14 processes are counted per user namespace; root's are never limited.
_NPROC_SINCE: Final = (5, 14)
_DESCRIPTORS: Final = 4096
_SHARED_MEMORY_PAGES: Final = 2**16
_MESSAGE_QUEUES: Final = 16


@dataclass(frozen=True)
class Confinement:
    """A confined process's view of the machine, and its limits.

    ``memory_bytes`` is for all of its processes where there are control groups, else for each; ``file_bytes`` for a
    single file; ``root.size_bytes`` for all files together.
    """

    root: Root
    memory_bytes: int
    processes: int
    file_bytes: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Confinement:
        root = {**data["root"]}
        for name in ("visible", "devices", "hidden"):
            root[name] = tuple(root[name])
        return cls(**{**data, "root": Root(**root)})


def move_in(confinement: Confinement, mount_point: Path, before: Callable[[], None] = lambda: None) -> None:
    """Go on as the first process of new namespaces, confined for good; all of its children end with it.

    The calling process stays behind and ends as its child does. ``before`` is called within the namespaces, with all
    rights over them. The rest is ``confine``'s.
    """
    namespaces.die_with_parent()
    refused = namespaces.unshare_all()
    namespaces.die_with_parent()
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    namespaces.die_with_parent()
    before()
    confine(confinement, mount_point, refused)


def confine(
    confinement: Confinement, mount_point: Path, refused: list[Layer], *, memory_is_grouped: bool = False
) -> list[Layer]:
    """Confine the calling process for good; returns all layers that the kernel refused.

    ``refused``: the layers that ``unshare_all`` was refused. The caller is left in an empty folder of its own:
    ``filesystem.WORKING_FOLDER``, or ``mount_point`` itself where the kernel allows no root of its own.
    """
    refused = list(refused)
    limited = _limit_processes(confinement.processes, own_pids=Layer.PID not in refused)
    if Layer.IPC not in refused:
        _limit_shared_memory()
    # The first process to be killed when the machine has no memory left must not be the judge.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    if Layer.MOUNT in refused:
        refused += [Layer.FILES, Layer.PROC]
    else:
        refused += enter_root(confinement.root, mount_point, own_pids=Layer.PID not in refused)
    if Layer.FILES in refused:
        os.chdir(mount_point)
    if not memory_is_grouped:
        _limit(resource.RLIMIT_DATA, confinement.memory_bytes)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, confinement.file_bytes)
    _limit(resource.RLIMIT_NOFILE, _DESCRIPTORS)
    namespaces.drop_privileges()
    if not apply_filter():
        refused.append(Layer.SYSCALLS)
    if not limited and not memory_is_grouped:
        refused.append(Layer.PROCESSES)
    return refused


def _limit(which: int, wanted: int) -> None:
    _, hard = resource.getrlimit(which)
    value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(which, (value, value))


def _limit_processes(count: int, *, own_pids: bool) -> bool:
    if own_pids and _kernel() >= _PID_MAX_SINCE:
        with contextlib.suppress(OSError):
            _PID_MAX.write_text(str(count + _RESERVED_PIDS))
            return True
    if _kernel() >= _NPROC_SINCE and _outside_uid() != 0:
        _limit(resource.RLIMIT_NPROC, count)
        return True
    return False


def _limit_shared_memory() -> None:
    """Limit System V's and POSIX's objects, which live outside of every folder and of every process."""
    for name, value in (("kernel/shmall", _SHARED_MEMORY_PAGES), ("fs/mqueue/queues_max", _MESSAGE_QUEUES)):
        with contextlib.suppress(OSError):
            Path("/proc/sys", name).write_text(str(value))


def _outside_uid() -> int:
    """The caller's uid as the kernel knows it, whatever it looks like in here."""
    return int(Path("/proc/self/uid_map").read_text().split()[1])


def _kernel() -> tuple[int, int]:
    major, minor = os.uname().release.split(".")[:2]
    return int(major), int("".join(character for character in minor if character.isdigit()))
