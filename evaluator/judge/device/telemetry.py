"""The state of the device during a measurement: clocks, temperature, power, reasons of throttling, errors, stolen time.

``Sensors`` read one device; ``Telemetry`` collects their readings over one track and reports changes. Readings are
taken between calls, never within a timed region.
"""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any, Final

import pynvml

__all__ = ["CpuSensors", "CudaSensors", "NoSensors", "Reading", "Sensors", "Telemetry", "cuda_sensors"]

_MOVED: Final = 0.02
_STOLEN_PERCENT: Final = 5.0
_CLOCKS_READ: Final = 8
_CPUINFO_BYTES: Final = 16 * 1024
_STEAL: Final = 7
_STATES: Final = 8
"""The fields of the first line of /proc/stat: user to steal. The later ones are part of the first two."""
_REASONS: Final = {
    "idle": "GpuIdle",
    "application clocks setting": "ApplicationsClocksSetting",
    "power cap": "SwPowerCap",
    "hardware slowdown": "HwSlowdown",
    "sync boost": "SyncBoost",
    "thermal slowdown by software": "SwThermalSlowdown",
    "thermal slowdown by hardware": "HwThermalSlowdown",
    "power brake": "HwPowerBrakeSlowdown",
    "display clock setting": "DisplayClockSetting",
}
_EXPECTED: Final = ("idle", "application clocks setting")


@dataclass(frozen=True)
class Reading:
    """One reading of a device. Quantities by name, with the unit in the name; quantities that it does not offer are
    absent.

    ``reasons``: why its clocks are lower than they could be.
    """

    quantities: Mapping[str, float] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()


class Sensors(ABC):
    """The sensors of one device."""

    absent: str = ""
    """The reason why there is nothing to read; empty where there is something."""
    limits: Mapping[str, float] = {}
    """By quantity: the value that it must not reach."""

    @abstractmethod
    def read(self) -> Reading:
        """Return the device's present state; this takes a few microseconds."""

    @abstractmethod
    def totals(self) -> Mapping[str, float]:
        """Return the counters that only grow."""


class NoSensors(Sensors):
    """The sensors of a device that reports nothing of itself."""

    def __init__(self, why: str) -> None:
        self.absent = why

    def read(self) -> Reading:
        return Reading()

    def totals(self) -> Mapping[str, float]:
        return {}


