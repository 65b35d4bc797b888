"""The order in which waiting submissions are claimed, and the limit on how many may wait.

Each waiting submission has a *queue rank*; the lowest goes first, and among equals the oldest. Single submissions have
rank 0, so no submission of a batch is ever ahead of them. The ranks of a batch count up from the lowest rank that waits
for the same kind of device. Batches therefore alternate, however large they are and whenever they came. This is fair
queueing with virtual time. Re-evaluations of records have the last rank of all (see ``storage.grading.verification``).

A worker has an *affinity*: after an evaluation it prefers submissions with the same baseline, because the baseline's
process then stays. It takes them from batches with a near rank, only a few in a row, and may claim several together.
"""

from __future__ import annotations

import functools
from dataclasses import asdict, dataclass
from typing import Any, Final

from sqlalchemy import Integer, Select, and_, bindparam, func, or_, select
from sqlalchemy.orm import Session

from evaluator.evaluation import Status
from storage.models import Submission

__all__ = [
    "LAST_RANK",
    "QUEUE_ORDER",
    "AffinityStreak",
    "GradingKey",
    "QueueFull",
    "ahead_of",
    "lowest_rank",
    "near",
    "refuse_if_full",
]

QUEUE_ORDER: Final = (Submission.queue_rank, Submission.id)
LAST_RANK: Final = 2**31 - 1
"""The largest value of a database's integer."""

_STAGES: Final = ("build", "evaluate")
_NEAR_RANKS: Final = 256
_LONGEST_RUN: Final = 8
"""The most evaluations of one kind in a row; then the first in the queue is next."""


@dataclass(frozen=True)
class GradingKey:
    """The settings that submissions with the same baseline, measured in the same way, have in common."""

    problem: str
    problem_version: str
    size: str
    precision: str
    baseline: str
    require_gradients: bool | None
    limits: str
    tier: str
    rules: str

    def matches(self) -> Any:
        """Return the SQL condition that a submission is of this kind."""
        return and_(*(getattr(Submission, name).is_not_distinct_from(value) for name, value in asdict(self).items()))


class QueueFull(RuntimeError):
    """The queue is at its limit of waiting submissions."""


@dataclass
class AffinityStreak:
    """The evaluations of one worker in a row that are of one kind. Not for concurrent use."""

    latest: GradingKey | None = None
    length: int = 0

    @property
    def preferred(self) -> GradingKey | None:
        """The kind that the next one should have; ``None`` where the first in the queue is next."""
        return self.latest if self.length < _LONGEST_RUN else None

    def remaining_for(self, kind: GradingKey) -> int:
        """Return the number of submissions of ``kind`` that may be claimed together without too long a streak."""
        return _LONGEST_RUN - self.length if kind == self.preferred else _LONGEST_RUN

    def note_claim(self, taken: GradingKey | None, count: int = 1) -> None:
        """Note the kind that was claimed, and the number together; ``None``: a kind without gain from a streak."""
        first = taken != self.latest or self.length >= _LONGEST_RUN
        self.latest, self.length = taken, count if first else self.length + count


def ahead_of(submission: Submission) -> Any:
    """Return the SQL condition that a row of the same queue is claimed before ``submission``."""
    older = and_(Submission.queue_rank == submission.queue_rank, Submission.id < submission.id)
    return or_(Submission.queue_rank < submission.queue_rank, older)


def near(queue_rank: int) -> Any:
    """Return the SQL condition that a batch's submission may be claimed ahead of the first, of ``queue_rank``."""
    return Submission.queue_rank.between(1, min(queue_rank + _NEAR_RANKS, LAST_RANK - 1))


def lowest_rank(session: Session, device: str) -> int:
    """Return the first rank of a batch that comes in now, which is the lowest rank of waiting batches, or 1."""
    waiting = select(func.min(Submission.queue_rank)).where(
        Submission.status == Status.QUEUED,
        Submission.stage.in_(_STAGES),
        Submission.device == device,
        Submission.queue_rank > 0,
        Submission.verifies.is_(None),
    )
    return session.scalar(waiting) or 1


def refuse_if_full(session: Session, most: int, *, batched: bool) -> None:
    """Raise ``QueueFull`` where more than ``most`` submissions wait, of batches or else single ones.

    Called after an insertion, which the caller then rolls back. The two are counted apart, so that a flood of batches
    does not keep single submissions out.
    """
    if (session.scalar(_waiting_up_to(batched), {"most": most + 1}) or 0) > most:
        kind = "submissions of batches" if batched else "submissions"
        raise QueueFull(f"the queue is full: it takes {most} {kind}")


@functools.cache
def _waiting_up_to(batched: bool) -> Select[int]:
    """Return the query for the number of waiting submissions, counted up to ``most``."""
    waiting = select(Submission.id).where(
        Submission.status == Status.QUEUED,
        Submission.stage.in_(_STAGES),
        Submission.queue_rank > 0 if batched else Submission.queue_rank == 0,
    )
    return select(func.count()).select_from(waiting.limit(bindparam("most", type_=Integer)).subquery())
