"""The judge's interface to a device, the same for a CPU and for CUDA."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import platform
import re
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pynvml
import torch

from evaluator.judge.device.peak_rates import PeakRatesFile, copy_rate, estimate_peak_rates, measure_peak_rates
from evaluator.judge.device.telemetry import CpuSensors, Sensors, cuda_sensors
from evaluator.judge.runner_memory import DeviceMemory, ProcessMemory, RunnerMemory
from evaluator.roofline import PeakRates

__all__ = ["CpuDevice", "CudaDevice", "Device", "open_device", "working_on"]

_CPU_FLUSH_BYTES: Final = 64 * 2**20
_CONTEXT_BYTES: Final = 600 * 2**20
_IDLE_CONTEXTS: Final = 3
_CUDA_SLICE: Final = 2**25
_COPY_BYTES: Final = 512 * 2**20
_CACHED_COPY_BYTES: Final = 2 * 2**20
_QUICK_COPY_S: Final = 0.1
# A candidate may be at most this much faster than the fastest copy seen; more is impossible.
_CUDA_HEADROOM: Final = 1.2
_CPU_HEADROOM: Final = 4.0
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


@dataclass(frozen=True)
class Idle:
    """Memory in use while no runner has a task: in all, and without the memory of the judge's allocator."""

    used_bytes: int
    foreign_bytes: int


@contextlib.contextmanager
def working_on(processors: frozenset[int]) -> Iterator[None]:
    """Let torch compute on these processors, with a thread for each.

    More threads than processors would be worse than none: LAPACK's wait for each other at every column. Sixteen on two
    processors took minutes for a matrix that two have in a tenth of a second.
    """
    own, before = frozenset(os.sched_getaffinity(0)), torch.get_num_threads()
    _move_threads(processors)
    torch.set_num_threads(len(processors))
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _move_threads(own)


def _move_threads(processors: frozenset[int]) -> None:
    """Have every thread of this process run on ``processors``, and all threads that they start."""
    if processors == os.sched_getaffinity(0):
        return
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), processors)


@dataclass(frozen=True)
class Capacity:
    """The facts about a device's memory for a plan: ``used_bytes`` by others, ``context_bytes`` by each process before
    its first tensor. ``asynchronous`` and ``slice_elements`` are as in ``Device``."""

    total_bytes: int
    used_bytes: int
    slice_elements: int
    context_bytes: int
    asynchronous: bool

    @classmethod
    def of_cuda(cls, total_bytes: int) -> Capacity:
        """Return the capacity of a CUDA device of this many bytes, with only a judge, a candidate and a baseline on
        it."""
        return cls(total_bytes, _IDLE_CONTEXTS * _CONTEXT_BYTES, _CUDA_SLICE, _CONTEXT_BYTES, True)


