"""Which devices, compilers and memory this machine has, found without torch and without touching CUDA."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pynvml

__all__ = [
    "ProcessorShares",
    "available_devices",
    "compiler_versions",
    "cuda_architectures",
    "cuda_nodes",
    "cuda_uuid",
    "default_build_slots",
    "device_id",
    "has_cxx_compiler",
    "has_nvcc",
    "machine_memory_bytes",
    "nvcc_path",
    "processor_shares",
]

DEFAULT_CUDA_ARCHITECTURE = "9.0"
_BUILD_BYTES = 3 * 2**30
"""What nvcc and its host compiler take for a source that includes torch's headers."""
_MOST_BUILD_SLOTS = 8


def available_devices() -> list[str]:
    """``cpu`` and every CUDA device that can be used from here, as ``cuda:0``, ``cuda:1`` …"""
    return ["cpu", *(f"cuda:{index}" for index in range(len(_capabilities())))]


def cuda_architectures() -> str:
    """The architectures to compile for, as ``TORCH_CUDA_ARCH_LIST`` writes them.

    Those of this machine's devices, as torch itself would choose; without a device, the default.
    """
    versions = sorted({f"{major}.{minor}" for major, minor in _capabilities()}) or [DEFAULT_CUDA_ARCHITECTURE]
    return ";".join([*versions[:-1], versions[-1] + "+PTX"])


def cuda_uuid(device: str) -> str:
    """The name that CUDA knows ``cuda`` or ``cuda:N`` by, wherever it is visible from. Raises ``pynvml.NVMLError``."""
    return _identities()[_index(device)][0]


def cuda_nodes(device: str) -> tuple[str, ...]:
    """The device nodes that a process needs to use this device and no other."""
    own = f"/dev/nvidia{_identities()[_index(device)][1]}"
    return (own, "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")


def device_id(device: str) -> str:
    """What tells this device from all others, on other machines as well, as far as that is known."""
    with contextlib.suppress(pynvml.NVMLError, IndexError):
        if device != "cpu":
            return cuda_uuid(device)
    return f"{socket.gethostname()}/{device}"


@dataclass(frozen=True)
class ProcessorShares:
    """Who runs where: ``judge`` has a core of its own, with its siblings; ``others`` are for all other processes."""

    judge: frozenset[int]
    others: frozenset[int]


def processor_shares(device: str, root: Path = Path("/sys/devices/system/cpu")) -> ProcessorShares | None:
    """A core for the judge of each CUDA device, from the last one down, and the rest for everybody else.

    A judge spins while it waits. Whoever happened to share its core would be slower for as long as he stays there,
    which is for one side of an evaluation more often than for both. ``None`` where there are too few cores, and for
    a CPU, whose cores are all part of what is measured.
    """
    if not device.startswith("cuda"):
        return None
    allowed = os.sched_getaffinity(0)
    cores = sorted({_siblings(number, root) & allowed for number in allowed}, key=min, reverse=True)
    count = len(_capabilities())
    if len(cores) < 3 * count:
        return None
    return ProcessorShares(cores[_index(device)], frozenset(allowed).difference(*cores[:count]))


def _siblings(number: int, root: Path) -> frozenset[int]:
    """The processors of the core that ``number`` belongs to."""
    found = set()
    with contextlib.suppress(OSError, ValueError):
        for part in (root / f"cpu{number}/topology/thread_siblings_list").read_text().strip().split(","):
            first, _, last = part.partition("-")
            found |= set(range(int(first), int(last or first) + 1))
    return frozenset(found | {number})


def has_nvcc() -> bool:
    """Whether CUDA's compiler is on this machine."""
    return nvcc_path() is not None


def nvcc_path() -> str | None:
    """Where CUDA's compiler is, or ``None``."""
    home = os.environ.get("CUDA_HOME") or "/usr/local/cuda"
    return shutil.which("nvcc") or shutil.which(f"{home}/bin/nvcc")


def has_cxx_compiler() -> bool:
    """Whether the C++ compiler that torch would call is on this machine."""
    return shutil.which(os.environ.get("CXX", "c++")) is not None


@cache
def compiler_versions() -> dict[str, str | None]:
    """How the C++ compiler (``compiler``) and CUDA's (``nvcc``) name their versions; ``None`` where one is missing."""
    nvcc = nvcc_path()
    return {
        "compiler": _version_line([os.environ.get("CXX", "c++"), "--version"]),
        "nvcc": None if nvcc is None else _version_line([nvcc, "--version"]),
    }


def default_build_slots() -> int:
    """How many compilations at a time: half of the processors, as far as the memory allows, at most 8."""
    return max(1, min(_MOST_BUILD_SLOTS, (os.cpu_count() or 2) // 2, machine_memory_bytes() // _BUILD_BYTES))


def machine_memory_bytes() -> int:
    """All of the machine's memory, whoever uses it."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _version_line(command: list[str]) -> str | None:
    """The line of a compiler's ``--version`` that identifies it."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        lines = subprocess.run(command, capture_output=True, text=True, timeout=30).stdout.strip().splitlines()
        return lines[-1] if command[0].endswith("nvcc") and lines else lines[0] if lines else None
    return None


def _index(device: str) -> int:
    return int(device.partition(":")[2] or 0)


@cache
def _identities() -> tuple[tuple[str, int], ...]:
    """UUID and minor number of every device."""
    pynvml.nvmlInit()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return tuple(
            (str(pynvml.nvmlDeviceGetUUID(handle)), int(pynvml.nvmlDeviceGetMinorNumber(handle))) for handle in handles
        )
    finally:
        pynvml.nvmlShutdown()


@cache
def _capabilities() -> tuple[tuple[int, int], ...]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return tuple(pynvml.nvmlDeviceGetCudaComputeCapability(handle) for handle in handles)
    finally:
        pynvml.nvmlShutdown()
