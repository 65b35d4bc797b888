"""The layers of a sandbox, and the purpose of each. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = ["MEANING", "OPTIONAL", "Layer", "SandboxLayer"]


class Layer(StrEnum):
    """A means of isolation that the kernel can grant or refuse."""

    USER = "user"
    PID = "pid"
    NETWORK = "network"
    IPC = "ipc"
    UTS = "uts"
    MOUNT = "mount"
    FILES = "files"
    PROC = "proc"
    SYSCALLS = "syscalls"
    PROCESSES = "processes"
    CGROUP = "cgroup"


MEANING: Final = {
    Layer.USER: "without a user namespace there is no other one for an ordinary user, and root keeps root's rights",
    Layer.PID: "a candidate sees and can signal other processes of its user, and what it starts may outlive it",
    Layer.NETWORK: "a candidate reaches the network",
    Layer.IPC: "a candidate reaches System V shared memory and message queues of its user",
    Layer.UTS: "a candidate sees the machine's name",
    Layer.MOUNT: "a candidate shares the machine's mounts",
    Layer.FILES: "a candidate reads and writes whatever its user can: the database, other candidates' files",
    Layer.PROC: "a candidate reads what /proc shows of other processes, and writes to /proc where its user may",
    Layer.SYSCALLS: "a candidate may use every system call of the kernel (is libseccomp installed?)",
    Layer.PROCESSES: "a candidate may start as many processes and threads as the machine can hold",
    Layer.CGROUP: "memory is limited for each process and by what the machine has left, not for all of a "
    "candidate's together (cgroup v2 with the memory and pids controllers is not writable here)",
}
"""The consequence of a missing layer."""

OPTIONAL: Final = frozenset({Layer.CGROUP})
"""Layers that a complete sandbox can do without."""


@dataclass(frozen=True)
class SandboxLayer:
    """A layer as it was found on this machine. ``meaning``: the consequence where it is not ``there``."""

    name: str
    there: bool
    optional: bool
    meaning: str
