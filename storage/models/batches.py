"""Tables of batches and their webhooks."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from storage.columns import JsonText
from storage.models.base import Base

__all__ = ["Batch", "BatchError", "BatchItem", "BatchStatus", "Webhook"]


class BatchStatus(StrEnum):
    """The state of a batch. A ``cancelled`` batch may still have submissions that had begun before."""

    RECEIVING = "receiving"
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"


class Batch(Base):
    """Many submissions that were handed in together.

    ``items`` and ``errors`` count its lines received so far. ``last_place`` is the highest place in the order of
    completion that an item has got; it only grows. ``received_at``: the time of the last line. ``heard_at``: until
    then, the time when a part of it came in last. ``message``: why it was cancelled. ``owner`` and ``visibility``: as
    those of a submission.
    """

    __tablename__ = "batches"
    __table_args__ = (UniqueConstraint("idempotency_key"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str | None]
    idempotency_key: Mapped[str | None]
    content_digest: Mapped[str | None]
    items: Mapped[int] = mapped_column(default=0)
    errors: Mapped[int] = mapped_column(default=0)
    last_place: Mapped[int] = mapped_column(default=0)
    message: Mapped[str] = mapped_column(default="")
    owner: Mapped[str | None]
    visibility: Mapped[str] = mapped_column(default="public", server_default="public")
    created_at: Mapped[datetime]
    heard_at: Mapped[datetime]
    received_at: Mapped[datetime | None]
    cancelled_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None] = mapped_column(index=True)

    # Not a column: False where an idempotency key led to a batch that existed already.
    created = True

    @property
    def state(self) -> BatchStatus:
        """The state of the batch, by its columns."""
        if self.cancelled_at is not None:
            return BatchStatus.CANCELLED
        if self.finished_at is not None:
            return BatchStatus.DONE
        return BatchStatus.RECEIVING if self.received_at is None else BatchStatus.RUNNING


class BatchItem(Base):
    """One line of a batch, and its submission, which other lines may have as well (see ``shared``).

    ``user_metadata`` and ``parent`` are the line's own (see ``Submission``).

    ``place`` is its place in the batch's order of completion, ``None`` until its submission is over. ``cancelled``:
    the batch was cancelled while the submission went on for another batch.
    """

    __tablename__ = "batch_items"
    __table_args__ = (Index(None, "batch_id", "place"),)

    batch_id: Mapped[str] = mapped_column(ForeignKey("batches.id"), primary_key=True)
    line: Mapped[int] = mapped_column(primary_key=True)
    label: Mapped[str | None]
    user_metadata: Mapped[dict[str, Any] | None] = mapped_column(JsonText)
    parent: Mapped[str | None] = mapped_column(index=True)
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"), index=True)
    shared: Mapped[bool]
    cancelled: Mapped[bool]
    place: Mapped[int | None]
    finished_at: Mapped[datetime | None]


class BatchError(Base):
    """A line of a batch that is no submission."""

    __tablename__ = "batch_errors"

    batch_id: Mapped[str] = mapped_column(ForeignKey("batches.id"), primary_key=True)
    line: Mapped[int] = mapped_column(primary_key=True)
    message: Mapped[str]


class Webhook(Base):
    """A receiver of a batch's end. ``due_at``: the time of the next attempt; ``None`` before the end and afterwards."""

    __tablename__ = "webhooks"

    batch_id: Mapped[str] = mapped_column(ForeignKey("batches.id"), primary_key=True)
    url: Mapped[str]
    secret: Mapped[str]
    attempts: Mapped[int]
    due_at: Mapped[datetime | None] = mapped_column(index=True)
    delivered_at: Mapped[datetime | None]
    message: Mapped[str]