class CpuSensors(Sensors):
    """The machine's processors: clock, load, and time that the host of a virtual machine has taken."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._proc = root / "proc"
        processors = sorted(os.sched_getaffinity(0))[:_CLOCKS_READ]
        self._clocks = [
            path
            for number in processors
            if (path := root / f"sys/devices/system/cpu/cpu{number}/cpufreq/scaling_cur_freq").exists()
        ]

    def read(self) -> Reading:
        quantities: dict[str, float] = {}
        with contextlib.suppress(OSError, ValueError):
            clocks_mhz = [int(path.read_text()) / 1000 for path in self._clocks] or self._cpuinfo_mhz()
            if clocks_mhz:
                quantities["clock_mhz"] = mean(clocks_mhz)
        with contextlib.suppress(OSError, ValueError, IndexError):
            quantities["load"] = float((self._proc / "loadavg").read_text().split()[0])
        return Reading(quantities)

    def totals(self) -> Mapping[str, float]:
        with contextlib.suppress(OSError, ValueError, IndexError), (self._proc / "stat").open() as file:
            ticks = [int(value) for value in file.readline().split()[1 : 1 + _STATES]]
            return {"ticks": sum(ticks), "steal_ticks": ticks[_STEAL]}
        return {}

    def _cpuinfo_mhz(self) -> list[float]:
        # Only the first processors of a large machine: each takes the kernel a while to ask.
        with (self._proc / "cpuinfo").open() as file:
            lines = file.read(_CPUINFO_BYTES).splitlines()[:-1]
        return [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")][:_CLOCKS_READ]


class CudaSensors(Sensors):
    """One GPU, by its UUID, through NVML. Raises ``pynvml.NVMLError`` where NVML does not know it.

    ``nvml``: ``pynvml``, or a stand-in for it. Quantities that a GPU does not support are left out from then on.
    """

    def __init__(self, uuid: str, nvml: Any = pynvml) -> None:
        self._nvml = nvml
        # Once for the life of the process: initialising takes longer than all the readings of an evaluation.
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        self._quantities = {
            "sm_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "memory_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
            "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        }
        self._counters = {
            f"ecc_{name}": lambda kind=kind: nvml.nvmlDeviceGetTotalEccErrors(handle, kind, nvml.NVML_VOLATILE_ECC)
            for name, kind in (
                ("corrected", nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
                ("uncorrected", nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
            )
        }
        self._reasons = {"mask": lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)}
        self._bits = {name: getattr(nvml, f"nvmlClocksEventReason{bit}") for name, bit in _REASONS.items()}
        slowdown = {
            "temperature_c": lambda: nvml.nvmlDeviceGetTemperatureThreshold(
                handle, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
            )
        }
        self.limits = {name: limit for name, limit in self._ask(slowdown).items() if limit > 0}

    def read(self) -> Reading:
        mask = int(self._ask(self._reasons).get("mask", 0))
        return Reading(self._ask(self._quantities), tuple(name for name, bit in self._bits.items() if mask & bit))

    def totals(self) -> Mapping[str, float]:
        return self._ask(self._counters)

    def _ask(self, queries: dict[str, Any]) -> dict[str, float]:
        """Return the answers to ``queries``; queries without an answer are not repeated."""
        found: dict[str, float] = {}
        for name, query in list(queries.items()):
            try:
                found[name] = float(query())
            except self._nvml.NVMLError:
                del queries[name]
        return found


def cuda_sensors(nvml: Any = pynvml) -> Sensors:
    """Return the sensors of the one CUDA device that this process can see, by the UUID in ``CUDA_VISIBLE_DEVICES``."""
    uuid = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if not uuid.startswith(("GPU-", "MIG-")) or "," in uuid:
        return NoSensors("CUDA_VISIBLE_DEVICES does not name one device by its UUID")
    try:
        return CudaSensors(uuid, nvml)
    except nvml.NVMLError as error:
        return NoSensors(f"NVML: {error}")


class Telemetry:
    """The readings of one track."""

    def __init__(self, sensors: Sensors) -> None:
        self._sensors = sensors
        self._readings: list[Reading] = []
        self._before = dict(sensors.totals())
        self._after = self._before

    def sample(self) -> None:
        """Take a reading. Not within a timed region: a few queries of some microseconds each."""
        self._readings.append(self._sensors.read())

    def finish(self) -> None:
        """Note the growth of the counters at the end of the track."""
        self._after = dict(self._sensors.totals())

    def summary(self) -> dict[str, Any]:
        """Return first, last, least, greatest and median of each quantity, the count of each reason, and the growth of
        counters. Without sensors there is one entry, ``absent``."""
        if self._sensors.absent:
            return {"absent": self._sensors.absent}
        grown = self._grown()
        return {
            "readings": len(self._readings),
            **{name: _spread(values) for name, values in self._series().items()},
            "reasons": dict(self._reasons()),
            **{name: value for name, value in grown.items() if "ticks" not in name},
            **({} if (percent := _stolen_percent(grown)) is None else {"steal_percent": percent}),
        }

    def notes(self) -> list[str]:
        """Return notes about changes that may have affected the figures."""
        series, reasons, grown = self._series(), self._reasons(), self._grown()
        notes = []
        if clocks := series.get("sm_mhz"):
            low, high = min(clocks), max(clocks)
            if high - low > _MOVED * median(clocks):
                notes.append(f"the GPU's clock moved between {low:.0f} and {high:.0f} MHz")
        if (clocks := series.get("memory_mhz")) and len(set(clocks)) > 1:
            notes.append(f"the memory's clock moved between {min(clocks):.0f} and {max(clocks):.0f} MHz")
        unexpected = {name: count for name, count in reasons.items() if name not in _EXPECTED}
        seen = [f"{name} ({count} of {len(self._readings)} readings)" for name, count in unexpected.items()]
        if seen:
            notes.append(f"the GPU's clocks were held down: {', '.join(seen)}")
        limit = self._sensors.limits.get("temperature_c")
        hottest = max(series.get("temperature_c", [0.0]))
        if limit is not None and hottest >= limit:
            notes.append(f"the GPU was at {hottest:.0f} °C, and slows down at {limit:.0f} °C")
        for name, text in (("ecc_corrected", "corrected"), ("ecc_uncorrected", "uncorrected")):
            if grown.get(name, 0) > 0:
                notes.append(f"{grown[name]:.0f} {text} errors of the GPU's memory were counted")
        percent = _stolen_percent(grown)
        if percent is not None and percent > _STOLEN_PERCENT:
            notes.append(f"{percent:.0f} % of the processors' time was taken by the host of this virtual machine")
        return notes

    def _series(self) -> dict[str, list[float]]:
        names = dict.fromkeys(name for reading in self._readings for name in reading.quantities)
        return {name: [r.quantities[name] for r in self._readings if name in r.quantities] for name in names}

    def _reasons(self) -> Counter[str]:
        return Counter(reason for reading in self._readings for reason in reading.reasons)

    def _grown(self) -> dict[str, float]:
        return {name: value - self._before[name] for name, value in self._after.items() if name in self._before}


def _spread(values: list[float]) -> dict[str, float]:
    return {
        "first": values[0],
        "last": values[-1],
        "min": min(values),
        "max": max(values),
        "median": float(median(values)),
    }


def _stolen_percent(grown: Mapping[str, float]) -> float | None:
    """Return the share of all ticks that were stolen; ``None`` where there were none, or where they are not counted."""
    return 100 * grown.get("steal_ticks", 0.0) / ticks if (ticks := grown.get("ticks", 0.0)) > 0 else None
