"""How much a key, or an address without one, has asked for: requests by the minute, submissions by the day (UTC).

One row for each of them and each minute or day, counted up. Submissions are counted in the transaction that stores
them, so that a quota is exact; requests are gathered first (see ``api.services.rate_limit``). Nothing here commits.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final, Literal

from sqlalchemy import delete
from sqlalchemy.orm import Session

from storage.clock import database_now
from storage.models import Usage
from storage.upsert import insert_into

__all__ = ["QuotaSpent", "add_requests", "charge_submissions", "forget_old", "refund_submissions"]

Kind = Literal["requests", "submissions"]

_DAY: Final = timedelta(days=1)
_REQUESTS_KEPT: Final = timedelta(hours=1)
_SUBMISSIONS_KEPT: Final = timedelta(days=35)


class QuotaSpent(RuntimeError):
    """All submissions of the day were handed in. ``retry_after_s``: until the next day."""

    def __init__(self, limit: int, retry_after_s: int) -> None:
        super().__init__(f"the quota of this key is {limit} submissions a day, and it is spent")
        self.limit = limit
        self.retry_after_s = retry_after_s


def charge_submissions(session: Session, subject: str, count: int, limit: int) -> datetime:
    """Count ``count`` submissions; returns the day. Raises ``QuotaSpent`` where that is more than ``limit``; whoever
    asks then takes back what it is for."""
    now = database_now(session)
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if count and _add(session, "submissions", subject, day, count) > limit:
        raise QuotaSpent(limit, max(1, int((day + _DAY - now).total_seconds())))
    return day


def refund_submissions(session: Session, subject: str, day: datetime, count: int) -> None:
    """Of what was counted on ``day``, ``count`` are not graded after all."""
    if count:
        _add(session, "submissions", subject, day, -count)


def add_requests(session: Session, minute: datetime, counts: Mapping[str, int]) -> dict[str, int]:
    """Count requests of one minute; returns what all processes together have counted, by subject."""
    # In the same order for everybody, as all locks.
    return {subject: _add(session, "requests", subject, minute, count) for subject, count in sorted(counts.items())}


def forget_old(session: Session) -> None:
    """Delete the counts of times that no limit is about any more."""
    now = database_now(session)
    kinds: dict[Kind, timedelta] = {"requests": _REQUESTS_KEPT, "submissions": _SUBMISSIONS_KEPT}
    for kind, kept in kinds.items():
        session.execute(delete(Usage).where(Usage.kind == kind, Usage.began_at < now - kept))


def _add(session: Session, kind: Kind, subject: str, began_at: datetime, count: int) -> int:
    first = insert_into(session, Usage).values(kind=kind, subject=subject, began_at=began_at, count=count)
    counted = first.on_conflict_do_update(
        index_elements=["kind", "subject", "began_at"], set_={"count": Usage.count + first.excluded["count"]}
    )
    return int(session.execute(counted.returning(Usage.count)).scalar_one())
