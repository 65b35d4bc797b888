"""What the judge needs of a device, the same for a CPU and for CUDA."""

from __future__ import annotations

import os
import platform
import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pynvml
import torch

__all__ = ["CpuDevice", "CudaDevice", "Device", "open_device"]

_CPU_FLUSH_BYTES: Final = 64 * 2**20
_CONTEXT_BYTES: Final = 600 * 2**20


class Device(ABC):
    """One device that evaluations run on. The judge holds one for its whole life."""

    torch_device: torch.device
    spin_s: float
    """How long to spin on a doorbell before blocking."""
    slice_elements: int
    """How many elements of the largest tensor the reference is computed on at a time, where it may be sliced."""
    context_bytes: int
    """Memory that each process takes on the device before its first tensor."""

    @property
    def threads(self) -> int:
        """Threads that torch may use in a runner: every core that this process may run on."""
        return len(os.sched_getaffinity(0))

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until everything that the judge has asked of the device is done."""

    @abstractmethod
    def flush_cache(self) -> None:
        """Push everything out of the last-level cache, so that every call starts cold."""

    @abstractmethod
    def total_bytes(self) -> int:
        """Memory of the device."""

    @abstractmethod
    def free_bytes(self) -> int:
        """Memory that can still be allocated."""

    @abstractmethod
    def release_cache(self) -> None:
        """Give memory that the judge's allocator keeps back to the device."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What a result has to say about the device, its driver and its library versions."""

    def generator(self) -> torch.Generator:
        """A generator on this device, seeded from the operating system; the seed is known to nobody."""
        return torch.Generator(self.torch_device).manual_seed(secrets.randbits(63))


class CpuDevice(Device):
    """The machine's processors."""

    def __init__(self) -> None:
        self.torch_device = torch.device("cpu")
        # A spinning judge would take a core from what it measures.
        self.spin_s = 0.0
        self.slice_elements = 2**23
        self.context_bytes = 300 * 2**20
        self._flush = torch.zeros(_CPU_FLUSH_BYTES // 4, dtype=torch.int32)

    def synchronize(self) -> None:
        pass

    def flush_cache(self) -> None:
        self._flush.add_(1)

    def total_bytes(self) -> int:
        return _meminfo()["MemTotal"]

    def free_bytes(self) -> int:
        return _meminfo()["MemAvailable"]

    def release_cache(self) -> None:
        pass

    def describe(self) -> dict[str, Any]:
        return {
            **_common(),
            "device_name": _processor_name(),
            "cores": self.threads,
            "memory_bytes": self.total_bytes(),
        }


class CudaDevice(Device):
    """The one CUDA device that this process can see."""

    def __init__(self) -> None:
        self.torch_device = torch.device("cuda", 0)
        self.spin_s = 0.5
        self.slice_elements = 2**25
        self.context_bytes = _CONTEXT_BYTES
        properties = torch.cuda.get_device_properties(self.torch_device)
        l2_bytes = int(getattr(properties, "L2_cache_size", 64 * 2**20))
        self._flush = torch.zeros(2 * l2_bytes // 4, dtype=torch.int32, device=self.torch_device)
        self._properties = properties

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.torch_device)

    def flush_cache(self) -> None:
        self._flush.add_(1)

    def total_bytes(self) -> int:
        return int(torch.cuda.mem_get_info(self.torch_device)[1])

    def free_bytes(self) -> int:
        return int(torch.cuda.mem_get_info(self.torch_device)[0])

    def release_cache(self) -> None:
        torch.cuda.empty_cache()

    def describe(self) -> dict[str, Any]:
        capability = f"{self._properties.major}.{self._properties.minor}"
        return {
            **_common(),
            "device_name": self._properties.name,
            "memory_bytes": self.total_bytes(),
            "compute_capability": capability,
            "multiprocessors": self._properties.multi_processor_count,
            "cuda": torch.version.cuda,
            "driver": _driver_version(),
        }


def open_device(kind: str) -> Device:
    """``cpu`` or ``cuda`` (the one CUDA device that this process can see)."""
    return CpuDevice() if kind == "cpu" else CudaDevice()


def _common() -> dict[str, Any]:
    return {"python": platform.python_version(), "torch": torch.__version__, "kernel": platform.release()}


def _driver_version() -> str:
    pynvml.nvmlInit()
    try:
        return str(pynvml.nvmlSystemGetDriverVersion())
    finally:
        pynvml.nvmlShutdown()


def _processor_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _meminfo() -> Mapping[str, int]:
    entries = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    return {entry[0].rstrip(":"): int(entry[1]) * 1024 for entry in entries if len(entry) > 1}
