"""This machine's available memory, and whether it had too little, by the kernel's counts. Torch-free."""

from __future__ import annotations

from pathlib import Path

__all__ = ["available_memory_bytes", "out_of_memory_kills"]


def out_of_memory_kills() -> int:
    """The number of processes that the kernel has killed for want of memory since it started; -1 where not known."""
    for line in Path("/proc/vmstat").read_text().splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill":
            return int(value)
    return -1


def available_memory_bytes() -> int:
    """The available memory of this machine, as the kernel estimates it; 0 where not known."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0
