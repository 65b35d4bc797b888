"""Counts and glances that only the API needs; everything else it asks of ``storage``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from evaluator.diagnosis.findings import Tool
from evaluator.evaluation import Status
from storage.models import Batch, DiagnosisStatus, StoredDiagnosis, StoredEvaluation, Submission
from storage.workers import list_workers

__all__ = [
    "BatchGlance",
    "Glance",
    "batch_glances",
    "count_by_outcome",
    "glances",
    "pending_diagnoses",
    "ping",
    "queue_depths",
    "served_queues",
]

_IDS_PER_QUERY = 500


@dataclass(frozen=True)
class Glance:
    """How far a submission is: what a waiting client wants to hear of as soon as it changes."""

    status: str
    stage: str
    progress_stage: str | None
    progress_message: str | None
    progress_share: float | None
    attempts: int

    @property
    def final(self) -> bool:
        """Whether there is nothing more to wait for."""
        return Status(self.status).final


def glances(session: Session, submission_ids: Collection[str]) -> Mapping[str, Glance]:
    """How far each of these submissions is, by id; unknown ids are left out."""
    found: dict[str, Glance] = {}
    columns = [Submission.id, *(getattr(Submission, name) for name in Glance.__dataclass_fields__)]
    wanted = list(submission_ids)
    for start in range(0, len(wanted), _IDS_PER_QUERY):
        ids = wanted[start : start + _IDS_PER_QUERY]
        for submission_id, *values in session.execute(select(*columns).where(Submission.id.in_(ids))):
            found[submission_id] = Glance(*values)
    return found


@dataclass(frozen=True)
class BatchGlance:
    """How far a batch is, as far as one row tells."""

    items: int
    errors: int
    last_place: int
    received: bool
    cancelled: bool
    final: bool


def batch_glances(session: Session, batch_ids: Collection[str]) -> Mapping[str, BatchGlance]:
    """How far each of these batches is, by id; unknown ids are left out."""
    found: dict[str, BatchGlance] = {}
    wanted = list(batch_ids)
    for start in range(0, len(wanted), _IDS_PER_QUERY):
        for batch in session.scalars(select(Batch).where(Batch.id.in_(wanted[start : start + _IDS_PER_QUERY]))):
            found[batch.id] = BatchGlance(
                items=batch.items,
                errors=batch.errors,
                last_place=batch.last_place,
                received=batch.received_at is not None,
                cancelled=batch.cancelled_at is not None,
                final=batch.finished_at is not None,
            )
    return found


def count_by_outcome(session: Session) -> dict[tuple[str, str], int]:
    """How many submissions there are by status and verdict (``""`` where there is none yet)."""
    query = (
        select(Submission.status, func.coalesce(StoredEvaluation.verdict, ""), func.count())
        .join(StoredEvaluation, StoredEvaluation.submission_id == Submission.id, isouter=True)
        .group_by(Submission.status, StoredEvaluation.verdict)
    )
    return {(status, verdict): count for status, verdict, count in session.execute(query)}


def queue_depths(session: Session) -> dict[tuple[str, str], int]:
    """How many submissions wait, by stage and kind of device."""
    query = (
        select(Submission.stage, Submission.device, func.count())
        .where(Submission.status == Status.QUEUED)
        .group_by(Submission.stage, Submission.device)
    )
    return {(stage, device): count for stage, device, count in session.execute(query)}


def pending_diagnoses(session: Session) -> dict[Tool, int]:
    """How many diagnoses wait, by tool."""
    query = (
        select(StoredDiagnosis.tool, func.count())
        .where(StoredDiagnosis.status == DiagnosisStatus.PENDING)
        .group_by(StoredDiagnosis.tool)
    )
    return {Tool(tool): count for tool, count in session.execute(query)}


def served_queues(session: Session) -> frozenset[str]:
    """The queues that a living worker takes from."""
    return frozenset(queue for worker in list_workers(session) if worker.alive for queue in worker.queues)


def ping(session: Session) -> None:
    """Raises what the driver raises if the database does not answer."""
    session.execute(text("SELECT 1"))
