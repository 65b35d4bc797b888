"""What people read on a terminal."""

from __future__ import annotations

import io
import json
from typing import Any, cast

import pytest
from rich.console import Console

from kerneljudge.cli import progress, render
from kerneljudge.cli.progress import ProgressLine
from kerneljudge.grading.local_record import blank_record
from kerneljudge.records import ShapeFiguresRecord, SubmissionRecord
from kerneljudge.terms.findings import Diagnosis, Fault, Tool
from kerneljudge_server.problems import problem_record
from tests.corpus import known_problems


def shown(record: SubmissionRecord) -> str:
    console = Console(file=io.StringIO(), width=160)
    console.print(render.submission(record), markup=False, soft_wrap=True)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def record(**known: Any) -> SubmissionRecord:
    return blank_record("relu", **{"status": "done", "device": "cpu", "size": "smoke", "precision": "float32"} | known)


def test_a_passed_record_shows_every_figure() -> None:
    latency = {"candidate": 1.0, "baseline": 2.0, "candidate_outer": 1.1, "baseline_outer": 2.1}
    text = shown(
        record(
            verdict="passed",
            gradients="match",
            speedup=2.0,
            speedup_interval={"low": 1.9, "high": 2.1, "level": 0.95},
            speedup_training=0.5,
            latency_ms=latency,
            latency_training_ms=latency | {"candidate": 0.05},
            roofline_share=0.42,
            roofline={"inference": {"bound_ms": 0.42, "limited_by": "memory"}},
            errors={"max_abs": 1e-7, "max_rel": 2e-7, "reference_max_rel": 1e-7},
            peak_memory_bytes=3 * 2**30,
            stage_s={"building": 0.25},
            notes=["below 50 us"],
        )
    )
    for words in (
        "passed  relu (cpu, smoke, float32)", "(1.90", "0.50", "1 ms, baseline 2 ms", "50.0 us",
        "42.0 % of a bound of 0.42 ms by memory", "1e-07",
        "the reference's own 1e-07", "3 GiB", "building 0.25 s", "note: below 50 us",
    ):  # fmt: skip
        assert words in text, words
    assert not [line for line in text.splitlines() if line != line.rstrip()]


def test_timed_shapes_are_shown_with_their_mean() -> None:
    interval = {"low": 2.9, "high": 3.1, "level": 0.95}
    none = dict.fromkeys(ShapeFiguresRecord.__annotations__)
    wide = none | {"speedup": 3.0, "speedup_interval": interval, "speedup_training": 1.25}
    text = shown(
        record(verdict="passed", speedup=2.0, shapes={"wide": wide, "tall": none}, speedup_mean=2.45)
    ).splitlines()
    assert any("at wide  " in line and "3.00" in line and "(2.90" in line for line in text)
    assert any("at wide, training" in line and "1.25" in line for line in text)
    assert any("mean of shapes" in line and "2.45" in line for line in text)
    assert not any("at tall" in line or "mean, training" in line for line in text)


def test_a_problem_shows_its_shapes_but_for_those_that_are_held_out() -> None:
    problems = known_problems()
    console = Console(file=io.StringIO(), width=160)
    console.print(render.problem(problem_record(problems["honest_row_scale_inherited"])), markup=False)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "transposed=1 (checked)" in text
    assert "4 more are held out" in text
    assert "one_more" not in text


def test_a_wrong_output_is_followed_by_its_worst_elements() -> None:
    mismatch = {
        "tensor": "the output", "shape": [4, 5], "dtype": "float32", "inputs": "signed", "wrong": 5, "total": 20,
        "nan": 1, "infinite": 0, "patterns": [],
        "worst": [{"index": [3, 4], "expected": 0.5, "got": "nan", "error": "nan", "allowed": 1e-4}],
    }  # fmt: skip
    text = shown(record(verdict="wrong_output", details={"mismatch": mismatch}))
    assert "the output (float32[4, 5], inputs signed): 5 of 20 elements are wrong" in text
    assert ["[3,", "4]", "0.5", "nan", "nan", "0.0001"] in [line.split() for line in text.splitlines()]


def test_kernels_are_shown_with_what_they_take() -> None:
    kernel = {
        "name": "relu\x1b[2J", "arch": "sm_90", "registers": 77, "shared_bytes": 1024, "stack_bytes": 240,
        "spill_store_bytes": 368, "spill_load_bytes": 372,
    }  # fmt: skip
    text = shown(record(verdict="passed", details={"kernels": [kernel]}))
    cells = ["relu\N{REPLACEMENT CHARACTER}[2J", "sm_90", "77", "1024", "240", "368", "/", "372"]
    assert cells in [line.split() for line in text.splitlines()]


