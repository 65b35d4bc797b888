"""The honest cases of the corpus on a CPU, through both stages. A busy machine turns nobody down, so other tests run
beside them."""

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
    [case for case in load_cases() if case.kind == "honest" and case.runs_on("cpu")],
    ids=lambda case: case.name,
)
def test_honest_case_passes(case: Case, cpu_engine: Engine, problems: dict[str, Problem]) -> None:
    assert not case.complaints(grade(case, cpu_engine, "cpu", problems))
