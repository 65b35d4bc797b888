"""Conversion of problems to records."""

from __future__ import annotations

from typing import cast

from evaluator.problems.problem import Problem
from kerneljudge.records import ProblemRecord, ProblemSummary

__all__ = ["problem_record", "problem_summary"]


def problem_summary(problem: Problem) -> ProblemSummary:
    """Return the record of ``problem`` without its source."""
    return cast(ProblemSummary, problem.to_record())


def problem_record(problem: Problem) -> ProblemRecord:
    """Return the record of ``problem`` with its source."""
    return cast(ProblemRecord, {**problem.to_record(), "reference": problem.source})
