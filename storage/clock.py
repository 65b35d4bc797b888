"""The clock of leases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

__all__ = ["database_now", "is_recent"]


def database_now(session: Session) -> datetime:
    """Return the time of the PostgreSQL server's clock, which all machines share; on SQLite, of this machine's."""
    if session.get_bind().dialect.name != "postgresql":
        return datetime.now(UTC)
    now = session.scalar(select(func.clock_timestamp()))
    assert isinstance(now, datetime)
    return now.astimezone(UTC)


def is_recent(moment: Any, age: timedelta, now: datetime) -> ColumnElement[bool]:
    """Return the SQL condition that the column ``moment`` is at most ``age`` from ``now``.

    A moment that is far ahead is not recent: it was written before the clock was set back.
    """
    recent: ColumnElement[bool] = moment.between(now - age, now + age)
    return recent
