"""The standing corpus, case by case, through a real engine: every verdict must be the expected one."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from evaluator.candidate import InvalidSource
from evaluator.engine import Engine
from evaluator.problem import Problem
from tests.corpus import Case, load_cases


def _cases(device: str) -> list[Case]:
    return [case for case in load_cases() if case.runs_on(device)]


def _check(case: Case, engine: Engine, device: str, problems: dict[str, Problem]) -> None:
    candidate = case.candidate()
    if isinstance(candidate, InvalidSource):
        assert not case.complaints(candidate)
        return
    problem, config = problems[case.problem], case.config(device)
    if case.kind == "honest":
        built = engine.build(problem, candidate, config)
        assert built.evaluation is None, built.evaluation.message
    assert not case.complaints(engine.evaluate(problem, candidate, config))


@pytest.fixture(scope="module")
def built(request: pytest.FixtureRequest, artifact_cache: Path, problems: dict[str, Problem]) -> None:
    """Every extension of the selected cases, built at once and ahead: one after the other they would take minutes."""
    # Of this module alone: other tests have cases as parameters and evaluate none of them.
    selected = {item.callspec.params["case"] for item in request.session.items if item.path == Path(__file__)}
    slots = os.cpu_count() or 1
    with (
        Engine(device=None, cache_dir=artifact_cache, build_slots=slots) as engine,
        ThreadPoolExecutor(slots) as pool,
    ):
        candidates = [(case, case.candidate()) for case in selected if "load_inline" in case.source and not case.attack]
        for _ in pool.map(
            lambda pair: engine.build(problems[pair[0].problem], pair[1], pair[0].config("cpu")), candidates
        ):
            pass


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
