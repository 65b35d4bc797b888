"""The clock of leases."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

__all__ = ["database_now"]


def database_now(session: Session) -> datetime:
    """Return the time of the PostgreSQL server's clock, which all machines share; on SQLite, of this machine's."""
    if session.get_bind().dialect.name != "postgresql":
        return datetime.now(UTC)
    now = session.scalar(select(func.clock_timestamp()))
    assert isinstance(now, datetime)
    return now.astimezone(UTC)
