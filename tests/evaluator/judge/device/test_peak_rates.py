"""Rates of this machine's processors, and the file that keeps them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from evaluator.judge.device.cpu import CpuDevice
from evaluator.judge.device.peak_rates import PeakRatesFile, copy_rate, largest_cache_bytes, measure_peak_rates
from evaluator.roofline import PeakRates

_CPU = torch.device("cpu")
_KEPT = PeakRates(100.0, {"float32": 10.0, "float64": 5.0})
_IDENTITY = {"device_name": "a device", "torch": "2.9"}


class _Measuring:
    """Returns what it is made with, and counts how often."""

    def __init__(self, result: PeakRates) -> None:
        self.result = result
        self.calls = 0

    def __call__(self) -> PeakRates:
        self.calls += 1
        return self.result


def _kept(folder: Path) -> PeakRatesFile:
    file = PeakRatesFile(folder, _IDENTITY)
    assert file.load_or_measure(_never, lambda: _KEPT) == _KEPT
    return file


def _never() -> PeakRates:
    raise AssertionError("this was not to be measured")


def test_every_precision_of_a_cpu_has_a_rate_and_none_is_slower_than_converting_to_float32() -> None:
    found = measure_peak_rates(_CPU, free_bytes=2**30)
    assert set(found.operations_per_s) == {"float32", "float16", "bfloat16", "float64"}
    assert all(0 < rate < math.inf for rate in (found.bytes_per_s, *found.operations_per_s.values()))
    for shorter in ("float16", "bfloat16"):
        assert found.operations_per_s[shorter] >= found.operations_per_s["float32"]


def test_measuring_leaves_tf32_as_it_was() -> None:
    before = torch.backends.cuda.matmul.allow_tf32
    measure_peak_rates(_CPU, free_bytes=2**24)
    assert torch.backends.cuda.matmul.allow_tf32 is before


def test_little_free_memory_is_enough() -> None:
    found = measure_peak_rates(_CPU, free_bytes=2**20)
    assert found.bytes_per_s > 0
    assert found.operations_per_s == {}


def test_a_copy_is_counted_in_bytes_read_and_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaluator.judge.device.peak_rates._call_ms", lambda *_: 2.0)
    assert copy_rate(_CPU, 2**20, budget_s=0.01) == pytest.approx(2 * 2**20 / 0.002)


def test_a_product_is_counted_as_two_operations_for_each_multiplication(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaluator.judge.device.peak_rates._call_ms", lambda *_: 60_000.0)
    found = measure_peak_rates(_CPU, free_bytes=2**28)
    assert found.operations_per_s["float64"] == pytest.approx(2 * 256**3 / 60)


def test_the_last_level_cache_is_the_largest_that_the_kernel_names() -> None:
    listed = list(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"))
    assert (largest_cache_bytes() > 0) == bool(listed)


def test_what_was_measured_is_kept_for_the_next_process(tmp_path: Path) -> None:
    _kept(tmp_path / "new")
    again = PeakRatesFile(tmp_path / "new", _IDENTITY).load_or_measure(lambda: _KEPT, _never)
    assert again == _KEPT


@pytest.mark.parametrize("change", [{"torch": "2.10"}, {"driver": "1"}, {"device_name": "another"}])
def test_another_device_or_software_is_measured_on_its_own(tmp_path: Path, change: dict[str, str]) -> None:
    _kept(tmp_path)
    other = _Measuring(PeakRates(1.0, {}))
    assert PeakRatesFile(tmp_path, _IDENTITY | change).load_or_measure(_never, other) == other.result
    assert other.calls == 1
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("estimate", "dropped"),
    [
        (PeakRates(109.0, {"float32": 10.9}), False),
        (PeakRates(50.0, {}), False),
        (PeakRates(111.0, {}), True),
        (PeakRates(100.0, {"float32": 11.1}), True),
    ],
)
def test_a_kept_value_is_dropped_when_a_glance_is_more_than_a_tenth_faster(
    tmp_path: Path, estimate: PeakRates, dropped: bool
) -> None:
    _kept(tmp_path)
    measuring = _Measuring(PeakRates(120.0, {"float32": 9.0, "float64": 6.0}))
    found = PeakRatesFile(tmp_path, _IDENTITY).load_or_measure(lambda: estimate, measuring)
    assert measuring.calls == dropped
    assert found == (PeakRates(120.0, {"float32": 10.0, "float64": 6.0}) if dropped else _KEPT)
    assert PeakRatesFile(tmp_path, _IDENTITY).load_or_measure(lambda: found, _never) == found


def _empty(_data: str) -> str:
    return ""


def _of_another_device(data: str) -> str:
    return data.replace("a device", "another")


def _zero(data: str) -> str:
    return json.dumps(json.loads(data) | {"bytes_per_s": 0})


def _infinite(data: str) -> str:
    return json.dumps(json.loads(data) | {"bytes_per_s": math.inf})


def _a_list(_data: str) -> str:
    return "[1, 2]"


@pytest.mark.parametrize("damage", [_empty, _of_another_device, _zero, _infinite, _a_list])
def test_a_damaged_file_is_measured_anew(tmp_path: Path, damage: Callable[[str], str]) -> None:
    _kept(tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_text(damage(path.read_text()))
    measuring = _Measuring(_KEPT)
    assert PeakRatesFile(tmp_path, _IDENTITY).load_or_measure(_never, measuring) == _KEPT
    assert measuring.calls == 1
    assert PeakRatesFile(tmp_path, _IDENTITY).load_or_measure(lambda: _KEPT, _never) == _KEPT


def test_a_folder_that_cannot_be_made_costs_nothing_but_the_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert PeakRatesFile(tmp_path / "file" / "folder", _IDENTITY).load_or_measure(_never, lambda: _KEPT) == _KEPT
    assert PeakRatesFile(None, _IDENTITY).load_or_measure(_never, lambda: _KEPT) == _KEPT


def test_a_device_measures_once_and_the_next_process_takes_what_it_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measuring = _Measuring(PeakRates(1e15, {"float32": 1e18}))
    monkeypatch.setattr("evaluator.judge.device.device.measure_peak_rates", lambda *_: measuring())
    device = CpuDevice(tmp_path)
    assert device.peak_rates() is device.peak_rates()
    assert CpuDevice(tmp_path).peak_rates() == measuring.result
    assert measuring.calls == 1


def test_the_floor_of_a_cpu_does_not_follow_its_ceilings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaluator.judge.device.device.measure_peak_rates", lambda *_: PeakRates(1.0, {}))
    device = CpuDevice(tmp_path)
    before = device.floor_ms(2**30)
    device.peak_rates()
    assert device.floor_ms(2**30) == before
