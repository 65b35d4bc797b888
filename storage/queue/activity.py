"""The latest work of workers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from storage.access.visibility import Viewer
from storage.models import Attempt, Submission

__all__ = ["FAULTS", "latest_attempts", "shown_to"]

FAULTS: Final = frozenset({"fault", "lost"})
"""Outcomes of attempts that are faults of ours."""


def latest_attempts(session: Session, limit: int) -> Sequence[Attempt]:
    """Return the ``limit`` attempts that began last, the latest first."""
    return session.scalars(select(Attempt).order_by(Attempt.id.desc()).limit(limit)).all()


def shown_to(session: Session, viewer: Viewer, submission_ids: Collection[str]) -> frozenset[str]:
    """Return the ids of those submissions whose source ``viewer`` may see."""
    query = select(Submission.id).where(Submission.id.in_(set(submission_ids)))
    return frozenset(session.scalars(query.where(viewer.source_visible(Submission))))
