"""Keys and the audit trail, for administrators."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from kerneljudge.records.types import ScopeName, Timestamp

__all__ = ["AuditList", "AuditRecord", "KeyList", "KeyRecord", "NewKeyRecord"]


class KeyRecord(TypedDict):
    """A key, without its text."""

    id: str
    prefix: str
    """How its text begins."""
    client: str
    scopes: list[ScopeName]
    own_only: bool
    """Whether it sees the submissions and batches of its client alone."""
    created: Timestamp
    created_by: str
    expires: Timestamp | None
    revoked: Timestamp | None
    last_used: Timestamp | None
    """To a minute or two."""
    requests_per_min: int | None
    submissions_per_day: int | None


class NewKeyRecord(KeyRecord):
    """A key that was made just now."""

    key: str
    """Its text. It is shown this once."""


class KeyList(TypedDict):
    """All keys, the newest first."""

    items: list[KeyRecord]


class AuditRecord(TypedDict):
    """An entry of the audit trail: one action of a client or of the operator."""

    id: str
    at: Timestamp
    actor: str | None
    """A client, `operator` on the server itself, or null where no key is needed."""
    action: str
    subject: str
    details: dict[str, Any]


class AuditList(TypedDict):
    """The audit trail, the latest entry first."""

    items: list[AuditRecord]
    next_cursor: str | None
    """Pass as `cursor` for the next page; null on the last one."""
