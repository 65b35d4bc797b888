"""The page of workers, of the queue and of recent faults."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, Final

from fastapi import APIRouter, Request, Response

from api.pages.rendering import render
from api.records.queries import pending_diagnoses, queue_depths
from api.records.workers import worker_records
from api.services.auth import READS, ViewerDep
from api.services.container import ReadSession
from storage.models import Attempt
from storage.queue.activity import FAULTS, latest_attempts, shown_to
from storage.queue.workers import list_workers

__all__ = ["router"]

router = APIRouter()

_ATTEMPTS: Final = 500
_FAULTS_SHOWN: Final = 20
_MINUTE_S: Final = 60.0


@router.get("/workers", dependencies=[READS])
def workers_page(request: Request, session: ReadSession, viewer: ViewerDep) -> Response:
    """Show workers with their devices and rates, the queue, and the latest faults of ours."""
    attempts = latest_attempts(session, _ATTEMPTS)
    faults = [attempt for attempt in attempts if attempt.outcome in FAULTS]
    shown = shown_to(session, viewer, [attempt.submission_id for attempt in faults])
    return render(
        request,
        "workers.html",
        workers=worker_records(session, list_workers(session), viewer),
        work={worker: _work(attempts, worker) for worker in {attempt.worker for attempt in attempts}},
        queues=queue_depths(session),
        diagnoses=pending_diagnoses(session),
        faults=[attempt for attempt in faults if attempt.submission_id in shown][:_FAULTS_SHOWN],
        attempts=len(attempts),
    )


def _work(attempts: Sequence[Attempt], worker: str) -> dict[str, Any]:
    """Return the figures of a worker's ``attempts``: attempts a minute over their whole span, and median duration."""
    own = [attempt for attempt in attempts if attempt.worker == worker]
    ended = [attempt for attempt in own if attempt.ended_at is not None]
    seconds = [(attempt.ended_at - attempt.started_at).total_seconds() for attempt in ended if attempt.ended_at]
    span_s = 0.0
    if ended:
        last = max(attempt.ended_at for attempt in ended if attempt.ended_at)
        span_s = (last - min(attempt.started_at for attempt in ended)).total_seconds()
    return {
        "attempts": len(own),
        "faults": sum(attempt.outcome in FAULTS for attempt in own),
        "median_s": statistics.median(seconds) if seconds else None,
        "per_minute": _MINUTE_S * len(ended) / span_s if span_s > 0 else None,
    }
