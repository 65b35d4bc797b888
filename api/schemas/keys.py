"""The bodies of requests and answers about keys and the audit trail."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["AuditList", "AuditRecord", "KeyChange", "KeyList", "KeyRecord", "KeyRequest", "NewKeyRecord"]

ScopeName = Literal["read", "submit", "admin"]

_MOST = 2**31 - 1


class KeyChange(BaseModel):
    """The limits of a key.

    A limit that you leave out stays. Null means the service's own limit, and 0 means no limit.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    requests_per_min: int | None = Field(default=None, ge=0, le=_MOST)
    submissions_per_day: int | None = Field(default=None, ge=0, le=_MOST)


class KeyRequest(KeyChange):
    """A new key for a client."""

    client: str = Field(
        min_length=1, max_length=200, description="The client's name; submissions with this key belong to it."
    )
    scopes: list[ScopeName] = Field(
        min_length=1,
        max_length=3,
        description="`read`, `submit` (includes `read`), `admin` (includes both, and everybody's private things).",
    )
    expires_in_days: int | None = Field(default=None, ge=1, le=36500, description="Left out: never.")


class KeyRecord(BaseModel):
    """A key, without its text."""

    id: str
    prefix: str = Field(description="How its text begins.")
    client: str
    scopes: list[ScopeName]
    created: datetime
    created_by: str
    expires: datetime | None
    revoked: datetime | None
    last_used: datetime | None = Field(description="To a minute or two.")
    requests_per_min: int | None
    submissions_per_day: int | None


class NewKeyRecord(KeyRecord):
    """A key that was made just now."""

    key: str = Field(description="Its text. It is shown this once.")


class KeyList(BaseModel):
    """All keys, the newest first."""

    items: list[KeyRecord]


class AuditRecord(BaseModel):
    """An entry of the audit trail: one action of a client or of the operator."""

    id: str
    at: datetime
    actor: str | None = Field(description="A client, `operator` on the server itself, or null where no key is needed.")
    action: str
    subject: str
    details: dict[str, Any]


class AuditList(BaseModel):
    """The audit trail, the latest entry first."""

    items: list[AuditRecord]
    next_cursor: str | None = Field(description="Pass as `cursor` for the next page; null on the last one.")
