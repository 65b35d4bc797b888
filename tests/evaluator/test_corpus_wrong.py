"""The wrong cases of the corpus on a CPU, and the hostile ones that are not about time: other tests may run beside them
without changing a verdict."""

from __future__ import annotations

import pytest

from evaluator.engine import Engine
from evaluator.problems.problem import Problem
from tests.corpus import Case, load_cases
from tests.redteam.grading import grade


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(
    "case",
    [case for case in load_cases() if case.runs_on("cpu") and case.kind != "honest" and not case.is_about_time],
    ids=lambda case: case.name,
)
def test_wrong_case_gets_its_verdict(case: Case, cpu_engine: Engine, problems: dict[str, Problem]) -> None:
    assert not case.complaints(grade(case, cpu_engine, "cpu", problems, build=False))
