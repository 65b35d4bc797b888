"""The input of one evaluation or build: a problem, a candidate and the settings. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass

from evaluator.candidates.candidate import Candidate
from evaluator.config import EvalConfig
from evaluator.problems.problem import Problem

__all__ = ["EvaluationTask"]


@dataclass(frozen=True)
class EvaluationTask:
    """One candidate to be judged on one problem, with the settings."""

    problem: Problem
    candidate: Candidate
    config: EvalConfig
