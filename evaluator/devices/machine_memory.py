"""How much memory this machine has to give, and whether it had too little, as the kernel counts. Torch-free."""

from __future__ import annotations

from pathlib import Path

__all__ = ["available_memory_bytes", "out_of_memory_kills"]


def out_of_memory_kills() -> int:
    """How many processes the kernel has killed for want of memory since it started; -1 where it does not say."""
    for line in Path("/proc/vmstat").read_text().splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill":
            return int(value)
    return -1


def available_memory_bytes() -> int:
    """What the kernel says could be had of this machine's memory; 0 where it does not say."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0
