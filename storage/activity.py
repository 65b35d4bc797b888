"""What workers have done lately."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from storage.models import Attempt

__all__ = ["FAULTS", "latest_attempts"]

FAULTS: Final = frozenset({"fault", "lost"})
"""Outcomes of attempts that are our fault."""


def latest_attempts(session: Session, limit: int) -> Sequence[Attempt]:
    """The attempts that were begun last, the latest first."""
    return session.scalars(select(Attempt).order_by(Attempt.id.desc()).limit(limit)).all()
