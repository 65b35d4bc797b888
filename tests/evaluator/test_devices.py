"""What is found out about this machine without torch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from evaluator import devices
from evaluator.devices import processor_shares


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight cores of two processors each, 0 and 8 to 7 and 15, and two CUDA devices."""
    for number in range(16):
        folder = tmp_path / f"cpu{number}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{number % 8},{number % 8 + 8}\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(16)))
    monkeypatch.setattr(devices, "_capabilities", lambda: ((9, 0), (9, 0)))
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
