"""Bells to be rung once a transaction has committed; a rollback forgets them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from sqlalchemy.orm import Session

from evaluator.diagnosis.findings import Tool
from storage.models import Stage

__all__ = ["FIRST_REPEAT", "Bell", "DiagnosisBell", "announce", "repeat_after", "take_announced"]

_KEY: Final = "storage.queue.wakeups"

FIRST_REPEAT: Final = timedelta(seconds=5)
_LAST_REPEAT: Final = timedelta(minutes=2)


@dataclass(frozen=True)
class Bell:
    """Says that a submission waits for a stage. ``device`` is a kind (``cpu``, ``cuda``)."""

    submission_id: str
    stage: Stage
    device: str


@dataclass(frozen=True)
class DiagnosisBell:
    """Says that a submission waits to be diagnosed with ``tool``."""

    submission_id: str
    tool: Tool


def announce(session: Session, bell: Bell | DiagnosisBell) -> None:
    """Have ``bell`` rung when ``session`` commits (see ``storage.queue.celery_app.ring_after_commit``)."""
    session.info.setdefault(_KEY, []).append(bell)


def take_announced(session: Session) -> list[Bell | DiagnosisBell]:
    """The bells announced since the last call; they are announced no more."""
    bells: list[Bell | DiagnosisBell] = session.info.pop(_KEY, [])
    return bells


def repeat_after(bells: int) -> timedelta:
    """How long after the ``bells``-th bell a submission that still waits is rung again."""
    return min(FIRST_REPEAT * (1 << max(0, min(bells - 1, 10))), _LAST_REPEAT)