class Device(ABC):
    """One device that evaluations run on. The judge holds one for its whole life."""

    idle = Idle(0, 0)
    """The memory in use before the runners of this evaluation got their tasks (see ``note_idle``)."""
    torch_device: torch.device
    spin_s: float
    """The time of spinning on a doorbell before blocking, in seconds."""
    slice_elements: int
    """The most elements of the largest tensor in one slice of the reference's computation, where it may be sliced."""
    cache_bytes: int
    """The size of the last-level cache."""
    context_bytes: int
    """Memory that each process takes on the device before its first tensor."""
    sensors: Sensors
    """The sensors of the device's state."""

    def __init__(self, peak_rates_folder: Path | None = None) -> None:
        self._peak_rates_folder = peak_rates_folder
        self._peak_rates: PeakRates | None = None
        self._alone_bytes = 0
        self._waiting_bytes: int | None = None

    asynchronous: bool
    """Whether work can go on here while the processes that requested it are stopped."""

    @abstractmethod
    def memory_of(self, pid: int) -> RunnerMemory:
        """Return the memory on this device of the runner whose first process is ``pid``, as seen from here."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until all work that the judge has requested of the device is done."""

    @abstractmethod
    def flush_cache(self) -> None:
        """Push everything out of the last-level cache, so that every call starts cold."""

    @abstractmethod
    def overwrite_cache(self) -> None:
        """Do the device's part of a flush, without waiting for anything."""

    @abstractmethod
    def occupy(self, *, backward: bool) -> None:
        """Give the device work for the next moments, so that requests of any process wait meanwhile. It lasts as long
        as the requests of a forward take, or of a ``backward`` as well."""

    @abstractmethod
    def probe(self) -> None:
        """Keep the device busy for a moment with work that takes longer when another process works on it."""

    @abstractmethod
    def interference_probe_ms(self, begin: Callable[[], None]) -> float:
        """Return the time of the work of ``begin`` and some milliseconds more, by the device's own clock, in
        milliseconds. All of it is requested ahead, so it takes longer only where the device serves another process in
        between."""

    @abstractmethod
    def is_idle(self) -> bool:
        """Whether only the judge works on the device right now."""

    @abstractmethod
    def floor_ms(self, byte_count: int) -> float:
        """Return the least time for moving this many bytes, in milliseconds, from the device's best copies so far."""

    @abstractmethod
    def copied_bytes_per_s(self) -> float:
        """Return the bytes that a copy reads and writes in memory per second, beyond every cache: the fastest of a
        few."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return the device and its software, which decide its highest rates."""

    def peak_rates(self) -> PeakRates:
        """Return the highest rates of this device. Unless they are known from before, they are measured, which takes
        about a second. Call it while no other process works on the device."""
        if self._peak_rates is None:
            device, free_bytes = self.torch_device, self.free_bytes()
            self._peak_rates = PeakRatesFile(self._peak_rates_folder, self.identity()).load_or_measure(
                lambda: estimate_peak_rates(device, free_bytes, self.copied_bytes_per_s()),
                lambda: measure_peak_rates(device, free_bytes),
            )
        return self._peak_rates

    @abstractmethod
    def total_bytes(self) -> int:
        """Return the memory of the device."""

    @abstractmethod
    def free_bytes(self) -> int:
        """Return the memory that can still be allocated."""

    @abstractmethod
    def foreign_bytes(self) -> int:
        """Return the memory in use, without that of the judge's allocator."""

    @abstractmethod
    def release_cache(self) -> None:
        """Give memory that the judge's allocator keeps back to the device."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return the facts for a result about the device, its driver and its library versions."""

    @property
    def waiting_bytes(self) -> int:
        """Memory that a runner takes on the device while it waits for a task."""
        return self._waiting_bytes or 0

    def note_waiting(self, count: int) -> None:
        """Note, the first time, the memory of each waiting runner. Since the device was opened, ``count`` waiting
        runners are the only new thing on it."""
        if self._waiting_bytes is None:
            self._waiting_bytes = max(0, self.foreign_bytes() - self._alone_bytes) // count

    def capacity(self) -> Capacity:
        """Return the available memory for an evaluation; call it after ``note_idle``."""
        return Capacity(
            self.total_bytes(), self.idle.used_bytes, self.slice_elements, self.context_bytes, self.asynchronous
        )

    def note_idle(self) -> None:
        """Note the memory in use now: by the judge, by others, and by the runners, which are about to be given their
        tasks."""
        self.idle = Idle(self.total_bytes() - self.free_bytes(), self.foreign_bytes())

    def generator(self) -> torch.Generator:
        """Return a generator on this device, seeded from the operating system; the seed is not kept."""
        return torch.Generator(self.torch_device).manual_seed(secrets.randbits(63))


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
        self.cache_bytes = _CPU_FLUSH_BYTES // 2
        self._total_bytes = _meminfo_bytes("MemTotal")
        # Written once: memory that was never written has no pages of its own.
        self._flush = torch.ones(_CPU_FLUSH_BYTES // 8, dtype=torch.int64)
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
        return byte_count / (_CPU_HEADROOM * self._bytes_per_ms)

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
            **_common(),
            "device_name": _processor_name(),
            "cores": len(os.sched_getaffinity(0)),
            "memory_bytes": self.total_bytes(),
        }


class CudaDevice(Device):
    """The one CUDA device that this process can see."""

    def __init__(self, peak_rates_folder: Path | None = None) -> None:
        super().__init__(peak_rates_folder)
        self.torch_device = torch.device("cuda", 0)
        self.sensors = cuda_sensors()
        self.asynchronous = True
        self.spin_s = 0.5
        self.slice_elements = _CUDA_SLICE
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
        return max(0, byte_count - self.cache_bytes) / (_CUDA_HEADROOM * self._bytes_per_ms)

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
            **_common(),
            "device_name": self._properties.name,
            "memory_bytes": self.total_bytes(),
            "compute_capability": capability,
            "multiprocessors": self._properties.multi_processor_count,
            "cuda": torch.version.cuda,
            "driver": _driver_version(),
        }


def open_device(kind: str, peak_rates_folder: Path | None = None) -> Device:
    """Open the device ``cpu`` or ``cuda`` (the one CUDA device that this process can see).

    ``peak_rates_folder``: keeps its highest rates from one process to the next.
    """
    return CpuDevice(peak_rates_folder) if kind == "cpu" else CudaDevice(peak_rates_folder)


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


def _meminfo_bytes(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024
