"""Diagnoses: requested by owners or after device faults, made by workers that have the tool.

They are claimed like submissions (see ``storage.grading.claims``), but after them. No diagnosis is claimed, or gets a
further wake-up, while an evaluation waits for a device of the same kind. Bound to a session; nothing here commits.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import and_, or_, select, true
from sqlalchemy.orm import Session

from evaluator.candidates.candidate import Candidate
from evaluator.evaluation import Status, Verdict
from evaluator.problems.problem import Problem
from kerneljudge.terms.findings import Diagnosis, Tool
from storage.clock import database_now
from storage.grading.leases import UNCLAIMED, LeaseQueue
from storage.models import AttemptOutcome, DiagnosisStatus, StoredDiagnosis, Submission
from storage.queue.backoff import is_due
from storage.queue.celery_app import diagnosis_queue
from storage.queue.eligibility import capabilities_of, runs_on
from storage.queue.wakeups import request_wakeup
from storage.queue.workers import serving_ids
from storage.submissions.submissions import UnknownSubmission, problem_and_candidate
from storage.upsert import insert_into

__all__ = ["Diagnoses", "DiagnosisClaim", "NoDiagnosisWorker", "NotDiagnosable", "evaluation_waits", "undiagnosable"]

_DEVICE: Final = "cuda"
_NOTHING_TO_RUN: Final = (Verdict.INVALID_SOURCE, Verdict.COMPILE_ERROR)
_TRIED: Final = 20
"""The number of next diagnoses that a worker tries to claim, where others are faster."""


class NotDiagnosable(ValueError):
    """The submission cannot be diagnosed; the message has the reason."""


class NoDiagnosisWorker(LookupError):
    """No living worker has the tool."""


@dataclass(frozen=True)
class DiagnosisClaim:
    """The right to make one diagnosis, and the data for it.

    ``size`` is the submission's. ``faulted``: its evaluation has ended with a device fault at that size.
    """

    submission_id: str
    tool: Tool
    token: str
    worker: str
    attempt: int
    problem: Problem
    candidate: Candidate
    size: str
    precision: str
    faulted: bool
    traceparent: str | None
    queued_at: datetime
    claimed_at: datetime


def evaluation_waits(session: Session) -> bool:
    """Whether a submission waits to be evaluated on a CUDA device, and a worker could take it.

    Submissions that wait for a device without a worker do not delay diagnoses. Where no worker takes evaluations on
    CUDA devices, every waiting one counts.
    """
    now = database_now(session)
    offers = capabilities_of(session, _DEVICE)
    waiting = select(Submission.id).where(
        Submission.status == Status.QUEUED,
        Submission.stage == "evaluate",
        Submission.device == _DEVICE,
        is_due(Submission, now),
        or_(*map(runs_on, offers)) if offers else true(),
    )
    return session.scalar(waiting.limit(1)) is not None


def undiagnosable(submission: Submission) -> str | None:
    """Return why ``submission`` cannot be diagnosed in its present state; ``None`` where it can."""
    if submission.device != _DEVICE:
        return f"is for device {submission.device}, and these tools know of CUDA alone"
    if submission.state is not Status.DONE or submission.evaluation is None:
        return f"is {submission.status}: only what was evaluated can be diagnosed"
    if submission.evaluation.verdict in _NOTHING_TO_RUN:
        return f"has nothing that could be run: its verdict is {submission.evaluation.verdict}"
    return None


class Diagnoses(LeaseQueue[StoredDiagnosis, DiagnosisClaim]):
    """Queries and changes within one session."""

    _table = StoredDiagnosis

    def request(self, submission_id: str, tool: Tool) -> StoredDiagnosis:
        """Queue a diagnosis of the submission's candidate with ``tool``, which replaces earlier findings of the tool.

        A diagnosis that is not over yet is returned as it is. Raises ``UnknownSubmission``, ``NotDiagnosable`` and
        ``NoDiagnosisWorker``.
        """
        submission = self._session.get(Submission, submission_id, populate_existing=True)
        if submission is None:
            raise UnknownSubmission(f"no submission {submission_id}")
        reason = undiagnosable(submission)
        if reason is not None:
            raise NotDiagnosable(f"submission {submission.id} {reason}")
        earlier = self.of_tool(submission_id, tool)
        if earlier is not None and not earlier.state.final:
            return earlier
        if not serving_ids(self._session, diagnosis_queue(tool)):
            raise NoDiagnosisWorker(f"no worker with a CUDA device and {tool.program} is running")
        self._queue(submission_id, tool, renew=True)
        requested = self.of_tool(submission_id, tool)
        assert requested is not None
        return requested

    def follow_fault(self, submission_id: str) -> bool:
        """Queue a memcheck diagnosis after a device fault, unless no worker can make it or there is one already."""
        if not serving_ids(self._session, diagnosis_queue(Tool.MEMCHECK)):
            return False
        return self._queue(submission_id, Tool.MEMCHECK, renew=False)

    def of_tool(self, submission_id: str, tool: Tool) -> StoredDiagnosis | None:
        """Return the diagnosis with ``tool`` as it is in the database now, or ``None``."""
        return self._session.get(StoredDiagnosis, (submission_id, str(tool)), populate_existing=True)

    def of_submission(self, submission_id: str) -> Sequence[StoredDiagnosis]:
        """Return every diagnosis of the submission, the one that was requested last first."""
        query = select(StoredDiagnosis).where(StoredDiagnosis.submission_id == submission_id)
        latest_first = query.order_by(StoredDiagnosis.requested_at.desc(), StoredDiagnosis.tool)
        return self._session.scalars(latest_first.execution_options(populate_existing=True)).all()

    def claim_next(self, tools: Collection[Tool], worker: str, lease_s: float) -> DiagnosisClaim | None:
        """Claim the diagnosis with one of ``tools`` that was requested first, or return ``None``.

        None is claimed while an evaluation waits, which goes first.
        """
        if evaluation_waits(self._session):
            return None
        waiting = select(StoredDiagnosis.submission_id, StoredDiagnosis.tool).where(self._takeable(tools))
        oldest = waiting.order_by(StoredDiagnosis.requested_at).limit(_TRIED)
        for submission_id, tool in self._session.execute(oldest).all():
            claim = self.claim(submission_id, Tool(tool), worker, lease_s)
            if claim is not None:
                # Their own messages may have been in vain while an evaluation waited.
                self.notify_waiting([claim.tool])
                return claim
        return None

    def claim(self, submission_id: str, tool: Tool, worker: str, lease_s: float) -> DiagnosisClaim | None:
        """Claim the diagnosis, or return ``None``: it does not wait, or is in backoff."""
        now = database_now(self._session)
        waiting = and_(StoredDiagnosis.submission_id == submission_id, self._takeable([tool]))
        taken = {
            "status": DiagnosisStatus.RUNNING,
            "message": "",
            "attempts": StoredDiagnosis.faults + 1,
            "started_at": now,
        }
        token = self._take(waiting, worker, lease_s, now, taken)
        if token is None:
            return None
        row = self.of_tool(submission_id, tool)
        assert row is not None
        return self._claim_of(row, token, worker, now)

    def record(self, claim: DiagnosisClaim, diagnosis: Diagnosis) -> bool:
        """Record ``diagnosis`` and end with it. ``False``: the claim is gone, and nothing is recorded."""
        result = diagnosis.to_dict()
        values = {
            **UNCLAIMED,
            "status": DiagnosisStatus.DONE,
            "message": "",
            "finished_at": database_now(self._session),
            "printed": result.pop("printed"),
            "result": result,
        }
        return self._set(claim.token, values)

    def notify_waiting(self, tools: Collection[Tool]) -> None:
        """Request wake-ups where diagnoses with ``tools`` wait, no evaluation waits, and the queue has no message."""
        if not tools or evaluation_waits(self._session):
            return
        for queue in sorted(set(map(diagnosis_queue, tools))):
            self._notify_waiting(queue, self._takeable([tool for tool in tools if diagnosis_queue(tool) == queue]))

    def _takeable(self, tools: Collection[Tool]) -> Any:
        """Return the SQL condition that a diagnosis with one of ``tools`` can be claimed now."""
        return and_(
            StoredDiagnosis.status == DiagnosisStatus.PENDING,
            StoredDiagnosis.tool.in_(sorted(map(str, tools))),
            is_due(StoredDiagnosis, database_now(self._session)),
        )

    def _queue(self, submission_id: str, tool: Tool, *, renew: bool) -> bool:
        """Queue a diagnosis unless one is in progress or, without ``renew``, exists at all; return whether it was."""
        now = database_now(self._session)
        values: dict[str, Any] = {
            **UNCLAIMED,
            **self._waiting(),
            "attempts": 0,
            "faults": 0,
            "not_before": None,
            "requested_at": now,
            "finished_at": None,
            "result": None,
            "printed": "",
        }
        row = {"submission_id": submission_id, "tool": str(tool), **values}
        statement = insert_into(self._session, StoredDiagnosis).values(row)
        if renew:
            over = StoredDiagnosis.status.in_([status for status in DiagnosisStatus if status.final])
            statement = statement.on_conflict_do_update(
                index_elements=["submission_id", "tool"], set_=values, where=over
            )
        else:
            statement = statement.on_conflict_do_nothing()
        # Not by a count of rows, because PostgreSQL's driver gives none for such a statement.
        if self._session.execute(statement.returning(StoredDiagnosis.tool)).first() is None:
            return False
        request_wakeup(self._session, diagnosis_queue(tool))
        return True

    def _waiting(self) -> dict[str, Any]:
        return {"status": DiagnosisStatus.PENDING, "message": "", "started_at": None}

    def _progress(self, stage: str, message: str, share: float | None) -> dict[str, Any]:  # noqa: ARG002 - no columns
        return {"message": message}

    def _failed(self, row: StoredDiagnosis, outcome: AttemptOutcome, detail: str, now: datetime) -> dict[str, Any]:  # noqa: ARG002
        return {"status": DiagnosisStatus.FAILED, "message": detail, "finished_at": now}

    def _notify(self, row: StoredDiagnosis) -> None:
        if not evaluation_waits(self._session):
            request_wakeup(self._session, diagnosis_queue(Tool(row.tool)))

    def _claim_of(self, row: StoredDiagnosis, token: str, worker: str, now: datetime) -> DiagnosisClaim:
        submission = self._session.get(Submission, row.submission_id)
        assert submission is not None
        assert submission.evaluation is not None
        problem, candidate = problem_and_candidate(self._session, submission)
        return DiagnosisClaim(
            submission_id=row.submission_id,
            tool=Tool(row.tool),
            token=token,
            worker=worker,
            attempt=row.attempts,
            problem=problem,
            candidate=candidate,
            size=submission.size,
            precision=submission.precision,
            faulted="device_fault" in submission.evaluation.record["details"],
            traceparent=submission.traceparent,
            queued_at=row.requested_at,
            claimed_at=now,
        )
