"""Wake-ups that are sent once a transaction has committed; a rollback forgets them.

A wake-up says that a queue has work. A row whose wait begins gets one, and later ones are sent only if the queue has no
message. No row keeps account of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy.orm import Session

__all__ = ["WakeUp", "request_wakeup", "take_requested_wakeups"]

_KEY: Final = "storage.queue.wakeups"


@dataclass(frozen=True)
class WakeUp:
    """``count`` messages for ``queue``; with ``if_empty``, only if no message waits there."""

    queue: str
    count: int = 1
    if_empty: bool = False


def request_wakeup(session: Session, queue: str, count: int = 1, *, if_empty: bool = False) -> None:
    """Have a wake-up sent when ``session`` commits (see ``storage.queue.celery_app.notify_after_commit``)."""
    session.info.setdefault(_KEY, []).append(WakeUp(queue, count, if_empty))


def take_requested_wakeups(session: Session) -> list[WakeUp]:
    """Return the wake-ups requested since the last call; each is returned once."""
    wakeups: list[WakeUp] = session.info.pop(_KEY, [])
    return wakeups
