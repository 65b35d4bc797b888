"""What is found out about this machine without torch."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

from evaluator.devices import discovery
from evaluator.devices.discovery import (
    available_devices,
    cuda_architectures,
    cuda_nodes,
    cuda_uuid,
    device_id,
    processor_shares,
)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight cores of two processors each, 0 and 8 to 7 and 15, and two CUDA discovery."""
    for number in range(16):
        folder = tmp_path / f"cpu{number}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{number % 8},{number % 8 + 8}\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(16)))
    found = (discovery._CudaDevice("GPU-0a1b", 1, (9, 0)), discovery._CudaDevice("GPU-0a2c", 0, (8, 6)))
    monkeypatch.setattr(discovery, "_all_cuda_devices", lambda: found)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


def test_each_judge_has_a_core_with_its_siblings_and_nobody_else_runs_there(machine: Path) -> None:
    first, second = (processor_shares(f"cuda:{number}", machine) for number in (0, 1))
    assert first is not None
    assert second is not None
    assert (first.judge, second.judge) == ({7, 15}, {6, 14})
    assert first.others == second.others == set(range(16)) - {6, 7, 14, 15}


def test_few_cores_are_shared_by_everybody(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 8, 1, 9})
    assert processor_shares("cuda", machine) is None


def test_a_cpu_is_never_divided(machine: Path) -> None:
    assert processor_shares("cpu", machine) is None


def test_processors_without_known_siblings_are_cores(machine: Path, tmp_path: Path) -> None:
    shares = processor_shares("cuda:0", tmp_path / "nothing")
    assert shares is not None
    assert shares.judge == {15}


@pytest.mark.parametrize(
    ("setting", "uuids"),
    [
        ("0,1", ["GPU-0a1b", "GPU-0a2c"]),
        ("1", ["GPU-0a2c"]),
        (" 1 , 0", ["GPU-0a2c", "GPU-0a1b"]),
        ("GPU-0a2,GPU-0a1b", ["GPU-0a2c", "GPU-0a1b"]),
        ("0,-1,1", ["GPU-0a1b"]),  # CUDA stops at the first that is none
        ("2,0", []),
        ("GPU-0a", []),  # both begin like this
        ("0,0,1", []),
        ("", []),
    ],
)
def test_only_what_cuda_may_see_is_used(
    machine: Path, monkeypatch: pytest.MonkeyPatch, setting: str, uuids: list[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    assert available_devices() == ["cpu", *(f"cuda:{index}" for index in range(len(uuids)))]
    assert [cuda_uuid(f"cuda:{index}") for index in range(len(uuids))] == uuids


def test_what_is_known_of_a_device_is_its_own(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cuda_architectures() == "8.6;9.0+PTX"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    # What is built here may be for a process that uses the other one.
    assert cuda_architectures() == "8.6;9.0+PTX"
    assert cuda_nodes("cuda")[0] == "/dev/nvidia0"
    # Whoever judges on the other device has the last core.
    shares = processor_shares("cuda:0", machine)
    assert shares is not None
    assert shares.judge == {6, 14}
    assert device_id("cuda:1").endswith("/cuda:1")


def test_without_a_driver_there_is_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "_all_cuda_devices", tuple)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert available_devices() == ["cpu"]
    with pytest.raises(IndexError):
        cuda_uuid("cuda:0")


def _minor_number(handle: int) -> int:
    if handle == 1:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
    return handle


NVML = SimpleNamespace(
    NVMLError=pynvml.NVMLError,
    nvmlInit=lambda: None,
    nvmlShutdown=lambda: None,
    nvmlDeviceGetCount=lambda: 3,
    nvmlDeviceGetHandleByIndex=lambda number: number,
    nvmlDeviceGetCudaComputeCapability=lambda _handle: (9, 0),
    nvmlDeviceGetUUID=lambda handle: f"GPU-{handle}",
    nvmlDeviceGetMinorNumber=_minor_number,
)
"""As much of NVML as is asked, over three devices of which the second does not answer."""


def test_a_device_that_does_not_answer_takes_no_other_with_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(discovery, "pynvml", NVML)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(9)))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    discovery._all_cuda_devices.cache_clear()
    try:
        assert available_devices() == ["cpu", "cuda:0", "cuda:2"]
        assert cuda_uuid("cuda:2") == "GPU-2", "as before it was lost: nobody else has its name"
        assert cuda_nodes("cuda:2")[0] == "/dev/nvidia2"
        with pytest.raises(IndexError):
            cuda_uuid("cuda:1")
        shares = processor_shares("cuda:2", tmp_path)
        assert shares is not None
        assert shares.judge == {6}
        assert shares.others == set(range(6)), "nor does anybody have a core that is another judge's"
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,1,0")
        assert available_devices() == ["cpu", "cuda:0", "cuda:2"]
        assert cuda_uuid("cuda:0") == "GPU-2"
    finally:
        discovery._all_cuda_devices.cache_clear()
