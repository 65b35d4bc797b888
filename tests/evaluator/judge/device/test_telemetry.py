"""Clocks, temperatures and what else moves while something is measured.

There is no GPU here: ``Nvml`` implements the functions of ``pynvml`` that are used, over values that a test sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pynvml
import pytest

from evaluator.judge.device.telemetry import (
    CpuSensors,
    CudaSensors,
    NoSensors,
    Reading,
    Sensors,
    Telemetry,
    cuda_sensors,
)

_UUID = "GPU-11111111-2222-3333-4444-555555555555"
_HANDLE = object()


class Nvml:
    """One GPU as NVML shows it. ``unsupported``: functions that this GPU does not have."""

    NVMLError = pynvml.NVMLError

    def __init__(self, *, unsupported: tuple[str, ...] = (), installed: bool = True) -> None:
        self.sm_mhz = 1980
        self.memory_mhz = 3201
        self.temperature_c = 50
        self.power_mw = 350_500
        self.reasons = 0
        self.errors = {pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED: 4, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED: 0}
        self.slowdown_c = 90
        self.calls: list[str] = []
        self._unsupported = unsupported
        self._installed = installed

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("NVML_", "nvmlClocksEventReason")):
            return getattr(pynvml, name)
        raise AttributeError(name)

    def nvmlInit(self) -> None:  # noqa: N802 - NVML's name
        if not self._installed:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> object:  # noqa: N802 - NVML's name
        if uuid != _UUID:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return _HANDLE

    def nvmlDeviceGetClockInfo(self, handle: object, kind: int) -> int:  # noqa: N802 - NVML's name
        self._called("nvmlDeviceGetClockInfo", handle)
        return {pynvml.NVML_CLOCK_SM: self.sm_mhz, pynvml.NVML_CLOCK_MEM: self.memory_mhz}[kind]

    def nvmlDeviceGetTemperature(self, handle: object, sensor: int) -> int:  # noqa: N802 - NVML's name
        self._called("nvmlDeviceGetTemperature", handle)
        assert sensor == pynvml.NVML_TEMPERATURE_GPU
        return self.temperature_c

    def nvmlDeviceGetTemperatureThreshold(self, handle: object, threshold: int) -> int:  # noqa: N802 - NVML's name
        self._called("nvmlDeviceGetTemperatureThreshold", handle)
        assert threshold == pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
        return self.slowdown_c

    def nvmlDeviceGetPowerUsage(self, handle: object) -> int:  # noqa: N802 - NVML's name
        self._called("nvmlDeviceGetPowerUsage", handle)
        return self.power_mw

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: object) -> int:  # noqa: N802 - NVML's name
        self._called("nvmlDeviceGetCurrentClocksEventReasons", handle)
        return self.reasons

    def nvmlDeviceGetTotalEccErrors(self, handle: object, kind: int, counter: int) -> int:  # noqa: N802 - NVML's name
        self._called("nvmlDeviceGetTotalEccErrors", handle)
        assert counter == pynvml.NVML_VOLATILE_ECC
        return self.errors[kind]

    def _called(self, name: str, handle: object) -> None:
        assert handle is _HANDLE
        self.calls.append(name)
        if name in self._unsupported:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


class Recorded(Sensors):
    """Sensors that play back readings, then totals from before and after."""

    def __init__(self, readings: list[Reading], *totals: Mapping[str, float], limit_c: float | None = None) -> None:
        self._readings = iter(readings)
        self._totals = iter(totals or ({}, {}))
        self.limits = {} if limit_c is None else {"temperature_c": limit_c}

    def read(self) -> Reading:
        return next(self._readings)

    def totals(self) -> Mapping[str, float]:
        return next(self._totals)


def _recorded(readings: list[Reading], *totals: Mapping[str, float], limit_c: float | None = None) -> Telemetry:
    telemetry = Telemetry(Recorded(readings, *totals, limit_c=limit_c))
    for _ in readings:
        telemetry.sample()
    telemetry.finish()
    return telemetry


def _clocks(*values: float, name: str = "sm_mhz") -> list[Reading]:
    return [Reading({name: value}) for value in values]


def test_a_gpu_is_read_through_nvml() -> None:
    nvml = Nvml()
    nvml.reasons = pynvml.nvmlClocksEventReasonSwPowerCap | pynvml.nvmlClocksEventReasonGpuIdle
    sensors = CudaSensors(_UUID, nvml)
    assert sensors.read() == Reading(
        {"sm_mhz": 1980.0, "memory_mhz": 3201.0, "temperature_c": 50.0, "power_w": 350.5}, ("idle", "power cap")
    )
    assert sensors.totals() == {"ecc_corrected": 4.0, "ecc_uncorrected": 0.0}
    assert sensors.limits == {"temperature_c": 90.0}


def test_what_a_gpu_does_not_support_is_left_out_and_not_asked_again() -> None:
    lacking = ("nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetTemperatureThreshold")
    nvml = Nvml(unsupported=lacking)
    sensors = CudaSensors(_UUID, nvml)
    for _ in range(3):
        assert set(sensors.read().quantities) == {"sm_mhz", "memory_mhz", "temperature_c"}
        assert sensors.totals() == {}
    assert sensors.limits == {}
    assert [nvml.calls.count(name) for name in lacking] == [2, 1, 1]


def test_the_gpu_is_the_one_that_this_process_may_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", _UUID)
    assert isinstance(cuda_sensors(Nvml()), CudaSensors)


@pytest.mark.parametrize(
    ("visible", "installed", "why"),
    [
        ("0", True, "by its UUID"),
        ("", True, "by its UUID"),
        (f"{_UUID},{_UUID}", True, "by its UUID"),
        (_UUID, False, "NVML: NVML Shared Library Not Found"),
        ("GPU-unknown", True, "NVML: Not Found"),
    ],
)
def test_where_nvml_cannot_be_used_one_entry_says_why(
    visible: str, installed: bool, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    sensors = cuda_sensors(Nvml(installed=installed))
    assert isinstance(sensors, NoSensors)
    telemetry = Telemetry(sensors)
    telemetry.sample()
    telemetry.finish()
    assert list(telemetry.summary()) == ["absent"]
    assert why in telemetry.summary()["absent"]
    assert telemetry.notes() == []


def test_a_summary_has_five_figures_of_each_quantity_and_counts_reasons() -> None:
    nvml = Nvml()
    telemetry = Telemetry(CudaSensors(_UUID, nvml))
    for nvml.sm_mhz, nvml.reasons in ((1980, 4), (1800, 4), (1900, 0)):
        telemetry.sample()
    nvml.errors[pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED] += 2
    telemetry.finish()
    summary = telemetry.summary()
    assert summary["readings"] == 3
    assert summary["sm_mhz"] == {"first": 1980, "last": 1900, "min": 1800, "max": 1980, "median": 1900}
    assert summary["reasons"] == {"power cap": 2}
    assert (summary["ecc_corrected"], summary["ecc_uncorrected"]) == (2, 0)
    assert telemetry.notes() == [
        "the GPU's clock moved between 1800 and 1980 MHz",
        "the GPU's clocks were held down: power cap (2 of 3 readings)",
        "2 corrected errors of the GPU's memory were counted",
    ]


def test_a_gpu_that_is_steady_has_no_notes() -> None:
    nvml = Nvml()
    nvml.reasons = pynvml.nvmlClocksEventReasonGpuIdle | pynvml.nvmlClocksEventReasonApplicationsClocksSetting
    telemetry = Telemetry(CudaSensors(_UUID, nvml))
    for _ in range(5):
        telemetry.sample()
    telemetry.finish()
    assert telemetry.notes() == []


@pytest.mark.parametrize(("clocks", "moved"), [((1000.0, 1020.0, 1000.0), False), ((1000.0, 1021.0, 1000.0), True)])
def test_the_clock_may_move_by_two_percent_of_its_median(clocks: tuple[float, ...], moved: bool) -> None:
    assert bool(_recorded(_clocks(*clocks)).notes()) == moved


def test_any_change_of_the_memorys_clock_is_noted() -> None:
    notes = _recorded(_clocks(3201, 3201, 2619, name="memory_mhz")).notes()
    assert notes == ["the memory's clock moved between 2619 and 3201 MHz"]


@pytest.mark.parametrize(("temperature_c", "noted"), [(89.0, False), (90.0, True)])
def test_reaching_the_temperature_at_which_it_slows_down_is_noted(temperature_c: float, noted: bool) -> None:
    readings = _clocks(40.0, temperature_c, 50.0, name="temperature_c")
    assert bool(_recorded(readings, limit_c=90.0).notes()) == noted


@pytest.mark.parametrize(("stolen", "noted"), [(5, False), (6, True)])
def test_stolen_time_is_noted_above_five_percent(stolen: int, noted: bool) -> None:
    before, after = {"ticks": 1000, "steal_ticks": 50}, {"ticks": 1100, "steal_ticks": 50 + stolen}
    telemetry = _recorded(_clocks(1.0), before, after)
    assert telemetry.summary()["steal_percent"] == stolen
    assert bool(telemetry.notes()) == noted
    assert "ticks" not in telemetry.summary()


def test_the_machines_own_processors_are_read() -> None:
    sensors = CpuSensors()
    assert sensors.read().quantities["load"] >= 0
    totals = sensors.totals()
    assert 0 <= totals["steal_ticks"] <= totals["ticks"]


def _write(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_a_processors_clock_is_what_the_kernel_scales_it_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0, 1, 5})
    clock = "sys/devices/system/cpu/cpu{}/cpufreq/scaling_cur_freq"
    _write(
        tmp_path,
        {
            clock.format(0): "2000000\n",
            clock.format(1): "3000000\n",
            clock.format(4): "9000000\n",
            "proc/loadavg": "0.50 0.40 0.30 1/100 4242\n",
            "proc/cpuinfo": "cpu MHz\t\t: 1000.000\nflags\t: fpu\n",
            "proc/stat": "cpu  1 2 3 4 5 6 7 8 1 2\ncpu0 9 9 9 9 9 9 9 9 9 9\n",
        },
    )
    sensors = CpuSensors(tmp_path)
    assert sensors.read() == Reading({"clock_mhz": 2500.0, "load": 0.5})
    # Guests' time is part of user and nice: counted once.
    assert sensors.totals() == {"ticks": 36, "steal_ticks": 8}


def test_without_scaling_the_clock_is_what_the_processor_says(tmp_path: Path) -> None:
    _write(tmp_path, {"proc/cpuinfo": "processor\t: 0\ncpu MHz\t\t: 2445.426\ncpu MHz\t\t: 2500.574\nflags\t: fpu\n"})
    assert CpuSensors(tmp_path).read() == Reading({"clock_mhz": 2473.0})


def test_a_machine_that_says_nothing_is_no_error(tmp_path: Path) -> None:
    telemetry = Telemetry(CpuSensors(tmp_path))
    telemetry.sample()
    telemetry.finish()
    assert telemetry.summary() == {"readings": 1, "reasons": {}}
    assert telemetry.notes() == []
