"""The judge's interface to a device, the same for a CPU and for CUDA."""

from __future__ import annotations

import contextlib
import os
import platform
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from evaluator.judge.device.peak_rates import PeakRatesFile, estimate_peak_rates, measure_peak_rates
from evaluator.judge.device.telemetry import Sensors
from evaluator.judge.runner_memory import RunnerMemory
from evaluator.roofline import PeakRates

__all__ = ["Capacity", "Device", "working_on"]


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
        return {"python": platform.python_version(), "torch": torch.__version__, "kernel": platform.release()}

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
