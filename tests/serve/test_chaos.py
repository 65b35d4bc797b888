"""Submissions outlive everything that handles them, PostgreSQL and Redis included: the benchmark of the same name, in
small."""

from __future__ import annotations

from pathlib import Path

from benchmarks.chaos import Plan, run


def test_nothing_is_lost_and_nothing_graded_twice_whatever_dies_meanwhile(tmp_path: Path) -> None:
    faults = ("evaluator", "redis", "postgresql, immediate", "api")
    plan = Plan(30, honest=1, raising=4, broken=1, faults=faults, every_s=1.0, workers=1, lease_s=2)
    report = run(plan, tmp_path)
    assert report.wrong == []
    # On a fast machine everything may be over before the last one.
    assert [fault.what for fault in report.faults][:2] == list(faults[:2])
    assert report.verdicts == {"compile_error": 1, "invalid_source": 24, "load_error": 4, "passed": 1}
