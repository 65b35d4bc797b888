"""A CPU as a device of the judge."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch

from evaluator.judge.device.device import Device
from evaluator.judge.device.peak_rates import copy_rate
from evaluator.judge.device.telemetry import CpuSensors
from evaluator.judge.runner_memory import ProcessMemory, RunnerMemory

__all__ = ["CpuDevice"]

_FLUSH_BYTES: Final = 64 * 2**20
_CACHED_COPY_BYTES: Final = 2 * 2**20
_QUICK_COPY_S: Final = 0.1
# A candidate may be at most this much faster than the fastest copy seen; more is impossible.
_HEADROOM: Final = 4.0


class CpuDevice(Device):
    """The machine's processors."""

    def __init__(self, peak_rates_folder: Path | None = None) -> None:
        super().__init__(peak_rates_folder)
        self.torch_device = torch.device("cpu")
        self.sensors = CpuSensors()
        self.asynchronous = False
        # A spinning judge would take a core from the measured processes.
        self.spin_s = 0.0
        self.slice_elements = 2**23
        self.context_bytes = 300 * 2**20
        self.cache_bytes = _FLUSH_BYTES // 2
        self._total_bytes = _meminfo_bytes("MemTotal")
        # Written once: memory that was never written has no pages of its own.
        self._flush = torch.ones(_FLUSH_BYTES // 8, dtype=torch.int64)
        # Within the caches, so that no machine's memory is faster.
        self._bytes_per_ms = copy_rate(self.torch_device, _CACHED_COPY_BYTES) / 1000

    def memory_of(self, pid: int) -> RunnerMemory:
        return ProcessMemory(pid)

    def synchronize(self) -> None:
        pass

    def probe(self) -> None:
        pass

    def interference_probe_ms(self, begin: Callable[[], None]) -> float:
        begin()
        return 0.0

    def is_idle(self) -> bool:
        # No work goes on while a CPU's processes are stopped, and the machine may have other users as well.
        return True

    def floor_ms(self, byte_count: int) -> float:
        return byte_count / (_HEADROOM * self._bytes_per_ms)

    def copied_bytes_per_s(self) -> float:
        return copy_rate(self.torch_device, budget_s=_QUICK_COPY_S)

    def identity(self) -> dict[str, Any]:
        return {
            "device_name": _processor_name(),
            "threads": len(os.sched_getaffinity(0)),
            "kernel": platform.release(),
            "torch": torch.__version__,
        }

    def flush_cache(self) -> None:
        self.overwrite_cache()

    def overwrite_cache(self) -> None:
        # Reading is enough, takes less time, and leaves nothing to be written back in the next call.
        self._flush.sum()

    def occupy(self, *, backward: bool) -> None:
        pass

    def total_bytes(self) -> int:
        return self._total_bytes

    def free_bytes(self) -> int:
        return _meminfo_bytes("MemAvailable")

    def foreign_bytes(self) -> int:
        return self.total_bytes() - self.free_bytes()

    def release_cache(self) -> None:
        pass

    def describe(self) -> dict[str, Any]:
        return {
            **super().describe(),
            "device_name": _processor_name(),
            "cores": len(os.sched_getaffinity(0)),
            "memory_bytes": self.total_bytes(),
        }


def _processor_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _meminfo_bytes(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024
