"""How an evaluation is laid out in its table."""

from __future__ import annotations

from datetime import datetime

from evaluator.evaluation import Evaluation
from storage.columns import json_safe
from storage.ids import new_id
from storage.models import StoredEvaluation

__all__ = ["store_evaluation"]


def store_evaluation(evaluation: Evaluation, submission_id: str, now: datetime) -> StoredEvaluation:
    """The row for ``evaluation``; the caller adds it to its session."""
    record = json_safe(evaluation.to_dict())
    name = evaluation.environment.get("device_name")
    return StoredEvaluation(
        id=new_id("evl"),
        submission_id=submission_id,
        verdict=evaluation.verdict,
        gradients=evaluation.gradients,
        device=evaluation.device,
        device_name=None if name is None else str(name),
        speedup=evaluation.speedup,
        speedup_status=evaluation.speedup_status,
        speedup_training=evaluation.speedup_training,
        speedup_training_status=evaluation.speedup_training_status,
        created_at=now,
        samples=record.pop("samples"),
        log=record.pop("log"),
        record=record,
    )
