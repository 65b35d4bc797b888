"""Putting cases of the corpus through both stages, as the service does."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from evaluator.candidates.candidate import InvalidSource
from evaluator.engine import Engine
from evaluator.errors import EvaluatorError
from evaluator.evaluation import Evaluation
from evaluator.problems.problem import Problem
from tests.corpus import Case

__all__ = ["build_ahead", "complaints_about", "grade"]


def build_ahead(cases: Iterable[Case], cache_dir: Path, problems: Mapping[str, Problem]) -> None:
    """Build the extensions of ``cases`` side by side: one after the other, and each when it is needed, they would
    take minutes. What attacks the builder is left for later, and so is whatever fails."""
    slots = os.cpu_count() or 1
    waiting = [
        case for case in cases if "cpp_extension" in case.source and (case.attack is None or case.device == "cuda")
    ]
    with Engine(device=None, cache_dir=cache_dir, build_slots=slots) as engine, ThreadPoolExecutor(slots) as pool:

        def build(case: Case) -> None:
            candidate = case.candidate()
            if not isinstance(candidate, InvalidSource):
                engine.build(problems[case.problem], candidate, case.config("cpu"))

        for _ in pool.map(build, waiting):
            pass


def grade(
    case: Case,
    engine: Engine,
    device: str,
    problems: Mapping[str, Problem],
    *,
    build: bool = True,
    timed: bool = True,
    briefly: bool = False,
) -> Evaluation | InvalidSource:
    """The verdict of the case on ``device``: of the build stage, unless left out, or of the evaluation. ``timed`` and
    ``briefly`` as in ``Case.config``."""
    candidate = case.candidate()
    if isinstance(candidate, InvalidSource):
        return candidate
    problem, config = problems[case.problem], case.config(device, timed=timed, briefly=briefly)
    built = engine.build(problem, candidate, config).evaluation if build else None
    return built or engine.evaluate(problem, candidate, config)


def complaints_about(
    case: Case, engine: Engine, device: str, problems: Mapping[str, Problem], **options: bool
) -> list[str]:
    """Everything that is not as the case expects it; a fault of ours is a complaint, too. ``options`` as in
    ``grade``."""
    try:
        return case.complaints(grade(case, engine, device, problems, **options))
    except EvaluatorError as error:
        return [f"{type(error).__name__}: {error}"]
