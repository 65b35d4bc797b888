"""The standing corpus, case by case, through a real engine: every verdict must be the expected one."""

from __future__ import annotations

import pytest

from evaluator.engine import Engine
from evaluator.problems.problem import Problem
from tests.corpus import Case, load_cases
from tests.redteam.grading import grade


def _cases(device: str) -> list[Case]:
    """On a CPU the hostile cases that test_corpus_wrong.py does not have; on CUDA those that are made for it. ``make
    redteam`` tries the others there as well."""
    cases = [case for case in load_cases() if case.runs_on(device)]
    if device == "cpu":
        return [case for case in cases if case.is_about_time]
    return [case for case in cases if case.device == device]


def _check(case: Case, engine: Engine, device: str, problems: dict[str, Problem]) -> None:
    # The build stage takes time, and is tried with those that must get past it.
    assert not case.complaints(grade(case, engine, device, problems, build=case.kind == "honest"))


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("case", _cases("cpu"), ids=lambda case: case.name)
def test_cpu_case_gets_its_verdict(case: Case, cpu_engine: Engine, problems: dict[str, Problem]) -> None:
    _check(case, cpu_engine, "cpu", problems)


@pytest.mark.gpu
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("case", _cases("cuda"), ids=lambda case: case.name)
def test_cuda_case_gets_its_verdict(case: Case, cuda_engine: Engine, problems: dict[str, Problem]) -> None:
    _check(case, cuda_engine, "cuda", problems)
