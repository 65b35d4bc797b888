"""Tables of API keys, sign-ins, usage and the audit trail."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, false
from sqlalchemy.orm import Mapped, mapped_column

from storage.models.base import Base

__all__ = ["ApiKey", "AuditEvent", "SignIn", "Usage"]


class ApiKey(Base):
    """A key of the API without its text: ``digest`` is its SHA-256, and ``prefix`` its first characters.

    ``client`` names its holder. ``own_only``: it sees the submissions and batches of its client alone. A limit of
    ``None`` is that of the settings, and 0 is no limit. ``last_used_at`` is some minutes old at most.
    """

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(index=True, unique=True)
    prefix: Mapped[str]
    client: Mapped[str]
    scopes: Mapped[list[str]]
    own_only: Mapped[bool] = mapped_column(default=False, server_default=false())
    created_at: Mapped[datetime]
    created_by: Mapped[str]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    requests_per_min: Mapped[int | None]
    submissions_per_day: Mapped[int | None]


class SignIn(Base):
    """A browser that stands for a key until ``expires_at``; ``digest`` is the SHA-256 of its cookie."""

    __tablename__ = "sign_ins"

    digest: Mapped[str] = mapped_column(primary_key=True)
    key_id: Mapped[str] = mapped_column(ForeignKey("api_keys.id"), index=True)
    expires_at: Mapped[datetime]


class Usage(Base):
    """The number of requests or submissions (``kind``) of one ``subject`` in the period from ``began_at`` on."""

    __tablename__ = "usage"

    kind: Mapped[str] = mapped_column(primary_key=True)
    began_at: Mapped[datetime] = mapped_column(primary_key=True)
    subject: Mapped[str] = mapped_column(primary_key=True)
    count: Mapped[int]


class AuditEvent(Base):
    """An action of ``actor`` on ``subject``. ``actor`` is ``None`` for requests without a key."""

    __tablename__ = "audit_events"

    id: Mapped[str] = mapped_column(primary_key=True)
    at: Mapped[datetime]
    actor: Mapped[str | None]
    action: Mapped[str]
    subject: Mapped[str]
    details: Mapped[dict[str, Any]]
