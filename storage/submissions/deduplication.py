"""Deduplication: equal lines of batches are graded once.

Lines with the same source, problem, device and options have one submission, within a batch and between batches. The
submission may wait, be in progress or be done; one that was cancelled or failed through a fault of ours is not used
again. Single submissions are never deduplicated, because they have owners. A submission that is not public is
deduplicated only among the same client's lines. No client therefore learns that another has handed in the same.
The same holds for lines of a key that sees its client's submissions alone (``shares``).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from evaluator.candidates.candidate import InvalidSource
from evaluator.config import limits_text
from evaluator.evaluation import Status, Verdict
from evaluator.problems.requested import is_requested
from runtime.tracing import new_trace
from storage.access.visibility import Visibility
from storage.leaderboards.entries import Outcome, count_verdicts
from storage.metrics.counters import count
from storage.metrics.metrics import ACCEPTED
from storage.models import StoredSource, Submission
from storage.queue.celery_app import queue_name
from storage.queue.eligibility import NO_REQUIREMENTS
from storage.queue.fair_order import lowest_rank
from storage.queue.wakeups import request_wakeup
from storage.requested_problems import store_requested
from storage.submissions.evaluations import store_evaluation
from storage.submissions.new_submission import NewSubmission, invalid_evaluation, source_values, submission_values
from storage.upsert import insert_into

__all__ = ["Answer", "Ranks", "deduplicate"]

_NOTIFIED_AT_ONCE: Final = 8
"""The number of a batch's submissions that get a wake-up when it comes in; claims request the later ones."""


@dataclass
class Ranks:
    """The next fair-queue rank of a batch by kind of device, while it comes in. See ``storage.queue.fair_order``."""

    following: dict[str, int] = field(default_factory=dict)
    given: dict[str, int] = field(default_factory=dict)

    def take(self, session: Session, device: str) -> tuple[int, bool]:
        """Return the next rank for ``device``, and whether it is one of the first few."""
        queue_rank = self.following[device] if device in self.following else lowest_rank(session, device)
        self.following[device] = queue_rank + 1
        self.given[device] = self.given.get(device, 0) + 1
        return queue_rank, self.given[device] <= _NOTIFIED_AT_ONCE


@dataclass(frozen=True)
class Answer:
    """The submission of one line. ``shared``: an earlier line has the same submission."""

    submission_id: str
    status: Status
    finished_at: datetime | None
    shared: bool


def deduplicate(session: Session, asked: Sequence[NewSubmission], ranks: Ranks, now: datetime) -> list[Answer]:
    """Return the submission of each of ``asked``, some hundreds at most, and queue those that do not exist yet.

    None of the submissions ends before the transaction does.
    """
    store_requested(session, (new.problem for new in asked if is_requested(new.problem.id)))
    keys = [_dedup_key(new) for new in asked]
    wanted: dict[str, NewSubmission] = {}
    for key, new in zip(keys, asked, strict=True):
        wanted.setdefault(key, new)
    found: dict[str, Any] = {}
    made: set[str] = set()
    invalid: Counter[Outcome] = Counter()
    while missing := [key for key in wanted if key not in found]:
        found |= _lookup(session, missing)
        absent = [key for key in missing if key not in found]
        if absent:
            queued, counts = _make(session, {key: wanted[key] for key in absent}, ranks, now)
            made |= queued
            invalid += counts
            found |= _lookup(session, absent)
    # After every lock on a submission, because code that ends submissions takes the locks in this order.
    count_verdicts(session, invalid)
    answers = []
    for key in keys:
        row = found[key]
        status = Status(row.status)
        answers.append(Answer(row.id, status, row.finished_at if status.final else None, row.id not in made))
        made.discard(row.id)
    return answers


def _lookup(session: Session, keys: Sequence[str]) -> dict[str, Any]:
    # Locked until the items are stored: a submission that ended before then would leave them waiting for ever.
    query = select(Submission.id, Submission.dedup_key, Submission.status, Submission.finished_at)
    query = query.where(Submission.dedup_key.in_(keys)).order_by(Submission.id).with_for_update(read=True)
    return {str(row.dedup_key): row for row in session.execute(query)}


def _make(
    session: Session, wanted: Mapping[str, NewSubmission], ranks: Ranks, now: datetime
) -> tuple[set[str], Counter[Outcome]]:
    """Queue ``wanted``, except submissions that another transaction has queued just now.

    Returns the ids of the queued ones, and the verdict counts of those whose sources are no candidates.
    """
    sources: dict[str, dict[str, Any]] = {}
    rows: dict[str, dict[str, Any]] = {}
    notified: dict[str, str] = {}
    for key, new in wanted.items():
        source = source_values(new.candidate, now)
        sources[source["digest"]] = source
        row = {
            **submission_values(new, source["digest"], now),
            "dedup_key": key,
            "traceparent": new_trace("submission"),
        }
        # All rows of one statement have the same columns.
        row |= {"message": "", "finished_at": None, "queue_rank": 1}
        if isinstance(new.candidate, InvalidSource):
            row |= {"status": Status.DONE, "message": new.candidate.message, "finished_at": now}
        else:
            row["queue_rank"], first = ranks.take(session, new.device)
            if first:
                notified[row["id"]] = queue_name("build", new.device)
        rows[key] = row
    # In one order everywhere: two batches with the same lines must not deadlock.
    add_source = insert_into(session, StoredSource).on_conflict_do_nothing()
    session.execute(add_source, [sources[digest] for digest in sorted(sources)])
    add_submission = insert_into(session, Submission).on_conflict_do_nothing(index_elements=["dedup_key"])
    session.execute(add_submission, [rows[key] for key in sorted(rows)])
    ids = {row["id"]: key for key, row in rows.items()}
    queued = set(session.scalars(select(Submission.id).where(Submission.id.in_(ids))))
    invalid: Counter[Outcome] = Counter()
    for submission_id in sorted(queued):
        new = wanted[ids[submission_id]]
        count(session, ACCEPTED, new.device, "batch")
        if isinstance(new.candidate, InvalidSource):
            session.add(store_evaluation(invalid_evaluation(new, new.candidate), submission_id, now))
        if isinstance(new.candidate, InvalidSource) and new.visibility is not Visibility.PRIVATE:
            outcome = Outcome(new.problem.id, new.problem.version, new.device, Verdict.INVALID_SOURCE, new.tier)
            invalid[outcome] += 1
    session.flush()
    for submission_id in queued & notified.keys():
        request_wakeup(session, notified[submission_id])
    return queued, invalid


def _dedup_key(new: NewSubmission) -> str:
    """Return the SHA-256 over everything that decides the result of grading."""
    content: list[Any] = [
        new.problem.id,
        new.problem.version,
        new.candidate.source,
        # The reason why a source is no candidate depends on its origin, which is code or a model's answer.
        [new.candidate.message, *new.candidate.hints] if isinstance(new.candidate, InvalidSource) else None,
        new.device,
        new.size,
        new.precision,
        new.require_gradients,
        new.baseline,
        *([new.requirements.columns] if new.requirements != NO_REQUIREMENTS else []),
        *([limits_text(new.limits)] if new.limits else []),
        *([new.tier] if new.tier != "full" else []),
        *([new.rules.to_dict()] if new.rules else []),
    ]
    if new.visibility is not Visibility.PUBLIC or not new.shares:
        content.append([str(new.visibility), new.owner])
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
