"""The route of the audit trail, for administrators."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from api.http.errors import problems
from api.records.encoding import to_text
from api.services.auth import ADMINISTERS
from api.services.container import ReadSession
from kerneljudge.records import AuditList, AuditRecord
from storage.access import audit

__all__ = ["router"]

router = APIRouter(prefix="/api/v1/audit", tags=["audit"])


@router.get("", dependencies=[ADMINISTERS], responses=problems(422))
def read_audit(
    session: ReadSession,
    cursor: Annotated[str | None, Query(max_length=100)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> AuditList:
    """List the audit trail.

    It has the keys that were made, changed and revoked, requests with the scope `admin`, and entries that were
    published, withdrawn and reinstated.
    """
    page = audit.page(session, cursor, limit)
    items = [
        AuditRecord(
            id=event.id, at=to_text(event.at), actor=event.actor, action=event.action, subject=event.subject,
            details=event.details,
        )
        for event in page.items
    ]  # fmt: skip
    return AuditList(items=items, next_cursor=page.next_cursor)
