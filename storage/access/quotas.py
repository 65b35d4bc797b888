"""The usage of each key, and of each address without one: requests by minute, submissions and problems by day (UTC).

Each subject has one row for each minute or day, which is counted up. Submissions are counted in the transaction that
stores them, so that a quota is exact. Requests are gathered first (see ``api.services.rate_limit``). Nothing here
commits.
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

__all__ = ["QuotaSpent", "add_requests", "charge_problem", "charge_submissions", "delete_expired", "refund_submissions"]

Kind = Literal["requests", "submissions", "problems"]

_DAY: Final = timedelta(days=1)
_REQUESTS_KEPT: Final = timedelta(hours=1)
_DAYS_KEPT: Final = timedelta(days=35)


class QuotaSpent(RuntimeError):
    """The day's quota of submissions or problems is spent. ``retry_after_s``: the seconds until the next day."""

    def __init__(self, limit: int, retry_after_s: int, kind: str = "submissions") -> None:
        super().__init__(f"the quota of this key is {limit} {kind} a day, and it is spent")
        self.limit = limit
        self.retry_after_s = retry_after_s


def charge_submissions(session: Session, subject: str, count: int, limit: int) -> datetime:
    """Count ``count`` submissions; return the day.

    Raises ``QuotaSpent`` where the day's count exceeds ``limit``; the caller then rolls its transaction back.
    """
    return _charge(session, "submissions", subject, count, limit)


def charge_problem(session: Session, subject: str, limit: int) -> None:
    """Count a new problem, or a new version of one. Raises ``QuotaSpent`` as ``charge_submissions`` does."""
    _charge(session, "problems", subject, 1, limit)


def refund_submissions(session: Session, subject: str, day: datetime, count: int) -> None:
    """Take ``count`` submissions off the count of ``day``, because they are not graded after all."""
    if count:
        _add(session, "submissions", subject, day, -count)


def add_requests(session: Session, minute: datetime, counts: Mapping[str, int]) -> dict[str, int]:
    """Count requests of one minute; return the totals over all processes, by subject."""
    # In one order everywhere, as all locks.
    return {subject: _add(session, "requests", subject, minute, count) for subject, count in sorted(counts.items())}


def delete_expired(session: Session) -> None:
    """Delete the counts of periods that no limit refers to any more."""
    now = database_now(session)
    kinds: dict[Kind, timedelta] = {"requests": _REQUESTS_KEPT, "submissions": _DAYS_KEPT, "problems": _DAYS_KEPT}
    for kind, kept in kinds.items():
        session.execute(delete(Usage).where(Usage.kind == kind, Usage.began_at < now - kept))


def _charge(session: Session, kind: Kind, subject: str, count: int, limit: int) -> datetime:
    now = database_now(session)
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if count and _add(session, kind, subject, day, count) > limit:
        raise QuotaSpent(limit, max(1, int((day + _DAY - now).total_seconds())), kind)
    return day


def _add(session: Session, kind: Kind, subject: str, began_at: datetime, count: int) -> int:
    first = insert_into(session, Usage).values(kind=kind, subject=subject, began_at=began_at, count=count)
    counted = first.on_conflict_do_update(
        index_elements=["kind", "subject", "began_at"], set_={"count": Usage.count + first.excluded["count"]}
    )
    return int(session.execute(counted.returning(Usage.count)).scalar_one())
