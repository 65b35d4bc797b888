"""The standing corpus, case by case, through a real engine: every verdict must be the expected one."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from evaluator.candidate import InvalidSource, parse_candidate
from evaluator.config import EvalConfig, SamplingPlan
from evaluator.engine import Engine
from evaluator.evaluation import Evaluation, Verdict
from evaluator.problem import Problem
from tests.corpus import Case, load_cases

# What is looked at here are verdicts: a few samples are enough, and the speedups' bounds in the corpus are wide.
_SAMPLING = SamplingPlan(min_samples=10, max_samples=10)


def _cases(device: str) -> list[Case]:
    return [case for case in load_cases() if case.runs_on(device)]


def _evaluate(case: Case, engine: Engine, device: str, problems: dict[str, Problem]) -> Evaluation | InvalidSource:
    candidate = parse_candidate(code=case.source)
    if isinstance(candidate, InvalidSource):
        return candidate
    config = EvalConfig(device=device, size=case.size, sampling=_SAMPLING)
    return engine.evaluate(problems[case.problem], candidate, config)


def _check(case: Case, result: Evaluation | InvalidSource) -> None:
    if isinstance(result, InvalidSource):
        assert case.verdict is Verdict.INVALID_SOURCE, result.message
        said = " ".join((result.message, *result.hints))
    else:
        assert result.verdict is case.verdict, result.message
        said = " ".join((result.message, *result.hints))
        if case.gradients is not None:
            assert result.gradients is case.gradients, (result.message, result.notes)
        if case.speedup_at_least is not None:
            assert result.speedup is not None
            assert result.speedup >= case.speedup_at_least
        if case.speedup_at_most is not None:
            assert result.speedup is not None
            assert result.speedup <= case.speedup_at_most
    for part in case.message_contains:
        assert part in said


@pytest.fixture(scope="module")
def built(request: pytest.FixtureRequest, artifact_cache: Path, problems: dict[str, Problem]) -> None:
    """Every extension of the selected cases, built at once and ahead: one after the other they would take minutes."""
    selected = {item.callspec.params["case"] for item in request.session.items if "case" in _parameters(item)}
    with Engine(device=None, cache_dir=artifact_cache) as engine, ThreadPoolExecutor(os.cpu_count()) as pool:
        candidates = [(case, parse_candidate(code=case.source)) for case in selected if "load_inline" in case.source]
        for _ in pool.map(
            lambda pair: engine.build(problems[pair[0].problem], pair[1], EvalConfig(size=pair[0].size)), candidates
        ):
            pass


def _parameters(item: pytest.Item) -> dict[str, object]:
    return getattr(getattr(item, "callspec", None), "params", {})


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("case", _cases("cpu"), ids=lambda case: case.name)
def test_cpu_case_gets_its_verdict(case: Case, cpu_engine: Engine, problems: dict[str, Problem]) -> None:
    _check(case, _evaluate(case, cpu_engine, "cpu", problems))


@pytest.mark.gpu
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("case", _cases("cuda"), ids=lambda case: case.name)
def test_cuda_case_gets_its_verdict(case: Case, cuda_engine: Engine, problems: dict[str, Problem]) -> None:
    _check(case, _evaluate(case, cuda_engine, "cuda", problems))
