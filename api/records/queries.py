"""Counts and status snapshots that only the API needs. All other queries are in ``storage``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import product
from typing import get_args

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from evaluator.config import DEVICE_KINDS
from evaluator.evaluation import Status
from kerneljudge.terms.findings import Tool
from storage.clock import database_now
from storage.metrics.counters import read_counts
from storage.metrics.metrics import ENDED
from storage.models import Batch, DiagnosisStatus, Stage, StoredDiagnosis, Submission, VerdictCount, Webhook
from storage.queue.celery_app import diagnosis_queue, queue_name
from storage.queue.workers import list_workers

__all__ = [
    "BatchSnapshot",
    "StatusSnapshot",
    "Waiting",
    "batch_snapshots",
    "batches_under_way",
    "count_by_outcome",
    "count_verdicts",
    "due_webhooks",
    "pending_diagnoses",
    "queue_depths",
    "served_queues",
    "status_snapshots",
    "unserved",
    "waiting_submissions",
]

_IDS_PER_QUERY = 500
_VIA = {"single": Submission.queue_rank == 0, "batch": Submission.queue_rank > 0}
"""Conditions for the two ways to hand in a submission: alone or in a batch."""


@dataclass(frozen=True)
class StatusSnapshot:
    """The progress of a submission. A waiting client is notified when any of these fields changes."""

    status: str
    stage: str
    progress_stage: str | None
    progress_message: str | None
    progress_share: float | None
    attempts: int

    @property
    def final(self) -> bool:
        """Whether the submission is over, so that no further change is expected."""
        return Status(self.status).final


def status_snapshots(session: Session, submission_ids: Collection[str]) -> Mapping[str, StatusSnapshot]:
    """Return the progress of each of these submissions, by id; unknown ids are left out."""
    found: dict[str, StatusSnapshot] = {}
    columns = [Submission.id, *(getattr(Submission, name) for name in StatusSnapshot.__dataclass_fields__)]
    wanted = list(submission_ids)
    for start in range(0, len(wanted), _IDS_PER_QUERY):
        ids = wanted[start : start + _IDS_PER_QUERY]
        for submission_id, *values in session.execute(select(*columns).where(Submission.id.in_(ids))):
            found[submission_id] = StatusSnapshot(*values)
    return found


@dataclass(frozen=True)
class BatchSnapshot:
    """The progress of a batch, as far as its own row tells it."""

    items: int
    errors: int
    last_place: int
    received: bool
    cancelled: bool
    final: bool


def batch_snapshots(session: Session, batch_ids: Collection[str]) -> Mapping[str, BatchSnapshot]:
    """Return the progress of each of these batches, by id; unknown ids are left out."""
    found: dict[str, BatchSnapshot] = {}
    wanted = list(batch_ids)
    for start in range(0, len(wanted), _IDS_PER_QUERY):
        for batch in session.scalars(select(Batch).where(Batch.id.in_(wanted[start : start + _IDS_PER_QUERY]))):
            found[batch.id] = BatchSnapshot(
                items=batch.items,
                errors=batch.errors,
                last_place=batch.last_place,
                received=batch.received_at is not None,
                cancelled=batch.cancelled_at is not None,
                final=batch.finished_at is not None,
            )
    return found


def count_by_outcome(session: Session) -> dict[tuple[str, str], int]:
    """Return the number of submissions by status and verdict (``""`` where there is none yet).

    Finished submissions are read from kept counts; only the others are counted.
    """
    counts: dict[tuple[str, str], int] = {(status, ""): 0 for status in Status if status is not Status.DONE}
    under_way = [status for status in Status if not status.final]
    live = select(Submission.status, func.count()).where(Submission.status.in_(under_way)).group_by(Submission.status)
    for status, number in session.execute(live):
        counts[status, ""] = number
    for (_, verdict), number in count_verdicts(session).items():
        counts[Status.DONE, verdict] = counts.get((Status.DONE, verdict), 0) + number
    for (status,), number in read_counts(session, [ENDED])[ENDED].items():
        counts[status, ""] = number
    return counts


def count_verdicts(session: Session) -> dict[tuple[str, ...], int]:
    """Return the number of evaluations by kind of device and verdict. Private ones are not counted."""
    query = select(VerdictCount.device, VerdictCount.verdict, func.sum(VerdictCount.count))
    rows = session.execute(query.group_by(VerdictCount.device, VerdictCount.verdict))
    return {(device, verdict): int(number) for device, verdict, number in rows}


def queue_depths(session: Session) -> dict[tuple[str, str], int]:
    """Return the number of waiting submissions, by stage and kind of device."""
    query = (
        select(Submission.stage, Submission.device, func.count())
        .where(Submission.status == Status.QUEUED)
        .group_by(Submission.stage, Submission.device)
    )
    return {(stage, device): count for stage, device, count in session.execute(query)}


def pending_diagnoses(session: Session) -> dict[Tool, int]:
    """Return the number of waiting diagnoses, by tool."""
    query = (
        select(StoredDiagnosis.tool, func.count())
        .where(StoredDiagnosis.status == DiagnosisStatus.PENDING)
        .group_by(StoredDiagnosis.tool)
    )
    return {Tool(tool): count for tool, count in session.execute(query)}


@dataclass(frozen=True)
class Waiting:
    """The submissions that wait in one queue: their number, and the wait of the oldest in seconds."""

    count: int
    oldest_s: float


def waiting_submissions(session: Session) -> dict[tuple[str, str], Waiting]:
    """Return the waiting submissions by queue and by ``single`` or ``batch``, with the wait of the oldest.

    The oldest submission has the least id, because ids sort by time. Each part is queried separately: it is a range of
    one index, which is read without sorting and without access to rows.
    """
    now = database_now(session)
    found: dict[tuple[str, str], Waiting] = {}
    for stage, device, (via, condition) in product(get_args(Stage), DEVICE_KINDS, _VIA.items()):
        part = (Submission.status == Status.QUEUED, Submission.stage == stage, Submission.device == device, condition)
        number, oldest = session.execute(select(func.count(), func.min(Submission.id)).where(*part)).one()
        if number:
            submitted_at = session.scalars(select(Submission.submitted_at).where(Submission.id == oldest)).one()
            key = (queue_name(stage, device), via)
            earlier = found.get(key, Waiting(0, 0.0))
            age_s = (now - submitted_at).total_seconds()
            found[key] = Waiting(earlier.count + number, max(earlier.oldest_s, age_s))
    return found


def batches_under_way(session: Session) -> dict[str, int]:
    """Return the number of batches that come in (``receiving``), and of those in grading (``running``)."""
    status = case((Batch.received_at.is_(None), "receiving"), else_="running")
    open_still = select(status, func.count()).where(Batch.finished_at.is_(None), Batch.cancelled_at.is_(None))
    return {row[0]: row[1] for row in session.execute(open_still.group_by(status))}


def due_webhooks(session: Session) -> int:
    """Return the number of webhooks that are still to be sent."""
    return session.scalar(select(func.count()).select_from(Webhook).where(Webhook.due_at.is_not(None))) or 0


def unserved(session: Session) -> list[str]:
    """Return the queues in which something waits while no living worker takes from them."""
    served = served_queues(session)
    waiting = {queue_name(stage, device) for stage, device in queue_depths(session)}  # type: ignore[arg-type]
    waiting |= {diagnosis_queue(tool) for tool in pending_diagnoses(session)}
    return sorted(waiting - served)


def served_queues(session: Session) -> frozenset[str]:
    """Return the queues that a living worker takes from."""
    return frozenset(queue for worker in list_workers(session) if worker.alive for queue in worker.queues)
