"""In which order what waits is taken up, and how much of it there is.

Whatever waits has a *turn*, and the lowest goes first; among equals, the oldest. Single submissions have turn 0, so
nothing that was handed in as part of a batch is ever ahead of them. The submissions of a batch have turns that count
up, beginning at the lowest that waits for the same kind of device: so batches take turns, however large they are and
whenever they came. What evaluates a record again has the last turn of all (see ``storage.verification``).
"""

from __future__ import annotations

import functools
from typing import Any, Final

from sqlalchemy import Integer, Select, and_, bindparam, func, or_, select
from sqlalchemy.orm import Session

from evaluator.evaluation import Status
from storage.models import Submission

__all__ = ["QUEUE_ORDER", "QueueFull", "ahead_of", "lowest_turn", "refuse_if_full"]

QUEUE_ORDER: Final = (Submission.turn, Submission.id)

_STAGES: Final = ("build", "evaluate")


class QueueFull(RuntimeError):
    """As many submissions wait as may."""


def ahead_of(submission: Submission) -> Any:
    """The condition that a row of the same queue is taken up before ``submission``."""
    older = and_(Submission.turn == submission.turn, Submission.id < submission.id)
    return or_(Submission.turn < submission.turn, older)


def lowest_turn(session: Session, device: str) -> int:
    """The turn that a batch begins at which comes in now: its first submission is level with what waits."""
    waiting = select(func.min(Submission.turn)).where(
        Submission.status == Status.QUEUED,
        Submission.stage.in_(_STAGES),
        Submission.device == device,
        Submission.turn > 0,
        Submission.verifies.is_(None),
    )
    return session.scalar(waiting) or 1


def refuse_if_full(session: Session, most: int, *, batched: bool) -> None:
    """Raises ``QueueFull`` where more than ``most`` wait, of batches or else of single submissions.

    For whoever has just put something in, and takes it back then. The two are counted apart, so that a flood of
    batches does not keep single submissions out.
    """
    if (session.scalar(_waiting_up_to(batched), {"most": most + 1}) or 0) > most:
        kind = "submissions of batches" if batched else "submissions"
        raise QueueFull(f"the queue is full: it takes {most} {kind}")


@functools.cache
def _waiting_up_to(batched: bool) -> Select[int]:
    """How many wait, counted up to ``most``."""
    waiting = select(Submission.id).where(
        Submission.status == Status.QUEUED,
        Submission.stage.in_(_STAGES),
        Submission.turn > 0 if batched else Submission.turn == 0,
    )
    return select(func.count()).select_from(waiting.limit(bindparam("most", type_=Integer)).subquery())
