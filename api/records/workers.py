"""Conversion of workers to records, as their viewer may see them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy.orm import Session

from api.records.encoding import to_text
from kerneljudge.records import WorkerRecord
from storage.access.visibility import Viewer
from storage.queue.activity import shown_to
from storage.queue.workers import Worker

__all__ = ["worker_records"]


def worker_records(session: Session, workers: Sequence[Worker], viewer: Viewer) -> list[WorkerRecord]:
    """Return the records of ``workers`` by their last heartbeat."""
    at_work = [worker.current_submission for worker in workers if worker.current_submission is not None]
    shown = shown_to(session, viewer, at_work)
    return [_worker_record(worker, shown) for worker in workers]


def _worker_record(worker: Worker, shown: Collection[str]) -> WorkerRecord:
    return WorkerRecord(
        id=worker.id,
        kind=worker.kind,
        alive=worker.alive,
        queues=list(worker.queues),
        device=worker.device,
        capabilities=dict(worker.capabilities),
        current_submission=worker.current_submission if worker.current_submission in shown else None,
        state=worker.state,
        reason=worker.reason,
        unchecked=list(worker.unchecked),
        started=to_text(worker.started_at),
        heartbeat=to_text(worker.heartbeat_at),
    )
