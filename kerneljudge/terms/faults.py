"""The faults of an evaluator that a command tells apart by exit status. ``evaluator.errors`` has the others."""

from __future__ import annotations

__all__ = ["EvaluatorError", "ProblemError"]


class EvaluatorError(Exception):
    """Base of every fault that is not the candidate's."""

    retriable = False


class ProblemError(EvaluatorError):
    """A problem's files are missing, malformed or contradictory."""
