"""The input of one evaluation or build: a problem, a candidate and the settings. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass

from evaluator.candidates.candidate import Candidate
from evaluator.config import EvalConfig
from evaluator.errors import ProblemError
from evaluator.problems.problem import Problem
from kerneljudge.terms.rules import Rules

__all__ = ["EvaluationTask"]


@dataclass(frozen=True)
class EvaluationTask:
    """One candidate to be judged on one problem, with the settings."""

    problem: Problem
    candidate: Candidate
    config: EvalConfig

    @property
    def rules(self) -> Rules:
        """The rules of the problem and of the caller. Raises ``ProblemError`` where no candidate could keep both."""
        try:
            return self.problem.rules.joined(self.config.rules)
        except ValueError as error:
            raise ProblemError(str(error)) from error
