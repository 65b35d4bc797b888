"""Submissions as workers handle them: claim, record, and release overdue ones.

``storage.grading.leases`` has the parts that claims share with those of diagnoses.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import and_, or_, select, update

from evaluator.candidates.candidate import Candidate
from evaluator.config import DEVICE_KINDS
from evaluator.evaluation import Evaluation, Status
from evaluator.problems.problem import Problem
from runtime.settings import MEASURE_AGAIN_S
from storage.clock import database_now
from storage.grading.diagnoses import Diagnoses
from storage.grading.leases import UNCLAIMED, LeaseQueue
from storage.grading.selection import first_of, is_left_to_others, next_submissions, share_of, takeable
from storage.grading.verification import check_failed, conclude, request_verification
from storage.leaderboards.entries import add_to_leaderboards
from storage.metrics import metrics
from storage.models import Attempt, AttemptOutcome, Stage, Submission
from storage.queue.activity import FAULTS
from storage.queue.backoff import is_due, pause_after_unsettled
from storage.queue.celery_app import queue_name
from storage.queue.eligibility import DeviceCapabilities, runs_on
from storage.queue.fair_order import LAST_RANK, GradingKey, near
from storage.queue.wakeups import request_wakeup
from storage.submissions.completion import completed
from storage.submissions.evaluations import store_evaluation
from storage.submissions.submissions import problem_and_candidate
from storage.vettings import is_vetted, why_withheld

__all__ = ["Claim", "Claims"]

_CLAIMED: Final[dict[Stage, Status]] = {"build": Status.BUILDING, "evaluate": Status.EVALUATING}
_PROGRESS: Final = ("progress_stage", "progress_message", "progress_share")
_UNCLAIMED: Final[dict[str, Any]] = {**UNCLAIMED, **dict.fromkeys(_PROGRESS)}


@dataclass(frozen=True)
class Claim:
    """The right to work on one stage of one submission, and the data for that work.

    The submission was in the queue from ``queued_at`` to ``claimed_at``. ``vetted``: whether the problem was vetted for
    the submission's precision and kind of device. ``verifies``: the submission whose record it evaluates again.
    """

    submission_id: str
    stage: Stage
    token: str
    worker: str
    attempt: int
    problem: Problem
    candidate: Candidate
    device: str
    size: str
    precision: str
    baseline: str
    require_gradients: bool | None
    limits: str
    tier: str
    rules: str
    traceparent: str | None
    queued_at: datetime
    claimed_at: datetime
    verifies: str | None = None
    vetted: bool = True

    @property
    def affinity(self) -> GradingKey:
        """The settings of all submissions that are measured against the same baseline in the same way."""
        return GradingKey(
            problem=self.problem.id,
            problem_version=self.problem.version,
            size=self.size,
            precision=self.precision,
            baseline=self.baseline,
            require_gradients=self.require_gradients,
            limits=self.limits,
            tier=self.tier,
            rules=self.rules,
        )


class Claims(LeaseQueue[Submission, Claim]):
    """Claims of submissions within one session; nothing here commits."""

    _table = Submission

    def claim_next(
        self,
        stage: Stage,
        devices: Collection[str],
        worker: str,
        lease_s: float,
        device_capabilities: DeviceCapabilities | None = None,
        affinity: GradingKey | None = None,
    ) -> Claim | None:
        """Claim the next submission for ``stage`` on these kinds of devices, or return ``None``.

        ``storage.queue.fair_order`` has the order. ``device_capabilities``: the worker's device, on which the
        submission must be able to run. ``affinity``: the kind that is preferred among those with a near rank.
        """
        for submission_id in next_submissions(self._session, stage, devices, device_capabilities, affinity):
            claim = self.claim(submission_id, stage, worker, lease_s, device_capabilities)
            if claim is not None:
                self._notify_next(stage, claim)
                return claim
        return None

    def claim_with_affinity(
        self, claim: Claim, most: int, lease_s: float, device_capabilities: DeviceCapabilities | None = None
    ) -> list[Claim]:
        """Claim up to ``most`` more submissions, in the order of the queue, to be evaluated together with ``claim``.

        They have the same affinity, come from batches, and have a near rank. Submissions that have had a fault are
        evaluated alone, so that one that ends its worker harms others once at most. Single submissions and
        re-evaluations are evaluated alone, too. Where other workers could take the waiting ones, this worker claims no
        more than its share.
        """
        row = self._session.get_one(Submission, claim.submission_id)
        if most < 1 or row.faults or not 0 < row.queue_rank < LAST_RANK:
            return []
        waiting = takeable("evaluate", claim.device, device_capabilities, database_now(self._session))
        first_rank = self._session.scalar(first_of(select(Submission.queue_rank).where(waiting), 1))
        if not first_rank:  # none is left, or the first is a single submission, which no other goes ahead of
            return []
        count = share_of(self._session, row, waiting, 1 + most) - 1
        same_kind = select(Submission.id).where(
            waiting, near(first_rank), claim.affinity.matches(), Submission.faults == 0
        )
        # A transaction that holds several rows must not wait for another row: others hold several as well.
        rows = self._session.scalars(first_of(same_kind, count).with_for_update(skip_locked=True)).all()
        claims = [
            self.claim(submission_id, "evaluate", claim.worker, lease_s, device_capabilities) for submission_id in rows
        ]
        return [each for each in claims if each is not None]

    def claim(
        self,
        submission_id: str,
        stage: Stage,
        worker: str,
        lease_s: float,
        device_capabilities: DeviceCapabilities | None = None,
    ) -> Claim | None:
        """Claim the submission, or return ``None`` where that is not possible or it is left to others.

        It must wait for ``stage``, be able to run on ``device_capabilities``, and have no backoff to wait for. It is
        left to others if ``worker`` had a fault with it and another live worker has not. A re-evaluation is also left
        to a worker with another device, where this worker's device has measured the record.
        """
        now = database_now(self._session)
        waiting = and_(
            Submission.id == submission_id,
            Submission.status == Status.QUEUED,
            Submission.stage == stage,
            is_due(Submission, now),
            runs_on(device_capabilities),
        )
        if is_left_to_others(self._session, waiting, stage, worker, device_capabilities):
            return None
        taken: dict[str, Any] = {
            "status": _CLAIMED[stage],
            "attempts": Submission.faults + Submission.unsettled + 1,
        }
        if stage == "evaluate":
            taken["started_at"] = now
        token = self._take(waiting, worker, lease_s, now, taken)
        if token is None:
            return None
        row = self._session.get(Submission, submission_id, populate_existing=True)
        assert row is not None
        self._session.add(
            Attempt(
                submission_id=row.id,
                stage=stage,
                number=row.attempts,
                worker=worker,
                device=None if device_capabilities is None else device_capabilities.device_id,
                token=token,
                started_at=now,
                outcome="running",
                detail="",
            )
        )
        self._session.flush()
        return self._claim_of(row, stage, token, worker, now)

    def record_built(
        self,
        claim: Claim,
        *,
        seconds: float,
        log: str,
        builds: Sequence[Mapping[str, Any]] = (),
        failed_builds: int = 0,
    ) -> bool:
        """Record a successful build stage, and queue the submission for a device.

        Returns ``False`` where the claim is gone; nothing is recorded then. ``builds`` are the extensions that were
        built, and ``failed_builds`` is the number of those that do not compile: both are only counted.
        """
        now = database_now(self._session)
        values = {
            **UNCLAIMED,
            **self._waiting(),
            "stage": "evaluate",
            "built_at": now,
            "build_s": seconds,
            "build_log": log,
        }
        if not self._set(claim.token, values):
            return False
        started_at = self._end_attempt(claim.token, claim.device, "built", "", now)
        metrics.stage_done(self._session, claim.submission_id, "build", started_at, now, last=False)
        metrics.built(self._session, "build", claim.device, builds, failed_builds)
        request_wakeup(self._session, queue_name("evaluate", claim.device))
        return True

    def record_evaluation(
        self,
        claim: Claim,
        evaluation: Evaluation,
        *,
        diagnose: bool = False,
        verify: bool = False,
        failed_builds: int = 0,
        measure_again_s: Sequence[float] = MEASURE_AGAIN_S,
    ) -> bool:
        """End the submission with ``evaluation``. ``False``: the claim is gone, and nothing is recorded.

        A candidate that passed on a machine too noisy for a figure is measured again after each of the pauses
        ``measure_again_s``, in seconds. If that does not help, it is recorded without a figure, and not used for
        deduplication.

        ``diagnose``: have a device fault diagnosed, where there is a worker for that. ``verify``: have a new record
        evaluated again. ``failed_builds``: the number of extensions that do not compile, to be counted.
        """
        now = database_now(self._session)
        if evaluation.unsettled and self._measure_again(claim, measure_again_s, now):
            return True
        values = {**_UNCLAIMED, "status": Status.DONE, "message": evaluation.message, "finished_at": now}
        if evaluation.unsettled:
            values["dedup_key"] = None
        if not self._set(claim.token, values):
            return False
        withheld = why_withheld(self._session, claim.problem.id, claim.problem.version, claim.precision, claim.device)
        stored = store_evaluation(evaluation, claim.submission_id, now, withheld)
        self._session.add(stored)
        started_at = self._end_attempt(claim.token, claim.device, "done", evaluation.verdict, now)
        metrics.stage_done(self._session, claim.submission_id, claim.stage, started_at, now, last=True)
        metrics.built(self._session, claim.stage, claim.device, evaluation.details.get("builds", ()), failed_builds)
        metrics.device_faulted(self._session, claim.worker, evaluation)
        self._session.flush()
        shown = stored.to_evaluation()
        if claim.verifies is not None:
            conclude(self._session, claim.submission_id, shown, now)
        elif add_to_leaderboards(self._session, claim.submission_id, shown, now) and verify:
            request_verification(self._session, claim.submission_id, now)
        completed(self._session, [claim.submission_id], now)
        if diagnose and "device_fault" in evaluation.details:
            Diagnoses(self._session).follow_fault(claim.submission_id)
        return True

    def _measure_again(self, claim: Claim, pauses_s: Sequence[float], now: datetime) -> bool:
        """Queue the submission again after a pause; ``False`` after enough measurements, or if the claim is gone."""
        row = self._session.get_one(Submission, claim.submission_id, populate_existing=True)
        times = row.unsettled + 1
        pause = pause_after_unsettled(times, pauses_s)
        if pause is None:
            return False
        values = {
            **UNCLAIMED,
            **self._waiting(),
            "unsettled": times,
            "message": "it passed, and the machine was too noisy to tell how fast it is: it will be measured again",
            "not_before": now + pause,
        }
        if not self._set(claim.token, values):
            return False
        self._end_attempt(claim.token, claim.device, "unsettled", "the machine was too noisy for a figure", now)
        return True

    def notify_waiting(
        self, queues: Collection[tuple[Stage, str]], device_capabilities: DeviceCapabilities | None = None
    ) -> None:
        """Request wake-ups for those of ``queues`` (stage, kind of device) that have work and no message.

        Work is a submission that can be claimed now, on ``device_capabilities``. Its message was lost, was taken by a
        worker that could not run it, or was never sent, because of a backoff.
        """
        now = database_now(self._session)
        for stage, device in sorted(queues):
            self._notify_waiting(queue_name(stage, device), takeable(stage, device, device_capabilities, now))

    def _notify_next(self, stage: Stage, claim: Claim) -> None:
        """Request another wake-up where more waits behind ``claim`` and the queue has no message.

        It is in vain where a group takes the rest, or where only an absent worker could run it.
        """
        kinds = DEVICE_KINDS if stage == "build" else (claim.device,)
        waiting = or_(*(takeable(stage, kind, None, claim.claimed_at) for kind in kinds))
        if self._session.scalar(select(Submission.id).where(waiting).limit(1)) is not None:
            request_wakeup(self._session, queue_name(stage, claim.device), if_empty=True)

    def _waiting(self) -> dict[str, Any]:
        return {"status": Status.QUEUED, **dict.fromkeys(_PROGRESS)}

    def _progress(self, stage: str, message: str, share: float | None) -> dict[str, Any]:
        return dict(zip(_PROGRESS, (stage, message, share), strict=True))

    def _failed(self, row: Submission, outcome: AttemptOutcome, detail: str, now: datetime) -> dict[str, Any]:
        faults = row.faults + 1
        if outcome == "lost" and faults > 1:
            detail = f"set aside, for {self._lost(row.id, faults)} of {faults} attempts lost their worker: {detail}"
        # No deduplication any more: equal submissions from now on are graded again.
        values = {"status": Status.FAILED, "message": detail, "finished_at": now, "dedup_key": None}
        return {**dict.fromkeys(_PROGRESS), **values}

    def _backoff(self, outcome: AttemptOutcome, faults: int) -> timedelta:
        # A lost worker has cost a whole lease already, which is backoff enough.
        return timedelta(0) if outcome == "lost" else super()._backoff(outcome, faults)

    def _ended(
        self, row: Submission, token: str, outcome: AttemptOutcome, detail: str, now: datetime, *, failed: bool
    ) -> None:
        self._end_attempt(token, row.device, outcome, detail, now)
        if failed:
            metrics.ended(self._session, Status.FAILED)
            completed(self._session, [row.id], now)
            check_failed(self._session, row.id, detail, now)

    def _notify(self, row: Submission) -> None:
        stage: Stage = "build" if row.stage == "build" else "evaluate"
        request_wakeup(self._session, queue_name(stage, row.device))

    def _lost(self, submission_id: str, faults: int) -> int:
        """Return how many of the last ``faults`` failed attempts lost their worker, this one included."""
        failed = select(Attempt.outcome).where(Attempt.submission_id == submission_id, Attempt.outcome.in_(FAULTS))
        latest = self._session.scalars(failed.order_by(Attempt.id.desc()).limit(faults - 1))
        return 1 + sum(outcome == "lost" for outcome in latest)

    def _claim_of(self, row: Submission, stage: Stage, token: str, worker: str, now: datetime) -> Claim:
        problem, candidate = problem_and_candidate(self._session, row)
        return Claim(
            submission_id=row.id,
            stage=stage,
            token=token,
            worker=worker,
            attempt=row.attempts,
            problem=problem,
            candidate=candidate,
            device=row.device,
            size=row.size,
            precision=row.precision,
            baseline=row.baseline,
            require_gradients=row.require_gradients,
            limits=row.limits,
            tier=row.tier,
            rules=row.rules,
            traceparent=row.traceparent,
            queued_at=row.submitted_at if stage == "build" else row.built_at or row.submitted_at,
            claimed_at=now,
            verifies=row.verifies,
            vetted=is_vetted(self._session, row.problem, row.problem_version, row.precision, row.device),
        )

    def _end_attempt(self, token: str, device: str, outcome: AttemptOutcome, detail: str, now: datetime) -> datetime:
        """End the attempt and count it; return the time of its beginning."""
        ended = self._session.execute(
            update(Attempt)
            .where(Attempt.token == token)
            .values(outcome=outcome, detail=detail, ended_at=now)
            .returning(Attempt.stage, Attempt.worker, Attempt.started_at)
            .execution_options(synchronize_session=False)
        ).one()
        metrics.attempt_ended(self._session, ended.stage, device, ended.worker, outcome)
        started_at: datetime = ended.started_at
        return started_at
