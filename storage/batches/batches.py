"""Batches: many submissions that were handed in together, and their results.

A batch comes in by chunks, each in a separate transaction, so that neither memory nor locks grow with it. Stored lines
are graded while the rest comes in. A batch that does not come in whole is cancelled.

Bound to a session; nothing here commits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import case, delete, exists, func, insert, or_, select, update
from sqlalchemy.orm import Session, aliased

from evaluator.evaluation import SpeedupStatus, Status, Verdict
from kerneljudge.summaries.summary import GradedCandidate, ProblemFacts
from storage.access.visibility import ADMIN_VIEWER, Viewer, Visibility, owned_key
from storage.clock import database_now, is_recent
from storage.ids import new_id
from storage.metrics.metrics import ended
from storage.models import (
    Batch,
    BatchError,
    BatchItem,
    StoredEvaluation,
    StoredProblem,
    Submission,
    Webhook,
)
from storage.submissions.completion import completed, finish_if_over, take_places
from storage.submissions.deduplication import Ranks, deduplicate
from storage.submissions.new_submission import NewSubmission
from storage.submissions.submissions import CANCELLED

__all__ = [
    "BatchClosed",
    "BatchLine",
    "BatchPage",
    "BatchProgress",
    "Batches",
    "LineError",
    "UnknownBatch",
]

_ERRORS_KEPT: Final = 1000
_RATE_OVER: Final = timedelta(minutes=5)
_ABANDONED_AFTER: Final = timedelta(minutes=10)
_TAKEN_OVER_AFTER: Final = timedelta(seconds=20)
"""A client that sends a batch again knows that its first upload broke off, so the wait for that is shorter."""


class UnknownBatch(LookupError):
    """There is no batch with this id."""


class BatchClosed(RuntimeError):
    """The batch was cancelled while it came in."""


@dataclass(frozen=True)
class BatchLine:
    """One line with a valid submission."""

    line: int
    new: NewSubmission


@dataclass(frozen=True)
class LineError:
    """One line without a valid submission, and the reason."""

    line: int
    message: str


@dataclass(frozen=True)
class BatchProgress:
    """The progress of a batch. ``rate_per_min`` is of the last minutes; ``eta_s``: the time left at that rate."""

    statuses: Mapping[Status, int]
    verdicts: Mapping[Verdict, int]
    finished: int
    shared: int
    rate_per_min: float | None
    eta_s: float | None


@dataclass(frozen=True)
class BatchPage:
    """Batches, newest first; ``next_cursor`` is ``None`` on the last page."""

    items: Sequence[Batch]
    next_cursor: str | None


class Batches:
    """Queries and changes within one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def create(
        self,
        *,
        name: str | None = None,
        idempotency_key: str | None = None,
        webhook: tuple[str, str] | None = None,
        owner: str | None = None,
        visibility: Visibility = Visibility.PUBLIC,
    ) -> Batch:
        """Begin a batch; ``webhook`` is the address and the secret of the receiver of its end.

        Raises ``IntegrityError`` where another transaction has just used the key.
        """
        now = database_now(self._session)
        batch = Batch(
            id=new_id("bat"),
            name=name,
            idempotency_key=owned_key(owner, idempotency_key),
            owner=owner,
            visibility=str(visibility),
            created_at=now,
            heard_at=now,
        )
        self._session.add(batch)
        self._session.flush()
        if webhook is not None:
            url, secret = webhook
            self._session.add(Webhook(batch_id=batch.id, url=url, secret=secret, attempts=0, message=""))
            self._session.flush()
        return batch

    def hide(self, batch_id: str) -> None:
        """Make the batch private, for a line that no other client may know of."""
        own = update(Batch).where(Batch.id == batch_id).values(visibility=str(Visibility.PRIVATE))
        self._session.execute(own.execution_options(synchronize_session="fetch"))

    def add(self, batch_id: str, lines: Sequence[BatchLine], errors: Sequence[LineError], ranks: Ranks) -> None:
        """Store one chunk of some hundreds of lines. Raises ``BatchClosed``."""
        now = database_now(self._session)
        answers = deduplicate(self._session, [line.new for line in lines], ranks, now)
        over = [line.line for line, answer in zip(lines, answers, strict=True) if answer.status.final]
        values = {
            "items": Batch.items + len(lines),
            "errors": Batch.errors + len(errors),
            "heard_at": now,
        }
        counted = self._session.execute(
            update(Batch)
            .where(Batch.id == batch_id, Batch.cancelled_at.is_(None), Batch.received_at.is_(None))
            .values(values)
            .returning(Batch.errors)
        ).first()
        if counted is None:
            raise BatchClosed(f"batch {batch_id} was cancelled while it came in")
        first = take_places(self._session, batch_id, len(over)) if over else 0
        places = {line: first + number for number, line in enumerate(over)}
        rows = [
            {
                "batch_id": batch_id,
                "line": line.line,
                "label": line.new.label,
                "user_metadata": line.new.metadata,
                "parent": line.new.parent,
                "submission_id": answer.submission_id,
                "shared": answer.shared,
                "cancelled": False,
                "place": places.get(line.line),
                "finished_at": answer.finished_at,
            }
            for line, answer in zip(lines, answers, strict=True)
        ]
        if rows:
            self._session.execute(insert(BatchItem), rows)
        room = max(0, _ERRORS_KEPT - (counted.errors - len(errors)))
        kept = [{"batch_id": batch_id, "line": error.line, "message": error.message} for error in errors[:room]]
        if kept:
            self._session.execute(insert(BatchError), kept)

    def received(self, batch_id: str, content_digest: str) -> None:
        """Note that the last line is in. Raises ``BatchClosed``."""
        now = database_now(self._session)
        open_still = update(Batch).where(
            Batch.id == batch_id, Batch.cancelled_at.is_(None), Batch.received_at.is_(None)
        )
        closed = open_still.values(received_at=now, heard_at=now, content_digest=content_digest)
        if self._session.scalar(closed.returning(Batch.id)) is None:
            raise BatchClosed(f"batch {batch_id} was cancelled while it came in")
        finish_if_over(self._session, batch_id, now)

    def cancel(self, batch_id: str, message: str = "cancelled on request") -> Batch:
        """Cancel submissions that have not begun and that no other batch waits for; those that have begun go on.

        A batch that is over is returned as it is. Raises ``UnknownBatch``.
        """
        batch = self._known(batch_id)
        if batch.finished_at is not None or batch.cancelled_at is not None:
            return batch
        now = database_now(self._session)
        waiting = select(Submission.id).where(
            Submission.status == Status.QUEUED,
            Submission.id.in_(
                select(BatchItem.submission_id).where(BatchItem.batch_id == batch_id, BatchItem.place.is_(None))
            ),
        )
        # Locked first, and checked again afterwards, because another batch may be about to use one of them.
        self._session.execute(waiting.order_by(Submission.id).with_for_update()).all()
        others = aliased(BatchItem)
        needed = exists().where(
            others.submission_id == Submission.id, others.batch_id != batch_id, others.place.is_(None)
        )
        cancelled = (
            update(Submission).where(Submission.id.in_(waiting), ~needed).values({**CANCELLED, "finished_at": now})
        )
        ids = self._session.scalars(
            cancelled.returning(Submission.id).execution_options(synchronize_session=False)
        ).all()
        completed(self._session, ids, now)
        ended(self._session, Status.CANCELLED, by=len(ids))
        self._leave(batch_id, now)
        if batch.received_at is None:
            # The sender got no id, and may be sending the batch again: the end of this one is not to be sent.
            self._session.execute(delete(Webhook).where(Webhook.batch_id == batch_id))
        self._session.execute(
            update(Batch)
            .where(Batch.id == batch_id)
            .values(
                cancelled_at=now,
                received_at=func.coalesce(Batch.received_at, now),
                message=message,
                # A batch that did not come in whole may be sent again under the same key.
                idempotency_key=case((Batch.received_at.is_(None), None), else_=Batch.idempotency_key),
            )
        )
        finish_if_over(self._session, batch_id, now)
        return self._known(batch_id)

    def cancel_abandoned(self, now: datetime | None = None) -> int:
        """Cancel batches that stopped coming in, because their server died; return their number."""
        now = now or database_now(self._session)
        abandoned = select(Batch.id).where(
            Batch.received_at.is_(None), Batch.cancelled_at.is_(None), ~is_recent(Batch.heard_at, _ABANDONED_AFTER, now)
        )
        ids = self._session.scalars(abandoned.order_by(Batch.id)).all()
        for batch_id in ids:
            self.cancel(batch_id, "it never came in whole: the server that received it ended")
        return len(ids)

    def take_over(self, batch_id: str, now: datetime | None = None) -> timedelta:
        """Cancel a batch that has stopped coming in and is sent again, which frees its key.

        Returns the time to wait first, where more of the batch may still be on its way; else 0.
        """
        batch = self._known(batch_id)
        if batch.received_at is not None:
            return timedelta()
        left = batch.heard_at + _TAKEN_OVER_AFTER - (now or database_now(self._session))
        if timedelta() < left <= 2 * _TAKEN_OVER_AFTER:  # a longer time is that of a clock that was set back
            return left
        self.cancel(batch_id, "it did not come in whole, and was sent anew")
        return timedelta()

    def get(self, batch_id: str) -> Batch | None:
        """Return the batch as it is in the database now."""
        return self._session.get(Batch, batch_id, populate_existing=True)

    def by_key(self, idempotency_key: str, owner: str | None = None) -> Batch | None:
        """Return the batch that ``owner`` has handed in under this key."""
        stored = owned_key(owner, idempotency_key)
        return self._session.scalars(select(Batch).where(Batch.idempotency_key == stored)).one_or_none()

    def page(self, cursor: str | None = None, limit: int = 50, *, viewer: Viewer = ADMIN_VIEWER) -> BatchPage:
        """Return up to ``limit`` batches that ``viewer`` sees, newest first, after the batch ``cursor``."""
        query = select(Batch).where(viewer.visible(Batch)).order_by(Batch.id.desc()).limit(limit + 1)
        if cursor is not None:
            query = query.where(Batch.id < cursor)
        rows = self._session.scalars(query).all()
        return BatchPage(items=rows[:limit], next_cursor=rows[limit - 1].id if len(rows) > limit else None)

    def errors_of(self, batch_id: str, limit: int) -> Sequence[LineError]:
        """Return the first ``limit`` lines without a valid submission."""
        query = select(BatchError.line, BatchError.message).where(BatchError.batch_id == batch_id)
        rows = self._session.execute(query.order_by(BatchError.line).limit(limit))
        return [LineError(line, message) for line, message in rows]

    def cancelled_of(self, batch_id: str) -> int:
        """Return the number of the batch's items that are not graded for it, because they were cancelled."""
        query = self._outcomes(batch_id, func.count())
        query = query.where(or_(BatchItem.cancelled, Submission.status == Status.CANCELLED))
        return int(self._session.scalar(query) or 0)

    def awaited_by_others(self, submission_id: str, owner: str | None) -> bool:
        """Whether a batch of another owner waits for a submission of ``owner``."""
        query = (
            select(BatchItem.line)
            .join(Batch, Batch.id == BatchItem.batch_id)
            .where(BatchItem.submission_id == submission_id, BatchItem.place.is_(None))
            .where(Batch.owner.is_distinct_from(owner))
        )
        return self._session.scalar(query.limit(1)) is not None

    def webhook_of(self, batch_id: str) -> Webhook | None:
        """Return the batch's webhook and its state; ``None`` where it has none."""
        return self._session.get(Webhook, batch_id, populate_existing=True)

    def progress(self, batch: Batch) -> BatchProgress:
        """Return the progress of ``batch``."""
        status = case((BatchItem.cancelled, str(Status.CANCELLED)), else_=Submission.status)
        counts = self._session.execute(
            self._outcomes(batch.id, status, StoredEvaluation.verdict, BatchItem.shared, func.count()).group_by(
                status, StoredEvaluation.verdict, BatchItem.shared
            )
        )
        statuses = dict.fromkeys(Status, 0)
        verdicts: dict[Verdict, int] = {}
        shared = 0
        for name, verdict, is_shared, count in counts:
            statuses[Status(name)] += count
            shared += count if is_shared else 0
            if verdict is not None and name == Status.DONE:
                verdicts[Verdict(verdict)] = verdicts.get(Verdict(verdict), 0) + count
        finished = sum(count for each, count in statuses.items() if each.final)
        rate = self._rate_per_min(batch)
        left = batch.items - finished
        eta_s = 0.0 if not left and batch.received_at is not None else 60 * left / rate if rate else None
        return BatchProgress(
            statuses=statuses,
            verdicts=dict(sorted(verdicts.items())),
            finished=finished,
            shared=shared,
            rate_per_min=rate,
            eta_s=eta_s,
        )

    def results(
        self, batch_id: str, after: int, limit: int, viewer: Viewer = ADMIN_VIEWER
    ) -> Sequence[tuple[BatchItem, Submission]]:
        """Return up to ``limit`` items that are over, in the order of completion, after the place ``after``.

        Left out are items whose submission ``viewer`` does not see.
        """
        query = (
            select(BatchItem, Submission)
            .join(Submission, Submission.id == BatchItem.submission_id)
            .where(BatchItem.batch_id == batch_id, BatchItem.place > after, viewer.visible(Submission))
            .order_by(BatchItem.place)
            .limit(limit)
        )
        return [(item, submission) for item, submission in self._session.execute(query).unique()]

    def graded(self, batch_id: str, viewer: Viewer = ADMIN_VIEWER) -> list[GradedCandidate]:
        """Return every item as a summary takes it, by line; its name is its label, or else its submission.

        Left out are items whose submission ``viewer`` does not see.
        """
        name = func.coalesce(BatchItem.label, BatchItem.submission_id)
        verdict = case((BatchItem.cancelled, None), else_=StoredEvaluation.verdict)
        figures = (StoredEvaluation.speedup, StoredEvaluation.certain_speedup, StoredEvaluation.speedup_status)
        query = self._outcomes(batch_id, Submission.problem, verdict, name, *figures)
        return [
            GradedCandidate(
                problem,
                None if found is None else Verdict(found),
                speedup,
                label,
                certain,
                None if measured is None else SpeedupStatus(measured),
            )
            for problem, found, label, speedup, certain, measured in self._session.execute(
                query.where(viewer.visible(Submission)).order_by(BatchItem.line)
            )
        ]

    def facts(self, names: Collection[str]) -> dict[str, ProblemFacts]:
        """Return the level and the tags of these problems, by id, in their current version."""
        query = select(StoredProblem.id, StoredProblem.definition).where(
            StoredProblem.current, StoredProblem.id.in_(names)
        )
        facts = {}
        for problem, definition in self._session.execute(query):
            identity = definition.get("kernelbench")
            facts[problem] = ProblemFacts(
                level=None if identity is None else identity["level"], tags=tuple(definition["tags"])
            )
        return facts

    def _leave(self, batch_id: str, now: datetime) -> None:
        """End the items whose submissions go on waiting for other batches."""
        waiting = (
            select(BatchItem.line)
            .join(Submission, Submission.id == BatchItem.submission_id)
            .where(BatchItem.batch_id == batch_id, BatchItem.place.is_(None), Submission.status == Status.QUEUED)
        )
        lines = self._session.scalars(waiting.order_by(BatchItem.line)).all()
        if not lines:
            return
        first = take_places(self._session, batch_id, len(lines))
        left = [
            {"batch_id": batch_id, "line": line, "place": first + number, "finished_at": now, "cancelled": True}
            for number, line in enumerate(lines)
        ]
        self._session.execute(update(BatchItem), left)

    def _outcomes(self, batch_id: str, *columns: Any) -> Any:
        """Return a query for columns of the batch's items, their submissions and evaluations."""
        return (
            select(*columns)
            .select_from(BatchItem)
            .join(Submission, Submission.id == BatchItem.submission_id)
            .join(StoredEvaluation, StoredEvaluation.submission_id == Submission.id, isouter=True)
            .where(BatchItem.batch_id == batch_id)
        )

    def _rate_per_min(self, batch: Batch) -> float | None:
        """Return the rate at which items have ended in the last minutes, since all are in.

        ``None`` until all are in, and where none has ended.
        """
        if batch.received_at is None:
            return None
        until = batch.finished_at or database_now(self._session)
        since = max(batch.received_at, until - _RATE_OVER)
        count = self._session.scalar(
            select(func.count())
            .select_from(BatchItem)
            .where(BatchItem.batch_id == batch.id, BatchItem.finished_at > since, BatchItem.finished_at <= until)
        )
        minutes = (until - since).total_seconds() / 60
        return count / minutes if count and minutes > 0 else None

    def _known(self, batch_id: str) -> Batch:
        batch = self.get(batch_id)
        if batch is None:
            raise UnknownBatch(f"no batch {batch_id}")
        return batch
