"""The audit trail: actions of interest to administrators, written in the action's transaction and never changed.

Actions: ``key.created``, ``key.revoked``, ``key.limited``, ``admin.request`` (a key was used for a request that only
administrators may make), ``submission.published``, ``submission.withdrawn``, ``submission.reinstated``,
``problem.created``, ``problem.updated``, ``problem.published``, ``problem.withdrawn``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from storage.clock import database_now
from storage.ids import new_id
from storage.models import AuditEvent

__all__ = ["OPERATOR", "VERIFICATION", "AuditPage", "page", "record"]

OPERATOR: Final = "operator"
"""The actor of actions on the server itself."""
VERIFICATION: Final = "verification"
"""The actor of withdrawals by the service, where a re-evaluation does not confirm a record."""


@dataclass(frozen=True)
class AuditPage:
    """Events, the latest first; ``next_cursor`` is ``None`` on the last page."""

    items: Sequence[AuditEvent]
    next_cursor: str | None


def record(session: Session, action: str, *, by: str | None, subject: str, **details: Any) -> None:
    """Add an event; ``by`` is a client, ``operator``, ``verification``, or ``None`` for a request without a key."""
    event = AuditEvent(
        id=new_id("aud"), at=database_now(session), actor=by, action=action, subject=subject, details=details
    )
    session.add(event)
    session.flush()


def page(session: Session, cursor: str | None = None, limit: int = 50) -> AuditPage:
    """Return up to ``limit`` events older than the event ``cursor``, the latest first."""
    query = select(AuditEvent).order_by(AuditEvent.id.desc()).limit(limit + 1)
    if cursor is not None:
        query = query.where(AuditEvent.id < cursor)
    rows = session.scalars(query).all()
    return AuditPage(items=rows[:limit], next_cursor=rows[limit - 1].id if len(rows) > limit else None)
