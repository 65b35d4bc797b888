"""Wake-ups that are sent once a transaction has committed; a rollback forgets them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from sqlalchemy.orm import Session

from evaluator.diagnosis.findings import Tool
from storage.models import Stage

__all__ = ["FIRST_REPEAT", "DiagnosisWakeUp", "WakeUp", "repeat_after", "request_wakeup", "take_requested_wakeups"]

_KEY: Final = "storage.queue.wakeups"

FIRST_REPEAT: Final = timedelta(seconds=5)
_LAST_REPEAT: Final = timedelta(minutes=2)


@dataclass(frozen=True)
class WakeUp:
    """The wake-up for a submission that waits for a stage. ``device`` is a kind (``cpu``, ``cuda``)."""

    submission_id: str
    stage: Stage
    device: str


@dataclass(frozen=True)
class DiagnosisWakeUp:
    """The wake-up for a submission that waits to be diagnosed with ``tool``."""

    submission_id: str
    tool: Tool


def request_wakeup(session: Session, wakeup: WakeUp | DiagnosisWakeUp) -> None:
    """Have ``wakeup`` sent when ``session`` commits (see ``storage.queue.celery_app.notify_after_commit``)."""
    session.info.setdefault(_KEY, []).append(wakeup)


def take_requested_wakeups(session: Session) -> list[WakeUp | DiagnosisWakeUp]:
    """Return the wake-ups requested since the last call; each is returned once."""
    wakeups: list[WakeUp | DiagnosisWakeUp] = session.info.pop(_KEY, [])
    return wakeups


def repeat_after(wakeups: int) -> timedelta:
    """Return the time from the ``wakeups``-th wake-up to the next one of a submission that still waits."""
    return min(FIRST_REPEAT * (1 << max(0, min(wakeups - 1, 10))), _LAST_REPEAT)
