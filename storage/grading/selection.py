"""The choice of the submissions that a worker claims: which wait, which are next, and which are left to others.

Nothing here writes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Final, TypeVarTuple

from sqlalchemy import Select, and_, func, select
from sqlalchemy.orm import Session

from evaluator.evaluation import Status
from storage.clock import database_now
from storage.models import Attempt, Stage, Submission
from storage.queue.activity import FAULTS
from storage.queue.backoff import is_due
from storage.queue.eligibility import NO_REQUIREMENTS, DeviceCapabilities, eligible_workers, runs_on
from storage.queue.fair_order import QUEUE_ORDER, GradingKey, near
from storage.queue.workers import Worker

__all__ = ["first_of", "is_left_to_others", "next_submissions", "share_of", "takeable"]

_Columns = TypeVarTuple("_Columns")

_TRIED: Final = 20
"""The number of next submissions that a worker tries to claim, where others are faster or it leaves some to others."""


def takeable(stage: Stage, device: str, device_capabilities: DeviceCapabilities | None, now: datetime) -> Any:
    """Return the SQL condition that a submission can be claimed for ``stage`` on ``device_capabilities`` now."""
    return and_(
        Submission.status == Status.QUEUED,
        Submission.stage == stage,
        Submission.device == device,
        is_due(Submission, now),
        runs_on(device_capabilities),
    )


def first_of(waiting: Select[*_Columns], count: int) -> Select[*_Columns]:
    """Return the query for the first ``count`` in the order of the queue."""
    return waiting.order_by(*QUEUE_ORDER).limit(count)


def next_submissions(
    session: Session,
    stage: Stage,
    devices: Collection[str],
    device_capabilities: DeviceCapabilities | None,
    affinity: GradingKey | None,
) -> list[str]:
    """Return the first few submissions that wait for ``stage`` and can run on ``device_capabilities``.

    Those in backoff are left out. Ahead of the others is the first one of ``affinity``, if its rank is near.
    """
    now = database_now(session)
    rows: list[tuple[int, str]] = []
    preferred: list[tuple[int, str]] = []
    for device in devices:
        # One kind of device at a time, because the index has each kind in order.
        waiting = select(Submission.queue_rank, Submission.id).where(takeable(stage, device, device_capabilities, now))
        found = [(queue_rank, row_id) for queue_rank, row_id in session.execute(first_of(waiting, _TRIED))]
        if affinity is not None and found and found[0][0] > 0:  # none goes ahead of a single submission
            near_ones = waiting.where(near(found[0][0]), affinity.matches())
            preferred.extend((queue_rank, row_id) for queue_rank, row_id in session.execute(first_of(near_ones, 1)))
        rows.extend(found)
    return [submission_id for _, submission_id in (*preferred, *sorted(rows)[:_TRIED])]


def share_of(session: Session, row: Submission, waiting: Any, most: int) -> int:
    """Return how many submissions, up to ``most``, the worker that has claimed ``row`` may have at once.

    They come out of ``row`` and those ``waiting``, and each other worker that could take ``row`` gets as many.
    """
    others = [worker for worker in eligible_workers(session, "evaluate", row) if worker.id != row.claim_worker]
    if not others:
        return most
    workers = 1 + len(others)
    enough = select(Submission.id).where(waiting).limit(most * workers).subquery()
    there = 1 + (session.scalar(select(func.count()).select_from(enough)) or 0)
    return min(most, math.ceil(there / workers))


def is_left_to_others(
    session: Session, waiting: Any, stage: Stage, worker: str, device_capabilities: DeviceCapabilities | None
) -> bool:
    """Whether ``worker`` leaves the submission that meets ``waiting`` to others; see ``Claims.claim``."""
    needs = [getattr(Submission, name) for name in NO_REQUIREMENTS.columns]
    known = (Submission.id, Submission.faults, Submission.device, Submission.precision, Submission.verifies)
    row = session.execute(select(*known, *needs).where(waiting)).one_or_none()
    if row is None:
        return False
    unfit = _unfit(session, row)
    if worker not in unfit and row.verifies is None:
        return False
    others = [other for other in eligible_workers(session, stage, row) if other.id not in {*unfit, worker}]
    return bool(others) and (worker in unfit or _was_measured_here(session, row, stage, device_capabilities, others))


def _unfit(session: Session, row: Any) -> set[str]:
    """Return the workers that have had a fault with the submission."""
    if row.faults == 0:
        return set()
    # Counted from the end: faults before a retry was requested do not count.
    failed = select(Attempt.worker, Attempt.outcome).where(Attempt.submission_id == row.id, Attempt.outcome.in_(FAULTS))
    latest = session.execute(failed.order_by(Attempt.id.desc()).limit(row.faults))
    return {attempt.worker for attempt in latest if attempt.outcome == "fault"}


def _was_measured_here(
    session: Session, row: Any, stage: Stage, device_capabilities: DeviceCapabilities | None, others: Sequence[Worker]
) -> bool:
    """Whether this device has measured the record to be verified, and one of ``others`` has another device."""
    if row.verifies is None or stage != "evaluate" or device_capabilities is None:
        return False
    devices = select(Attempt.device).where(
        Attempt.submission_id == row.verifies, Attempt.stage == "evaluate", Attempt.outcome == "done"
    )
    measured_on = session.scalars(devices.order_by(Attempt.id.desc()).limit(1)).first()
    elsewhere = any(
        DeviceCapabilities.of(other.capabilities).device_id != device_capabilities.device_id for other in others
    )
    return measured_on == device_capabilities.device_id and elsewhere
