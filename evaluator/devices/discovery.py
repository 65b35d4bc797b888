"""The devices, compilers and memory of this machine, found without torch and without touching CUDA."""

from __future__ import annotations

import contextlib
import logging
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

_log = logging.getLogger(__name__)

DEFAULT_CUDA_ARCHITECTURE = "9.0"
_BUILD_BYTES = 3 * 2**30
"""Memory of nvcc and its host compiler for a source that includes torch's headers."""
_MAX_BUILD_SLOTS = 8


def available_devices() -> list[str]:
    """``cpu`` and every CUDA device that can be used from here, as ``cuda:0``, ``cuda:1`` …

    A device that does not answer leaves a gap: no other device gets its name.
    """
    return ["cpu", *(f"cuda:{index}" for index, found in enumerate(_cuda_devices()) if found is not None)]


def cuda_architectures() -> str:
    """The architectures to compile for, as ``TORCH_CUDA_ARCH_LIST`` writes them.

    They are those of this machine's devices, as torch itself would choose; without a device, the default. Devices that
    this process is not to use count as well, because its builds may be for a process that does use them.
    """
    found = {each.capability for each in _all_cuda_devices() if each is not None}
    versions = sorted(f"{major}.{minor}" for major, minor in found) or [DEFAULT_CUDA_ARCHITECTURE]
    return ";".join([*versions[:-1], versions[-1] + "+PTX"])


def cuda_uuid(device: str) -> str:
    """CUDA's name for ``cuda`` or ``cuda:N``, valid wherever it is visible from. Raises ``IndexError``."""
    return _cuda_device(device).uuid


def cuda_nodes(device: str) -> tuple[str, ...]:
    """The device nodes that a process needs to use this device and no other."""
    own = f"/dev/nvidia{_cuda_device(device).minor_number}"
    return (own, "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")


def device_id(device: str) -> str:
    """An identifier that tells this device from all others, on other machines as well, as far as that is known."""
    with contextlib.suppress(IndexError):
        if device != "cpu":
            return cuda_uuid(device)
    return f"{socket.gethostname()}/{device}"


@dataclass(frozen=True)
class ProcessorShares:
    """Processors: ``judge`` has a core of its own, with its siblings; ``others`` are for all other processes."""

    judge: frozenset[int]
    others: frozenset[int]


def processor_shares(device: str, root: Path = Path("/sys/devices/system/cpu")) -> ProcessorShares | None:
    """Give the judge of each CUDA device a core, from the last one down, and the rest to all other processes.

    A judge spins while it waits. A process that happened to share its core would be slower for as long as it stays
    there. That is for one side of an evaluation more often than for both. ``None`` where there are too few cores, and
    for a CPU, whose cores are all part of the measurement.
    """
    if not device.startswith("cuda"):
        return None
    allowed = os.sched_getaffinity(0)
    cores = sorted({_siblings(number, root) & allowed for number in allowed}, key=min, reverse=True)
    # All devices count, also those that this process is not to use: others may judge on them.
    count = len(_all_cuda_devices())
    if len(cores) < 3 * count:
        return None
    place = _all_cuda_devices().index(_cuda_device(device))
    return ProcessorShares(cores[place], frozenset(allowed).difference(*cores[:count]))


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
    """The path of CUDA's compiler, or ``None``."""
    home = os.environ.get("CUDA_HOME") or "/usr/local/cuda"
    return shutil.which("nvcc") or shutil.which(f"{home}/bin/nvcc")


def has_cxx_compiler() -> bool:
    """Whether the C++ compiler that torch would call is on this machine."""
    return shutil.which(os.environ.get("CXX", "c++")) is not None


@cache
def compiler_versions() -> dict[str, str | None]:
    """Versions of the C++ compiler (``compiler``) and of CUDA's (``nvcc``); ``None`` where one is missing."""
    nvcc = nvcc_path()
    return {
        "compiler": _version_line([os.environ.get("CXX", "c++"), "--version"]),
        "nvcc": None if nvcc is None else _version_line([nvcc, "--version"]),
    }


def default_build_slots() -> int:
    """The number of parallel compilations: half of the processors, as far as the memory allows, at most 8."""
    return max(1, min(_MAX_BUILD_SLOTS, (os.cpu_count() or 2) // 2, machine_memory_bytes() // _BUILD_BYTES))


def machine_memory_bytes() -> int:
    """All of the machine's memory, whatever uses it."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _version_line(command: list[str]) -> str | None:
    """The line of a compiler's ``--version`` that identifies it."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        lines = subprocess.run(command, capture_output=True, text=True, timeout=30).stdout.strip().splitlines()
        return lines[-1] if command[0].endswith("nvcc") and lines else lines[0] if lines else None
    return None


@dataclass(frozen=True)
class _CudaDevice:
    """``minor_number`` is that of its node in ``/dev``."""

    uuid: str
    minor_number: int
    capability: tuple[int, int]


def _cuda_device(device: str) -> _CudaDevice:
    found = _cuda_devices()[int(device.partition(":")[2] or 0)]
    if found is None:
        raise IndexError(f"{device} does not answer")
    return found


def _cuda_devices() -> tuple[_CudaDevice | None, ...]:
    """The devices that ``CUDA_VISIBLE_DEVICES`` leaves, in its order; ``None`` for one that does not answer.

    As with CUDA, the list ends at the first unknown name, and a name that comes twice leaves nothing.
    """
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    if setting is None:
        return _all_cuda_devices()
    chosen: list[int] = []
    for name in map(str.strip, setting.split(",")):
        named = [number for number, found in enumerate(_all_cuda_devices()) if _is_named(name, number, found)]
        if len(named) != 1:
            break
        if named[0] in chosen:
            return ()
        chosen += named
    return tuple(_all_cuda_devices()[number] for number in chosen)


def _is_named(name: str, number: int, found: _CudaDevice | None) -> bool:
    return name == str(number) or (name.startswith("GPU-") and found is not None and found.uuid.startswith(name))


@cache
def _all_cuda_devices() -> tuple[_CudaDevice | None, ...]:
    """The machine's devices, in NVML's order; ``None`` for one that does not answer."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        return tuple(_examined(number) for number in range(pynvml.nvmlDeviceGetCount()))
    finally:
        pynvml.nvmlShutdown()


def _examined(number: int) -> _CudaDevice | None:
    """Return NVML's facts about a device; ``None`` where one that is needed is missing.

    That is so for a device that has fallen off its bus: without these facts it cannot be used alone.
    """
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(number)
        capability = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
        uuid, minor_number = pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetMinorNumber(handle)
    except pynvml.NVMLError as error:
        _log.warning("CUDA device %d is left out: %s", number, error)
        return None
    return _CudaDevice(str(uuid), int(minor_number), (int(capability[0]), int(capability[1])))
