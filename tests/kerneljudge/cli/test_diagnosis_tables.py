"""``kerneljudge diagnose``: what it asks for, what it prints, and how it ends."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from evaluator.config import EvalConfig
from kerneljudge.cli import app, diagnosis_tables, render
from kerneljudge.terms.findings import Diagnosis, Fault, KernelCounters, Tool
from kerneljudge_server import local

_HONEST = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
_FAULT = Fault(
    "Invalid __global__ write of size 4 bytes", "relu\x1b[2J", "cuda.cu", 8, 12, "y[i] = x[i];", (1, 0, 0), (2, 0, 0),
    ("Access at 0x10 is out of bounds",), 7,
)  # fmt: skip
_LAUNCH = KernelCounters("relu", "(4, 1, 1)", "(256, 1, 1)", 3.0, 4e6, 2e6, 0.755, 0.1225, 0.88, 32, 0, 0)


def found(tool: Tool = Tool.MEMCHECK, **changes: Any) -> Diagnosis:
    values: dict[str, Any] = {"stage": "done", "seconds": 1.0, **changes}
    return Diagnosis(tool, "relu", "cuda", "smoke", "float32", **values)


def shown(value: Diagnosis) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(diagnosis_tables.found(value, render.plain), markup=False, soft_wrap=True)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_fault_is_shown_with_its_line_thread_and_block() -> None:
    text = shown(found(faults=(_FAULT,), stage="forward", error="RuntimeError: CUDA error"))
    for words in (
        "memcheck  relu (cuda, smoke, float32): memcheck reports faults at 1 place",
        "Invalid __global__ write of size 4 bytes in kernel relu\N{REPLACEMENT CHARACTER}[2J at line 12 by thread",
        "by thread (1, 0, 0) of block (2, 0, 0) and 6 more there",
        "12: y[i] = x[i];",
        "Access at 0x10 is out of bounds",
        "in forward: RuntimeError: CUDA error",
    ):
        assert words in text, text


def test_counters_are_a_table() -> None:
    text = shown(found(Tool.COUNTERS, counters=(_LAUNCH, KernelCounters("other"))))
    for words in ("3 us", "2000 GB/s", "75.5%", "12.2%", "88.0%", "(256, 1, 1)", "\N{EN DASH}"):
        assert words in text, text


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[EvalConfig, Tool, bool]]:
    """What would be diagnosed; the answer has nothing to report but for racecheck and counters."""
    calls: list[tuple[EvalConfig, Tool, bool]] = []

    def diagnose(_problem: object, _candidate: object, config: EvalConfig, tool: Tool, *, require_sandbox: bool) -> Any:
        calls.append((config, tool, require_sandbox))
        faults = {Tool.RACECHECK: {"faults": (_FAULT,)}, Tool.COUNTERS: {"obstacle": "not permitted"}}
        return found(tool, printed="it ran\n", **faults.get(tool, {}))

    monkeypatch.setattr(local, "diagnose", diagnose)
    return calls


def run(tmp_path: Path, *options: str) -> Any:
    (tmp_path / "candidate.py").write_text(_HONEST)
    return CliRunner().invoke(app.app, ["diagnose", str(tmp_path / "candidate.py"), "--problem", "relu", *options])


@pytest.mark.parametrize(("tool", "status"), [("memcheck", 0), ("racecheck", 1), ("counters", 3)])
def test_the_exit_status_tells_what_was_found(
    tool: str, status: int, asked: list[tuple[EvalConfig, Tool, bool]], tmp_path: Path
) -> None:
    result = run(tmp_path, "--tool", tool, "--json")
    assert result.exit_code == status, result.output
    assert json.loads(result.stdout)["tool"] == tool
    assert asked[0][1] == tool


def test_every_option_is_passed_on(asked: list[tuple[EvalConfig, Tool, bool]], tmp_path: Path) -> None:
    run(tmp_path)
    run(tmp_path, "--tool", "counters")
    run(tmp_path, "--size", "full", "--device", "cuda:1", "--precision", "float16", "--require-sandbox")
    assert [(config.size, config.device, config.precision, required) for config, _, required in asked] == [
        ("smoke", "cuda", "float32", False),
        ("full", "cuda", "float32", False),
        ("full", "cuda:1", "float16", True),
    ]


def test_what_was_printed_is_shown_on_request(asked: list[tuple[EvalConfig, Tool, bool]], tmp_path: Path) -> None:
    assert "it ran" in run(tmp_path, "--log").stderr
    assert "it ran" not in run(tmp_path).stderr


@pytest.mark.parametrize("options", [("--device", "cpu"), ("--tool", "valgrind"), ("--size", "huge")])
def test_what_cannot_be_is_bad_usage(
    options: tuple[str, str], asked: list[tuple[EvalConfig, Tool, bool]], tmp_path: Path
) -> None:
    assert run(tmp_path, *options).exit_code == 2
    assert not asked


def test_without_a_device_the_fault_is_not_the_candidates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What this machine has is hidden, so that it is the same everywhere.
    monkeypatch.setattr("evaluator.engine.available_devices", lambda: ["cpu"])
    result = run(tmp_path, "--json")
    assert result.exit_code == 3
    assert "no device cuda" in json.loads(result.stdout)["error"]
