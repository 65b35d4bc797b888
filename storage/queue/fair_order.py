"""In which order what waits is taken up, and how much of it there is.

Whatever waits has a *turn*, and the lowest goes first; among equals, the oldest. Single submissions have turn 0, so
nothing that was handed in as part of a batch is ever ahead of them. The submissions of a batch have turns that count
up, beginning at the lowest that waits for the same kind of device: so batches take turns, however large they are and
whenever they came. What evaluates a record again has the last turn of all (see ``storage.grading.verification``).

A worker that has just evaluated something may prefer what is *alike*, since the baseline's process then stays: out of
those of batches whose turn is near, and for a few in a row. Of such, it may take up several together.
"""

from __future__ import annotations

import functools
from dataclasses import asdict, dataclass
from typing import Any, Final

from sqlalchemy import Integer, Select, and_, bindparam, func, or_, select
from sqlalchemy.orm import Session

from evaluator.evaluation import Status
from storage.models import Submission

__all__ = ["LAST_TURN", "QUEUE_ORDER", "Alike", "QueueFull", "Run", "ahead_of", "lowest_turn", "near", "refuse_if_full"]

QUEUE_ORDER: Final = (Submission.turn, Submission.id)
LAST_TURN: Final = 2**31 - 1
"""As large as a database's integer can be."""

_STAGES: Final = ("build", "evaluate")
_NEAR_TURNS: Final = 256
_LONGEST_RUN: Final = 8
"""After so many that are alike it is the turn of whatever is first."""


@dataclass(frozen=True)
class Alike:
    """What submissions have in common that are held against the same baseline, measured in the same way."""

    problem: str
    problem_version: str
    size: str
    precision: str
    baseline: str
    require_gradients: bool | None
    limits: str

    def matches(self) -> Any:
        """The condition that a submission is of this kind."""
        return and_(*(getattr(Submission, name).is_not_distinct_from(value) for name, value in asdict(self).items()))


class QueueFull(RuntimeError):
    """As many submissions wait as may."""


@dataclass
class Run:
    """What one worker evaluates, one after the other, and whether the next is to be alike. Not for concurrent use."""

    latest: Alike | None = None
    length: int = 0

    @property
    def preferred(self) -> Alike | None:
        """What the next one should be like; ``None`` where it is the turn of whatever is first."""
        return self.latest if self.length < _LONGEST_RUN else None

    def room_for(self, kind: Alike) -> int:
        """How many of ``kind`` may be taken up together as the next ones: no run becomes longer by that."""
        return _LONGEST_RUN - self.length if kind == self.preferred else _LONGEST_RUN

    def goes_on_with(self, taken: Alike | None, count: int = 1) -> None:
        """Note what was taken up, and how many of it together; ``None``: something that no other one gains from."""
        first = taken != self.latest or self.length >= _LONGEST_RUN
        self.latest, self.length = taken, count if first else self.length + count


def ahead_of(submission: Submission) -> Any:
    """The condition that a row of the same queue is taken up before ``submission``."""
    older = and_(Submission.turn == submission.turn, Submission.id < submission.id)
    return or_(Submission.turn < submission.turn, older)


def near(turn: int) -> Any:
    """The condition that a submission of a batch may be taken up ahead of the first one, which has this ``turn``."""
    return Submission.turn.between(1, min(turn + _NEAR_TURNS, LAST_TURN - 1))


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
