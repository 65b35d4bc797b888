"""The layout of an evaluation in its table."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from evaluator.evaluation import Evaluation, certain_speedup
from evaluator.problems.vetting import without_figures
from storage.columns import json_safe
from storage.ids import new_id
from storage.models import StoredEvaluation

__all__ = ["figure_columns", "store_evaluation"]


def store_evaluation(
    evaluation: Evaluation, submission_id: str, now: datetime, withheld: str | None = None
) -> StoredEvaluation:
    """Return the row of ``evaluation``, which the caller adds to its session.

    ``withheld``: the reason why its figures are not shown.
    """
    record = json_safe(evaluation.to_dict())
    name = evaluation.environment.get("device_name")
    return StoredEvaluation(
        id=new_id("evl"),
        submission_id=submission_id,
        verdict=evaluation.verdict,
        gradients=evaluation.gradients,
        device=evaluation.device,
        device_name=None if name is None else str(name),
        created_at=now,
        samples=record.pop("samples"),
        log=record.pop("log"),
        record=record,
        **figure_columns(evaluation, withheld),
    )


def figure_columns(evaluation: Evaluation, withheld: str | None) -> dict[str, Any]:
    """Return the columns of the speedups in ``evaluation``; they are empty where ``withheld`` applies."""
    withheld = withheld if evaluation.passed else None
    shown = evaluation if withheld is None else without_figures(evaluation, withheld)
    names = ("speedup", "speedup_status", "speedup_training", "speedup_training_status")
    return {
        "withheld": withheld,
        **{name: getattr(shown, name) for name in names},
        "certain_speedup": certain_speedup(shown.speedup, shown.speedup_interval),
        "certain_speedup_training": certain_speedup(shown.speedup_training, shown.speedup_training_interval),
    }
