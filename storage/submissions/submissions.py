"""Submissions as their owners see them: submit, look up, cancel, retry.

Bound to a session; nothing here commits. Lists are in ``storage.submissions.listing``, and the operations of workers in
``storage.grading.claims``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

from sqlalchemy import select, update
from sqlalchemy.orm import Session, joinedload, undefer
from sqlalchemy.orm.attributes import set_committed_value
from sqlalchemy.orm.interfaces import ORMOption

from evaluator.candidates.candidate import Candidate, InvalidSource
from evaluator.evaluation import Status
from evaluator.problems.problem import Problem
from evaluator.problems.requested import is_requested
from storage.access.visibility import Visibility, owned_key
from storage.clock import database_now
from storage.leaderboards.entries import count_verdicts, outcome_of
from storage.metrics.counters import count
from storage.metrics.metrics import ACCEPTED, attempt_ended, ended
from storage.models import Attempt, Stage, StoredEvaluation, StoredProblem, StoredSource, Submission
from storage.queue.celery_app import queue_name
from storage.queue.wakeups import request_wakeup
from storage.requested_problems import store_requested
from storage.submissions.completion import completed, reopened
from storage.submissions.evaluations import store_evaluation
from storage.submissions.new_submission import NewSubmission, invalid_evaluation, source_values, submission_values
from storage.upsert import insert_into

__all__ = [
    "CANCELLED",
    "COMPLETE",
    "WITH_SOURCE",
    "IdempotencyConflict",
    "NotRetriable",
    "Submissions",
    "UnknownProblem",
    "UnknownSubmission",
    "problem_and_candidate",
    "whole_log",
]

CANCELLED: Final[dict[str, Any]] = {
    "status": Status.CANCELLED,
    "message": "cancelled on request",
    "dedup_key": None,
    "claim_token": None,
    "claim_worker": None,
    "lease_until": None,
    "not_before": None,
}
"""The columns of a cancelled submission, except ``finished_at``."""

WITH_SOURCE: Final[tuple[ORMOption, ...]] = (joinedload(Submission.source, innerjoin=True),)
"""Options of ``get`` for the source as well."""

COMPLETE: Final[tuple[ORMOption, ...]] = (
    *WITH_SOURCE,
    undefer(Submission.build_log),
    joinedload(Submission.evaluation).options(undefer(StoredEvaluation.log), undefer(StoredEvaluation.samples)),
)
"""Options of ``get`` for source, logs and raw samples as well."""

_WITH_LOGS: Final[tuple[ORMOption, ...]] = (
    undefer(Submission.build_log),
    joinedload(Submission.evaluation).options(undefer(StoredEvaluation.log)),
)


class UnknownSubmission(LookupError):
    """There is no submission with this id."""


class NotRetriable(ValueError):
    """The submission has not failed, and only failed ones can be retried."""


class UnknownProblem(LookupError):
    """This version of the problem is not in the database (see ``storage.problems.sync_problems``)."""


class IdempotencyConflict(ValueError):
    """The idempotency key was used before, for another content."""


def problem_and_candidate(session: Session, submission: Submission) -> tuple[Problem, Candidate]:
    """Return the problem and the candidate of ``submission``."""
    problem = session.get(StoredProblem, (submission.problem, submission.problem_version))
    source = session.get(StoredSource, submission.source_digest)
    assert problem is not None
    assert source is not None
    origin: Literal["code", "response"] = "response" if submission.origin == "response" else "code"
    return Problem.from_dict(problem.definition), Candidate(source=source.text, digest=source.digest, origin=origin)


def whole_log(submission: Submission) -> str:
    """Return the output of the compiler and the candidate so far."""
    build_log = submission.build_log
    log = submission.evaluation.log if submission.evaluation is not None else ""
    return log if log.startswith(build_log) else build_log + log


class Submissions:
    """Queries and changes within one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def submit(self, new: NewSubmission) -> Submission:
        """Queue ``new``; a source that is no candidate gets its verdict at once.

        With an idempotency key that was used for the same content, returns the first submission, with ``created`` of
        ``False``. Raises ``IdempotencyConflict``, ``UnknownProblem``.
        """
        earlier = self._earlier(new)
        if earlier is not None:
            return earlier
        if is_requested(new.problem.id):
            store_requested(self._session, [new.problem])
        known = select(StoredProblem.id).filter_by(id=new.problem.id, version=new.problem.version)
        if self._session.scalar(known) is None:
            raise UnknownProblem(f"problem {new.problem.id} version {new.problem.version} is not in the database")
        submission = self._insert(new)
        if submission is None:
            # Another transaction has committed the same idempotency key since the first query.
            earlier = self._earlier(new)
            assert earlier is not None
            return earlier
        if not submission.state.final:
            request_wakeup(self._session, queue_name("build", submission.device))
        count(self._session, ACCEPTED, submission.device, "single")
        return submission

    def get(self, submission_id: str, also: Sequence[ORMOption] = ()) -> Submission | None:
        """Return the submission as it is in the database now. ``also``: ``WITH_SOURCE`` or ``COMPLETE``."""
        return self._session.get(Submission, submission_id, populate_existing=True, options=also)

    def cancel(self, submission_id: str) -> Submission:
        """Cancel a submission that is not over; a worker that works on it notices soon, when it checks its claim.

        A submission that is over, or that re-evaluates a record, is returned as it is. Raises ``UnknownSubmission``.
        """
        now = database_now(self._session)
        cancelled = self._session.execute(
            update(Submission)
            .where(
                Submission.id == submission_id,
                Submission.status.not_in([s for s in Status if s.final]),
                Submission.verifies.is_(None),
            )
            .values({**CANCELLED, "finished_at": now})
        )
        if cancelled.rowcount:  # type: ignore[attr-defined]
            # By submission, not by token: a worker may have claimed it just before the update.
            stopped = self._session.execute(
                update(Attempt)
                .where(Attempt.submission_id == submission_id, Attempt.ended_at.is_(None))
                .values(outcome="cancelled", ended_at=now)
                .returning(Attempt.stage, Attempt.worker)
                .execution_options(synchronize_session=False)
            ).all()
            completed(self._session, [submission_id], now)
            ended(self._session, Status.CANCELLED)
            for stage, worker in stopped:
                attempt_ended(self._session, stage, self._known(submission_id).device, worker, "cancelled")
        return self._known(submission_id)

    def retry(self, submission_id: str) -> Submission:
        """Queue a failed submission again, at the stage at which it failed.

        Its attempts stay on record, but the count starts from 0 again. Raises ``UnknownSubmission``, and
        ``NotRetriable`` if it has not failed.
        """
        queued = self._session.execute(
            update(Submission)
            .where(Submission.id == submission_id, Submission.status == Status.FAILED)
            .values(
                status=Status.QUEUED,
                message="",
                attempts=0,
                faults=0,
                not_before=None,
                started_at=None,
                finished_at=None,
            )
        )
        submission = self._known(submission_id)
        if not queued.rowcount:  # type: ignore[attr-defined]
            raise NotRetriable(f"submission {submission_id} is {submission.status}: only failed ones can be retried")
        reopened(self._session, submission_id)
        ended(self._session, Status.FAILED, by=-1)
        stage: Stage = "build" if submission.stage == "build" else "evaluate"
        request_wakeup(self._session, queue_name(stage, submission.device))
        return submission

    def source_of(self, submission_id: str) -> str:
        """Return the submission's source. Raises ``UnknownSubmission``."""
        return self._known(submission_id, WITH_SOURCE).source.text

    def sources_of(self, submissions: Iterable[Submission]) -> dict[str, str]:
        """Return the sources of ``submissions``, by their digests, with one query."""
        digests = {submission.source_digest for submission in submissions}
        query = select(StoredSource.digest, StoredSource.text).where(StoredSource.digest.in_(digests))
        return {source.digest: source.text for source in self._session.execute(query)} if digests else {}

    def log_of(self, submission_id: str) -> str:
        """Return the output of the compiler and the candidate so far. Raises ``UnknownSubmission``."""
        return whole_log(self._known(submission_id, _WITH_LOGS))

    def attempts_of(self, submission_id: str) -> Sequence[Attempt]:
        """Return every attempt on the submission, the first one first."""
        return self._session.scalars(
            select(Attempt).where(Attempt.submission_id == submission_id).order_by(Attempt.id)
        ).all()

    def _known(self, submission_id: str, also: Sequence[ORMOption] = ()) -> Submission:
        submission = self.get(submission_id, also)
        if submission is None:
            raise UnknownSubmission(f"no submission {submission_id}")
        return submission

    def _earlier(self, new: NewSubmission) -> Submission | None:
        if new.idempotency_key is None:
            return None
        stored = owned_key(new.owner, new.idempotency_key)
        # First the id alone: nearly always there is none.
        found = self._session.scalar(select(Submission.id).where(Submission.idempotency_key == stored))
        if found is None:
            return None
        earlier = self._known(found)
        if earlier.content_digest != new.content_digest:
            raise IdempotencyConflict("this idempotency key was used before, for another submission")
        earlier.created = False
        return earlier

    def _insert(self, new: NewSubmission) -> Submission | None:
        """Insert the row of ``new``, and its evaluation where its source is no candidate.

        Returns ``None`` where another submission has the idempotency key.
        """
        now = database_now(self._session)
        source = source_values(new.candidate, now)
        self._session.execute(insert_into(self._session, StoredSource).on_conflict_do_nothing(), source)
        values = submission_values(new, source["digest"], now)
        evaluation = None
        if isinstance(new.candidate, InvalidSource):
            evaluation = invalid_evaluation(new, new.candidate)
            values |= {"status": Status.DONE, "message": evaluation.message, "finished_at": now}
        row = insert_into(self._session, Submission).on_conflict_do_nothing(index_elements=["idempotency_key"])
        submission: Submission | None = self._session.scalars(row.returning(Submission), values).one_or_none()
        if submission is None:
            return None
        stored = None if evaluation is None else store_evaluation(evaluation, submission.id, now)
        # A new submission has no other evaluation, so the relationship is set without a query.
        set_committed_value(submission, "evaluation", stored)
        if stored is not None and evaluation is not None:
            self._session.add(stored)
            self._session.flush()
            if new.visibility is not Visibility.PRIVATE:
                count_verdicts(self._session, {outcome_of(submission, evaluation): 1})
        return submission
