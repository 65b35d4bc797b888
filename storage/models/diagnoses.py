"""The table of diagnoses."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from storage.models.base import Base
from storage.models.leases import Leased

__all__ = ["DiagnosisStatus", "StoredDiagnosis"]


class DiagnosisStatus(StrEnum):
    """The state of a diagnosis. ``failed`` means a fault of ours; a tool without a finding leads to ``done``."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"

    @property
    def final(self) -> bool:
        return self in (DiagnosisStatus.DONE, DiagnosisStatus.FAILED)


class StoredDiagnosis(Leased, Base):
    """The findings of one tool in the candidate of one submission, or their state. A new request replaces them.

    ``result`` is as ``Diagnosis.to_dict`` wrote it, except for ``printed``, which is loaded only on request.
    """

    __tablename__ = "diagnoses"
    __table_args__ = (Index(None, "status", "tool", "requested_at"),)

    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"), primary_key=True)
    tool: Mapped[str] = mapped_column(primary_key=True)
    status: Mapped[str]
    message: Mapped[str]
    requested_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    result: Mapped[dict[str, Any] | None]
    printed: Mapped[str] = mapped_column(deferred=True)

    @property
    def state(self) -> DiagnosisStatus:
        """``status`` as the enumeration."""
        return DiagnosisStatus(self.status)
