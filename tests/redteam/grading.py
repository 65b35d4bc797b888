"""Putting cases of the corpus through both stages, as the service does."""

from __future__ import annotations

from collections.abc import Mapping

from evaluator.candidate import InvalidSource
from evaluator.engine import Engine
from evaluator.errors import EvaluatorError
from evaluator.evaluation import Evaluation
from evaluator.problem import Problem
from tests.corpus import Case

__all__ = ["complaints_about", "grade"]


def grade(case: Case, engine: Engine, device: str, problems: Mapping[str, Problem]) -> Evaluation | InvalidSource:
    """What becomes of the case on ``device``: the verdict of the build stage, or else of the evaluation."""
    candidate = case.candidate()
    if isinstance(candidate, InvalidSource):
        return candidate
    problem, config = problems[case.problem], case.config(device)
    built = engine.build(problem, candidate, config)
    return built.evaluation or engine.evaluate(problem, candidate, config)


def complaints_about(case: Case, engine: Engine, device: str, problems: Mapping[str, Problem]) -> list[str]:
    """What is not as the case expects it; a fault of ours is a complaint, too."""
    try:
        return case.complaints(grade(case, engine, device, problems))
    except EvaluatorError as error:
        return [f"{type(error).__name__}: {error}"]
