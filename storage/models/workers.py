"""The table of workers."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy.orm import Mapped, mapped_column

from storage.models.base import Base

__all__ = ["StoredWorker", "WorkerState"]


class WorkerState(StrEnum):
    """Whether a worker takes submissions.

    ``testing``: it tests itself first. ``unhealthy``: its device is not healthy at the moment. ``out``: its device was
    taken out of use, until a self-test passes. ``stopping``: it was asked to end.
    """

    TESTING = "testing"
    READY = "ready"
    UNHEALTHY = "unhealthy"
    OUT = "out"
    STOPPING = "stopping"

    @property
    def takes(self) -> bool:
        """Whether the worker takes waiting submissions, now or in a moment."""
        return self in (WorkerState.TESTING, WorkerState.READY)


class StoredWorker(Base):
    """A worker process, alive as long as its heartbeat is recent.

    ``busy_s``: the seconds for which it has had work so far. ``reason``: why it takes nothing, where that is so.
    ``unchecked``: the parts of its device's health that cannot be checked.
    """

    __tablename__ = "workers"

    id: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str]
    queues: Mapped[list[str]]
    device: Mapped[str | None]
    capabilities: Mapped[dict[str, Any]]
    started_at: Mapped[datetime]
    heartbeat_at: Mapped[datetime]
    current_submission: Mapped[str | None]
    busy_s: Mapped[float] = mapped_column(default=0.0, server_default="0")
    state: Mapped[str] = mapped_column(default=WorkerState.READY, server_default="ready")
    reason: Mapped[str] = mapped_column(default="", server_default="")
    unchecked: Mapped[list[str]] = mapped_column(default=list, server_default="[]")
