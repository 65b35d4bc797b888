"""The health of a device, read before a worker takes anything. Torch-free; CUDA is not touched.

A finding is either sound, a reason not to use the device, or a note that a check was not possible. A missing answer
never counts as a good one.
"""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pynvml

from evaluator.devices.discovery import cuda_uuid

__all__ = ["CpuHealth", "CudaHealth", "DeviceHealth", "Health", "Unwatched", "device_health"]

_GIB: Final = 2**30
_CPU_LEAST_BYTES: Final = 256 * 2**20
_CPU_RUNNABLE_PER_PROCESSOR: Final = 32
_HARDWARE_XIDS: Final = {
    48: "an ECC error that could not be corrected",
    61: "a fault of an internal microcontroller",
    62: "a halt of an internal microcontroller",
    64: "rows of memory that could not be remapped",
    74: "an error of NVLink",
    79: "the GPU has fallen off the bus",
    92: "many corrected ECC errors",
    94: "an ECC error within one program",
    95: "an ECC error beyond one program",
    119: "no answer from the GPU's system processor",
    120: "a fault of the GPU's system processor",
    140: "an ECC error that could not be recovered from",
}
"""Errors that the device causes. Others, such as 13, 31, 43 and 45, come from a program, as candidates cause them."""

_EVENTS_AT_MOST: Final = 100


@dataclass(frozen=True)
class Health:
    """The health of a device.

    ``reasons``: why the device must not be used as long as they last. ``events``: past faults that only a self-test can
    show to be over. ``unchecked``: checks that were not possible, with the reason.
    """

    reasons: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()

    @property
    def sound(self) -> bool:
        return not self.reasons and not self.events


class DeviceHealth(ABC):
    """Reads the health of one device."""

    @abstractmethod
    def look(self, own: Collection[int] = ()) -> Health:
        """Return the present health, within a few milliseconds. ``own``: processes whose memory is not foreign."""

    def close(self) -> None:  # noqa: B027 - most have nothing to give back
        """Release the resources of the checks."""

    def forgive(self) -> None:  # noqa: B027 - most remember nothing
        """Forget earlier events: the device has passed a self-test since."""


class Unwatched(DeviceHealth):
    """A device that reports nothing of itself."""

    def __init__(self, why: str) -> None:
        self._health = Health(unchecked=(why,))

    def look(self, own: Collection[int] = ()) -> Health:  # noqa: ARG002 - the interface
        return self._health


