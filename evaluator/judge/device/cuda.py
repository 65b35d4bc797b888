"""A CUDA device as a device of the judge."""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pynvml
import torch

from evaluator.judge.device.device import Capacity, Device
from evaluator.judge.device.peak_rates import copy_rate
from evaluator.judge.device.telemetry import cuda_sensors
from evaluator.judge.runner_memory import DeviceMemory, RunnerMemory
from evaluator.roofline import PeakRates

__all__ = ["CudaDevice", "cuda_capacity"]

_CONTEXT_BYTES: Final = 600 * 2**20
_IDLE_CONTEXTS: Final = 3
_SLICE_ELEMENTS: Final = 2**25
_COPY_BYTES: Final = 512 * 2**20
# A candidate may be at most this much faster than the fastest copy seen; more is impossible.
_HEADROOM: Final = 1.2
_CALM_PROBES: Final = 200
_PROBES: Final = 3
_OCCUPIED_CYCLES: Final = 1_200_000
"""About 0.6 ms: longer than a process takes to request the first kernels of a call, even on a slow processor. It is
less than the time slice after which a device turns to another process (2 ms)."""
_OCCUPIED_CYCLES_BACKWARD: Final = 1_800_000
"""About 0.9 ms: another thread requests a backward, which takes it some hundred microseconds."""
_PROBE_ROUNDS: Final = 3
_INTERFERENCE_PROBE_MS: Final = 3.0
"""Longer than the time slice after which a device turns to another process with work for it."""
_ASKED_AHEAD_CYCLES: Final = 2_000_000
"""About a millisecond: longer than the judge takes to request a probe, even on a slow processor."""
_IDLE_SLACK_MS: Final = 0.05


def cuda_capacity(total_bytes: int) -> Capacity:
    """Return the capacity of a CUDA device of this many bytes, with only a judge, a candidate and a baseline on it."""
    return Capacity(total_bytes, _IDLE_CONTEXTS * _CONTEXT_BYTES, _SLICE_ELEMENTS, _CONTEXT_BYTES, True)


class CudaDevice(Device):
    """The one CUDA device that this process can see."""

    def __init__(self, peak_rates_folder: Path | None = None) -> None:
        super().__init__(peak_rates_folder)
        self.torch_device = torch.device("cuda", 0)
        self.sensors = cuda_sensors()
        self.asynchronous = True
        self.spin_s = 0.5
        self.slice_elements = _SLICE_ELEMENTS
        self.context_bytes = _CONTEXT_BYTES
        properties = torch.cuda.get_device_properties(self.torch_device)
        l2_bytes = int(getattr(properties, "L2_cache_size", 64 * 2**20))
        self._flush = torch.zeros(2 * l2_bytes // 4, dtype=torch.int32, device=self.torch_device)
        self._properties = properties
        self.cache_bytes = l2_bytes
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._mark = torch.zeros(1, dtype=torch.int32, device=self.torch_device)
        self._bytes_per_ms = copy_rate(self.torch_device, _COPY_BYTES) / 1000
        torch.cuda.empty_cache()
        self._total_bytes = int(torch.cuda.mem_get_info(self.torch_device)[1])
        self._probe_flushes = math.ceil(_INTERFERENCE_PROBE_MS * self._bytes_per_ms / (2 * self._flush.nbytes))
        calm = sorted(self._probe_ms() for _ in range(_CALM_PROBES))
        # Another context's kernel makes the judge's wait for its time slice, which is some hundred microseconds or
        # more. The slowest of many probes on an idle device is an interrupt of the processor.
        self._idle_limit_ms = 2 * calm[-1 - _CALM_PROBES // 20] + _IDLE_SLACK_MS
        self._alone_bytes = self.foreign_bytes()

    def memory_of(self, pid: int) -> RunnerMemory:  # noqa: ARG002 - a handle says whose memory it is of
        return DeviceMemory(self.torch_device)

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.torch_device)

    def flush_cache(self) -> None:
        # Cache lines that some context has set aside would survive the flush.
        self._driver.cuCtxResetPersistingL2Cache()
        self.overwrite_cache()

    def overwrite_cache(self) -> None:
        self._flush.add_(1)

    def occupy(self, *, backward: bool) -> None:
        self._driver.cuCtxResetPersistingL2Cache()
        cycles = _OCCUPIED_CYCLES_BACKWARD if backward else _OCCUPIED_CYCLES
        torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call] # torch leaves it unannotated

    def probe(self) -> None:
        # Each waits for the one before, so that a context in between shows.
        for _ in range(_PROBES):
            self._probe_ms()

    def interference_probe_ms(self, begin: Callable[[], None]) -> float:
        torch.cuda._sleep(_ASKED_AHEAD_CYCLES)  # type: ignore[no-untyped-call] # torch leaves it unannotated
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        first.record()
        begin()
        for _ in range(self._probe_flushes):
            self._flush.add_(1)
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last))

    def is_idle(self) -> bool:
        return min(max(self._probe_ms() for _ in range(_PROBES)) for _ in range(_PROBE_ROUNDS)) <= self._idle_limit_ms

    def floor_ms(self, byte_count: int) -> float:
        # Bytes that fit into the last-level cache need not have come from memory, or reached it yet.
        return max(0, byte_count - self.cache_bytes) / (_HEADROOM * self._bytes_per_ms)

    def copied_bytes_per_s(self) -> float:
        return 1000 * self._bytes_per_ms

    def peak_rates(self) -> PeakRates:
        found = super().peak_rates()
        # The floor is that of the fastest copy ever seen: a faster one lowers it.
        self._bytes_per_ms = max(self._bytes_per_ms, found.bytes_per_s / 1000)
        return found

    def identity(self) -> dict[str, Any]:
        return {
            "device_name": self._properties.name,
            "uuid": str(self._properties.uuid),
            "driver": _driver_version(),
            "cuda": torch.version.cuda,
            "torch": torch.__version__,
        }

    def _probe_ms(self) -> float:
        """Return the time of an almost empty kernel, in milliseconds."""
        begin = time.perf_counter()
        self._mark.add_(1)
        torch.cuda.synchronize(self.torch_device)
        return 1000 * (time.perf_counter() - begin)

    def total_bytes(self) -> int:
        return self._total_bytes

    def free_bytes(self) -> int:
        return int(torch.cuda.mem_get_info(self.torch_device)[0])

    def foreign_bytes(self) -> int:
        return self.total_bytes() - self.free_bytes() - torch.cuda.memory_reserved(self.torch_device)

    def release_cache(self) -> None:
        torch.cuda.empty_cache()

    def describe(self) -> dict[str, Any]:
        capability = f"{self._properties.major}.{self._properties.minor}"
        return {
            **super().describe(),
            "device_name": self._properties.name,
            "memory_bytes": self.total_bytes(),
            "compute_capability": capability,
            "multiprocessors": self._properties.multi_processor_count,
            "cuda": torch.version.cuda,
            "driver": _driver_version(),
        }


def _driver_version() -> str:
    pynvml.nvmlInit()
    try:
        return str(pynvml.nvmlSystemGetDriverVersion())
    finally:
        pynvml.nvmlShutdown()