def test_a_diagnosis_is_shown_with_its_line_or_how_far_it_is() -> None:
    fault = Fault("Invalid write", "relu\x1b[2J", "cuda.cu", 8, 3, "x[i] = 0;", (1, 0, 0), (2, 0, 0))
    result = Diagnosis(Tool.MEMCHECK, "relu", "cuda", "smoke", "float32", "forward", 1.0, (fault,)).to_dict()
    made = {"tool": "memcheck", "status": "done", "message": "", "result": json.loads(json.dumps(result))}
    text = shown(record(diagnosis=made))
    for words in (
        "memcheck  relu (cuda, smoke, float32): memcheck reports faults at 1 place",
        "Invalid write in kernel relu\N{REPLACEMENT CHARACTER}[2J at line 3 by thread (1, 0, 0) of block (2, 0, 0)",
        "3: x[i] = 0;",
    ):
        assert words in text, text
    # A service that is younger tells of more than is known here.
    made["result"]["faults"][0]["colour"] = "red"
    assert "diagnosis (memcheck): memcheck reports faults at 1 place" in shown(record(diagnosis=made))
    waiting = {"tool": "racecheck", "status": "pending", "message": "", "result": None}
    assert "diagnosis (racecheck): pending" in shown(record(diagnosis=waiting))
    failed = {**waiting, "status": "failed", "message": "the builder died"}
    assert "diagnosis (racecheck): failed: the builder died" in shown(record(diagnosis=failed))


def test_flags_are_shown_as_advice_one_in_a_line() -> None:
    flags = [
        {"kind": "exception_fallback", "line": 12, "message": "computed in another way"},
        {"kind": "library_only", "line": None, "message": "no kernel \x1b[2J"},
    ]
    lines = shown(record(verdict="passed", flags=flags)).splitlines()
    assert lines[0].startswith("passed  relu")
    assert lines[1:] == [
        "  advisory: exception fallback, line 12: computed in another way",
        "  advisory: library only: no kernel \N{REPLACEMENT CHARACTER}[2J",
    ]


@pytest.mark.parametrize("younger", ["flags", "roofline", "diagnosis"])
def test_a_record_of_a_service_that_is_older_is_shown(younger: str) -> None:
    new = record(verdict="passed", roofline_share=0.42)
    old = {name: value for name, value in new.items() if name != younger}
    text = shown(cast(SubmissionRecord, old))
    assert text.startswith("passed  relu")
    assert "42.0 %\n" in text


@pytest.mark.parametrize("status", ["queued", "failed", "cancelled"])
def test_without_a_verdict_the_status_is_shown(status: str) -> None:
    assert shown(record(status=status, message="why")).startswith(f"{status}  relu")


def test_candidates_cannot_steer_the_terminal() -> None:
    text = shown(record(verdict="runtime_error", message="a\x1b[2Jb\r\nc\x07\u202ed", hints=["\x1b]0;x\x07"]))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "  a\N{REPLACEMENT CHARACTER}[2Jb\n  c" in text


def test_a_message_with_brackets_is_shown_as_it_is() -> None:
    assert "at [30, 3275] [bold]x[/bold]" in shown(
        record(verdict="wrong_output", message="at [30, 3275] [bold]x[/bold]")
    )


def test_progress_in_a_pipe_is_a_line_for_each_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    with ProgressLine(Console(file=file)) as line:
        line.show("building", "one")
        line.show("building", "two")
        line.show("sampling", "[three]", 0.5)
    lines = file.getvalue().splitlines()
    assert [text.partition("] ")[2] for text in lines] == ["building: one", "sampling: [three]"]
    monkeypatch.setattr(progress, "_PLAIN_INTERVAL_S", 0.0)
    with ProgressLine(Console(file=file)) as line:
        line.show("building", "one")
        line.show("building", "two")
    assert file.getvalue().splitlines()[-1].endswith("building: two")


def test_progress_on_a_terminal_is_one_line_that_goes_away() -> None:
    file = io.StringIO()
    with ProgressLine(Console(file=file, force_terminal=True, width=100)) as line:
        line.show("building", "\x1b[31mone", 0.5)
        line.show("sampling", "", None)
    assert "\x1b[31mone" not in file.getvalue()
    assert "sampling" in file.getvalue()