class CpuHealth(DeviceHealth):
    """The machine's processors. Only conditions that make every figure worthless count, because other programs are
    usual there.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._proc = root / "proc"

    def look(self, own: Collection[int] = ()) -> Health:  # noqa: ARG002 - the interface
        reasons, unchecked = [], []
        try:
            available = self._available_bytes()
            if available < _CPU_LEAST_BYTES:
                reasons.append(f"the machine has {available / _GIB:.2f} GiB of memory left")
        except (OSError, ValueError, KeyError, IndexError):
            unchecked.append("memory: /proc/meminfo cannot be read")
        try:
            # The present load, not the average, which has the ended processes of the last candidate for minutes.
            runnable = int((self._proc / "loadavg").read_text().split()[3].partition("/")[0])
            most = _CPU_RUNNABLE_PER_PROCESSOR * len(os.sched_getaffinity(0))
            if runnable > most:
                reasons.append(f"{runnable} threads want to run, more than {most}")
        except (OSError, ValueError, IndexError):
            unchecked.append("load: /proc/loadavg cannot be read")
        return Health(tuple(reasons), unchecked=tuple(unchecked))

    def _available_bytes(self) -> int:
        lines = (self._proc / "meminfo").read_text().splitlines()
        return 1024 * int(dict(line.split(":", 1) for line in lines)["MemAvailable"].split()[0])


class CudaHealth(DeviceHealth):
    """One GPU, by its UUID, through NVML. Raises ``pynvml.NVMLError`` where NVML does not know it.

    ``foreign_share``: the share of the device's memory that other processes may hold. ``nvml``: ``pynvml``, or a
    stand-in.
    """

    def __init__(self, uuid: str, *, foreign_share: float, nvml: Any = pynvml) -> None:
        self._nvml = nvml
        self._foreign_share = foreign_share
        nvml.nvmlInit()
        try:
            self._handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        except nvml.NVMLError:
            nvml.nvmlShutdown()
            raise
        self._xids: set[int] = set()
        self._events: Any = None
        self._no_events = ""
        try:
            events = nvml.nvmlEventSetCreate()
            nvml.nvmlDeviceRegisterEvents(self._handle, nvml.nvmlEventTypeXidCriticalError, events)
            self._events = events
        except nvml.NVMLError as error:
            self._no_events = f"NVML has no events here ({error})"

    def look(self, own: Collection[int] = ()) -> Health:
        looks: Mapping[str, Callable[[], str | None]] = {
            "uncorrected ECC errors": self._ecc,
            "memory to be retired": self._retirement,
            "memory to be remapped": self._remapping,
            "temperature": self._temperature,
            "memory of others": lambda: self._foreign_memory(frozenset(own)),
            "Xid": self._collect_events,
        }
        reasons, unchecked = [], []
        for name, look in looks.items():
            try:
                reason = look()
            except self._nvml.NVMLError_NotSupported:
                unchecked.append(f"{name}: the device does not tell")
            except self._nvml.NVMLError_GpuIsLost:
                return Health(("the GPU is lost: NVML does not reach it any more",))
            except (self._nvml.NVMLError, _NotTold) as error:
                unchecked.append(f"{name}: {error}")
            else:
                if reason:
                    reasons.append(reason)
        return Health(tuple(reasons), tuple(map(_event, sorted(self._xids))), tuple(unchecked))

    def close(self) -> None:
        if self._events is not None:
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlEventSetFree(self._events)
            self._events = None
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    def forgive(self) -> None:
        with contextlib.suppress(self._nvml.NVMLError, _NotTold):
            self._collect_events()
        self._xids.clear()

    def _ecc(self) -> str | None:
        nvml = self._nvml
        count = nvml.nvmlDeviceGetTotalEccErrors(
            self._handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        )
        return f"{count} uncorrected ECC errors since the driver was loaded: reset the GPU" if count else None

    def _retirement(self) -> str | None:
        pending = self._nvml.nvmlDeviceGetRetiredPagesPendingStatus(self._handle)
        return "pages of its memory are to be retired: reset the GPU" if pending else None

    def _remapping(self) -> str | None:
        _, _, pending, failed = self._nvml.nvmlDeviceGetRemappedRows(self._handle)
        if failed:
            return "rows of its memory could not be remapped"
        return "rows of its memory are to be remapped: reset the GPU" if pending else None

    def _temperature(self) -> str | None:
        nvml = self._nvml
        now = nvml.nvmlDeviceGetTemperature(self._handle, nvml.NVML_TEMPERATURE_GPU)
        limit = nvml.nvmlDeviceGetTemperatureThreshold(self._handle, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
        if limit <= 0:
            raise _NotTold("the device names no limit")
        return f"it is {now} °C hot, and slows down from {limit} °C on" if now >= limit else None

    def _foreign_memory(self, own: frozenset[int]) -> str | None:
        nvml = self._nvml
        total = int(nvml.nvmlDeviceGetMemoryInfo(self._handle).total)
        users = [
            *nvml.nvmlDeviceGetComputeRunningProcesses(self._handle),
            *nvml.nvmlDeviceGetGraphicsRunningProcesses(self._handle),
        ]
        pids = {user.pid for user in users}
        if own and pids.isdisjoint(own):
            # The judge certainly holds some. Within a PID namespace, processes have other numbers or are not shown.
            raise _NotTold("processes are not told apart in this PID namespace")
        held = {user.pid: user.usedGpuMemory for user in users if user.pid not in own}
        if any(size is None for size in held.values()):
            raise _NotTold("NVML does not say how much each process holds")
        foreign = sum(held.values())
        if foreign <= self._foreign_share * total:
            return None
        return f"others hold {foreign / _GIB:.1f} GiB of its memory (process {', '.join(map(str, sorted(held)))})"

    def _collect_events(self) -> None:
        nvml = self._nvml
        if self._events is None:
            raise _NotTold(self._no_events)
        for _ in range(_EVENTS_AT_MOST):
            try:
                number = int(nvml.nvmlEventSetWait_v2(self._events, 0).eventData)
            except nvml.NVMLError_Timeout:
                return
            if number in _HARDWARE_XIDS:
                self._xids.add(number)


class _NotTold(Exception):
    """A fact that this machine does not report, with the reason."""


def _event(xid: int) -> str:
    return f"Xid {xid} was reported: {_HARDWARE_XIDS[xid]}"


def device_health(device: str, *, foreign_share: float = 0.1) -> DeviceHealth:
    """The reader of the health of ``cpu``, ``cuda`` or ``cuda:N``."""
    if device == "cpu":
        return CpuHealth()
    try:
        return CudaHealth(cuda_uuid(device), foreign_share=foreign_share)
    except (pynvml.NVMLError, IndexError) as error:
        return Unwatched(f"everything: NVML does not know {device} ({error})")
