"""A batch outlives the processes that grade it: the benchmark of the same name, in small."""

from __future__ import annotations

from pathlib import Path

from benchmarks.crash_recovery import Plan, run


def test_every_line_of_a_batch_has_one_result_whatever_is_killed_meanwhile(tmp_path: Path) -> None:
    plan = Plan(lines=300, honest=1, raising=2, broken=1, kills=("api", "evaluator", "builder"), every_s=1.5, lease_s=2)
    report = run(plan, tmp_path)
    assert report.faults == []
    # On a fast machine everything may be over before the last one.
    assert [kill.role for kill in report.kills][:2] == ["api", "evaluator"]
    assert all(kill.back_s > 0 for kill in report.kills)
    assert min(report.verdicts[each] for each in ("passed", "load_error", "compile_error")) > 10
