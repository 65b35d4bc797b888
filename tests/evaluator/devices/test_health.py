"""Whether a device is fit to be measured on.

There is no GPU here: ``Nvml`` implements the functions of ``pynvml`` that are used, over values that a test sets.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from evaluator.devices.health import CpuHealth, CudaHealth, Health, device_health

_UUID = "GPU-11111111-2222-3333-4444-555555555555"
_HANDLE = object()
_GIB = 2**30
_JUDGE = 4711


class Nvml:
    """One GPU as NVML shows it, with the judge on it. ``failing``: functions by the error that they end with."""

    def __init__(self, **failing: int) -> None:
        self.uncorrected = 0
        self.retirement = 0
        self.remapped = (0, 0, 0, 0)
        self.temperature_c = 50
        self.slowdown_c = 90
        self.total_bytes = 80 * _GIB
        self.users: list[tuple[int, int | None]] = [(_JUDGE, 2 * _GIB)]
        self.events: list[int] = []
        self.open = 0
        self._failing = failing

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("NVML", "nvmlEventType")):
            return getattr(pynvml, name)
        raise AttributeError(name)

    def nvmlInit(self) -> None:  # noqa: N802 - NVML's name
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802 - NVML's name
        self.open -= 1

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> object:  # noqa: N802 - NVML's name
        if uuid != _UUID:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return _HANDLE

    def nvmlEventSetCreate(self) -> object:  # noqa: N802 - NVML's name
        return self

    def nvmlDeviceRegisterEvents(self, handle: object, kinds: int, events: object) -> None:  # noqa: N802 - NVML's name
        assert (handle, kinds, events) == (_HANDLE, pynvml.nvmlEventTypeXidCriticalError, self)
        self._called("nvmlDeviceRegisterEvents")

    def nvmlEventSetWait_v2(self, events: object, timeout_ms: int) -> SimpleNamespace:  # noqa: N802 - NVML's name
        assert (events, timeout_ms) == (self, 0)
        if not self.events:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        return SimpleNamespace(eventData=self.events.pop(0))

    def nvmlEventSetFree(self, events: object) -> None:  # noqa: N802 - NVML's name
        assert events is self

    def nvmlDeviceGetTotalEccErrors(self, _handle: object, kind: int, counter: int) -> int:  # noqa: N802 - NVML's name
        assert (kind, counter) == (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
        self._called("nvmlDeviceGetTotalEccErrors")
        return self.uncorrected

    def nvmlDeviceGetRetiredPagesPendingStatus(self, _handle: object) -> int:  # noqa: N802 - NVML's name
        self._called("nvmlDeviceGetRetiredPagesPendingStatus")
        return self.retirement

    def nvmlDeviceGetRemappedRows(self, _handle: object) -> tuple[int, int, int, int]:  # noqa: N802 - NVML's name
        return self.remapped

    def nvmlDeviceGetTemperature(self, _handle: object, sensor: int) -> int:  # noqa: N802 - NVML's name
        assert sensor == pynvml.NVML_TEMPERATURE_GPU
        return self.temperature_c

    def nvmlDeviceGetTemperatureThreshold(self, _handle: object, threshold: int) -> int:  # noqa: N802 - NVML's name
        assert threshold == pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
        return self.slowdown_c

    def nvmlDeviceGetMemoryInfo(self, _handle: object) -> SimpleNamespace:  # noqa: N802 - NVML's name
        return SimpleNamespace(total=self.total_bytes)

    def nvmlDeviceGetComputeRunningProcesses(self, _handle: object) -> list[SimpleNamespace]:  # noqa: N802 - as above
        return [SimpleNamespace(pid=pid, usedGpuMemory=held) for pid, held in self.users]

    def nvmlDeviceGetGraphicsRunningProcesses(self, _handle: object) -> list[SimpleNamespace]:  # noqa: N802 - as above
        return []

    def _called(self, name: str) -> None:
        if name in self._failing:
            raise pynvml.NVMLError(self._failing[name])


def look(nvml: Nvml) -> Health:
    return CudaHealth(_UUID, foreign_share=0.1, nvml=nvml).look([_JUDGE])


def test_a_gpu_without_a_flaw_is_sound_and_everything_was_looked_at() -> None:
    assert look(Nvml()) == Health()
    assert Health().sound


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"uncorrected": 3}, "3 uncorrected ECC errors"),
        ({"retirement": 1}, "pages of its memory are to be retired"),
        ({"remapped": (0, 1, 1, 0)}, "rows of its memory are to be remapped"),
        ({"remapped": (0, 1, 0, 1)}, "rows of its memory could not be remapped"),
        ({"temperature_c": 90}, "it is 90 °C hot, and slows down from 90 °C on"),
        ({"users": [(_JUDGE, _GIB), (99, 9 * _GIB)]}, "others hold 9.0 GiB of its memory (process 99)"),
    ],
)
def test_a_flaw_is_named(values: dict[str, Any], reason: str) -> None:
    nvml = Nvml()
    vars(nvml).update(values)
    health = look(nvml)
    assert not health.sound
    assert reason in "; ".join(health.reasons)
    assert len(health.reasons) == 1


def test_a_little_memory_of_others_is_no_flaw_and_a_row_that_was_remapped_neither() -> None:
    nvml = Nvml()
    nvml.users.append((99, 8 * _GIB))
    nvml.remapped = (1, 1, 0, 0)
    assert look(nvml) == Health()


def test_faults_of_the_hardware_are_remembered_until_they_are_forgiven_and_those_of_programs_never() -> None:
    nvml = Nvml()
    health = CudaHealth(_UUID, foreign_share=0.1, nvml=nvml)
    nvml.events = [13, 31, 43, 79, 94]
    for _ in range(2):
        seen = health.look([_JUDGE])
        assert not seen.sound
        assert [event.partition(" was")[0] for event in seen.events] == ["Xid 79", "Xid 94"]
    nvml.events = [31, 48]
    health.forgive()
    assert health.look([_JUDGE]) == Health()


def test_what_a_gpu_does_not_tell_is_said_not_to_be_checked() -> None:
    nvml = Nvml(
        nvmlDeviceGetTotalEccErrors=pynvml.NVML_ERROR_NOT_SUPPORTED,
        nvmlDeviceGetRetiredPagesPendingStatus=pynvml.NVML_ERROR_NO_PERMISSION,
        nvmlDeviceRegisterEvents=pynvml.NVML_ERROR_NOT_SUPPORTED,
    )
    nvml.users = [(99, 70 * _GIB)]  # the judge, as it is called outside of this PID namespace
    nvml.slowdown_c = 0
    health = look(nvml)
    assert health.sound
    subjects = [text.partition(":")[0] for text in health.unchecked]
    assert subjects == ["uncorrected ECC errors", "memory to be retired", "temperature", "memory of others", "Xid"]


def test_a_gpu_that_is_lost_is_that_and_nothing_else() -> None:
    health = look(Nvml(nvmlDeviceGetRetiredPagesPendingStatus=pynvml.NVML_ERROR_GPU_IS_LOST))
    assert health == Health(("the GPU is lost: NVML does not reach it any more",))


def test_nvml_is_given_back() -> None:
    nvml = Nvml()
    health = CudaHealth(_UUID, foreign_share=0.1, nvml=nvml)
    assert nvml.open == 1
    health.close()
    assert nvml.open == 0
    with pytest.raises(pynvml.NVMLError):
        CudaHealth("GPU-another", foreign_share=0.1, nvml=nvml)
    assert nvml.open == 0


def test_a_device_that_nvml_does_not_know_is_used_and_said_not_to_be_checked() -> None:
    health = device_health("cuda:99").look()
    assert health.sound
    assert health.unchecked[0].startswith("everything: NVML does not know cuda:99")


@pytest.mark.parametrize(
    ("available_kib", "runnable", "reason"),
    [(4_000_000, 2, None), (100_000, 2, "0.10 GiB of memory left"), (4_000_000, 10**6, "1000000 threads want to run")],
)
def test_a_cpu_is_unfit_only_where_no_figure_would_be_worth_anything(
    tmp_path: Path, available_kib: int, runnable: int, reason: str | None
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text(f"MemTotal: 8000000 kB\nMemAvailable:  {available_kib} kB\n")
    (tmp_path / "proc/loadavg").write_text(f"338.1 200.0 100.0 {runnable}/{10**6} 4711\n")
    health = CpuHealth(tmp_path).look()
    assert health.sound == (reason is None)
    assert reason is None or reason in health.reasons[0]


def test_a_machine_that_tells_nothing_of_itself_is_not_checked(tmp_path: Path) -> None:
    health = CpuHealth(tmp_path).look()
    assert health.sound
    assert len(health.unchecked) == 2


def test_this_machine_can_be_looked_at() -> None:
    assert device_health("cpu").look().unchecked == ()
