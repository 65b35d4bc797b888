"""Verification of records by re-evaluation: later, on another device of the same name if possible, with other seeds.

A re-evaluation is a submission: a copy whose ``verifies`` names the submission that set the record. It waits behind all
other submissions, is on no leaderboard, and stays as part of the record's history. A record holds if one of two
re-evaluations confirms it (see ``disagreement``). Otherwise it is withdrawn (see ``storage.grading.withdrawal``).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from evaluator.evaluation import Evaluation, Gradients, Status, Verdict
from evaluator.problems.shapes import MEAN, full_name
from storage.access.audit import VERIFICATION
from storage.grading.withdrawal import withdraw
from storage.ids import new_id
from storage.leaderboards.entries import Result, results_of, software_of
from storage.models import StoredLeaderboardEntry, StoredRanking, StoredVerification, Submission, VerificationStatus
from storage.queue.celery_app import queue_name
from storage.queue.fair_order import LAST_RANK
from storage.queue.wakeups import request_wakeup
from storage.upsert import insert_into

__all__ = [
    "check_failed",
    "checks_of",
    "conclude",
    "disagreement",
    "request_verification",
    "verification_of",
    "verify_leaders",
]

_CHECKS: Final = 2
_TRIED_AGAIN: Final = timedelta(hours=1)
_MAX_FAILED: Final = 5
_MIN_SHARE: Final = {"cpu": 0.8, "cuda": 0.95}
"""The share of its first speedup that a record must reach again where the intervals do not meet, by kind of device.

The share is lower on a CPU, because other processes always run there.
"""

_COPIED_NOT: Final = frozenset(
    {"label", "author", "user_metadata", "parent", "idempotency_key", "dedup_key"}
    | {"message", "build_s", "build_log", "progress_stage"}
    | {
        "progress_message",
        "progress_share",
        "claim_token",
        "claim_worker",
        "lease_until",
        "attempts",
        "faults",
        "unsettled",
    }
    | {"built_at", "started_at", "finished_at", "traceparent"}
    | {"withdrawn_at", "withdrawn_by", "withdrawn_reason"}
)
"""The columns that a re-evaluation does not copy; owner and visibility are copied, so both are seen by the same."""


def request_verification(session: Session, submission_id: str, now: datetime) -> None:
    """Queue a re-evaluation of this submission's record, unless its verification exists already."""
    row = {"submission_id": submission_id, "status": VerificationStatus.PENDING, "message": "", "requested_at": now}
    new = insert_into(session, StoredVerification).values(row).on_conflict_do_nothing()
    if session.execute(new.returning(StoredVerification.submission_id)).first() is not None:
        _queue_check(session, session.get_one(Submission, submission_id), now)
    verification = verification_of(session, submission_id)
    assert verification is not None
    _mark(session, verification)


def verification_of(session: Session, submission_id: str) -> StoredVerification | None:
    """Return the verification of this submission; ``None`` where none was requested."""
    return session.get(StoredVerification, submission_id, populate_existing=True)


def checks_of(session: Session, submission_id: str) -> Sequence[Submission]:
    """Return the re-evaluations of this submission's record, the first one first."""
    query = select(Submission).where(Submission.verifies == submission_id).order_by(Submission.id)
    return session.scalars(query.execution_options(populate_existing=True)).all()


def conclude(session: Session, check_id: str, evaluation: Evaluation, now: datetime) -> None:
    """Conclude from the ``evaluation`` of a re-evaluation: the record holds, is tried once more, or is withdrawn."""
    verification = _pending(session, check_id)
    if verification is None:
        return
    original = session.get_one(Submission, verification.submission_id)
    assert original.evaluation is not None
    first = original.evaluation.to_evaluation()
    then, since = software_of(first.environment), software_of(evaluation.environment)
    # A candidate that ended in the build stage has the builder's software.
    of_builder = evaluation.verdict is Verdict.COMPILE_ERROR or "broken_rules" in evaluation.details
    if then != since and not of_builder:
        verification.message = f"it was measured under {then}, and can only be evaluated under {since} now"
        return
    if evaluation.unsettled:
        _try_later(session, verification, "the machine was too noisy to tell how fast it is", now)
        return
    doubt = disagreement(first, evaluation)
    if not doubt:
        _finish(session, verification, VerificationStatus.VERIFIED, "evaluated again, and confirmed", now)
    elif sum(_tells(check) for check in checks_of(session, original.id)) < _CHECKS:
        verification.message = f"to be evaluated once more: {doubt}"
        _queue_check(session, original, now)
    else:
        # The withdrawal first, because its locks are taken first everywhere else.
        withdraw(session, original.id, doubt, VERIFICATION)
        _finish(session, verification, VerificationStatus.FAILED, f"withdrawn: {doubt}", now)
        verify_leaders(session, original, now)


def check_failed(session: Session, check_id: str, detail: str, now: datetime) -> None:
    """Queue another re-evaluation later, because a fault of ours says nothing about the record."""
    verification = _pending(session, check_id)
    if verification is not None:
        _try_later(session, verification, detail, now)


def _tells(check: Submission) -> bool:
    """Whether the re-evaluation ``check`` has said something about the record."""
    return (
        check.state is Status.DONE and check.evaluation is not None and not check.evaluation.to_evaluation().unsettled
    )


def _try_later(session: Session, verification: StoredVerification, detail: str, now: datetime) -> None:
    """Queue another re-evaluation, each time after twice as long; after ``_MAX_FAILED`` failed ones, none."""
    checks = checks_of(session, verification.submission_id)
    failed = sum(check.state in (Status.FAILED, Status.DONE) and not _tells(check) for check in checks)
    if failed >= _MAX_FAILED:
        verification.message = f"not evaluated again, after {failed} tries: {detail}"
        return
    verification.message = f"to be tried again later: {detail}"
    original = session.get_one(Submission, verification.submission_id)
    _queue_check(session, original, now, after=_TRIED_AGAIN * 2 ** max(0, failed - 1))


def verify_leaders(session: Session, submission: Submission, now: datetime) -> None:
    """Verify the leaders of the rankings of ``submission`` that were never verified.

    Called after a submission was published or withdrawn, since the leader may be another one then.
    """
    for leader in _leaders_unverified(session, submission):
        request_verification(session, leader, now)


def disagreement(first: Evaluation, again: Evaluation) -> str:
    """Return why ``again`` does not confirm ``first``; empty where it does.

    It must pass, with matching gradients where the first had them. On each track, its interval must reach that of the
    first, or its speedup the share ``_MIN_SHARE`` of the first's. A faster result is never a disagreement.
    """
    if not again.passed:
        return f"evaluated again, it got {again.verdict}"
    share = _MIN_SHARE[first.device.partition(":")[0]]
    found = {(result.track, result.shape): result for result in results_of(again)}
    for result in results_of(first):
        same = found.get((result.track, result.shape))
        if same is None and result.track == "training" and again.gradients is not Gradients.MATCH:
            return f"evaluated again, its gradients are {again.gradients}"
        if same is None:
            return f"evaluated again, it has no speedup ({result.track}{_at(result)})"
        meets = result.interval is not None and same.interval is not None and same.interval.high >= result.interval.low
        if not (meets or same.speedup >= share * result.speedup):
            where = f"{result.track}{_at(result)}"
            return f"evaluated again, its speedup ({where}) was {same.speedup:.3g} and not {result.speedup:.3g}"
    return ""


def _at(result: Result) -> str:
    return f" at shape {result.shape}" if result.shape not in ("", MEAN) else " over all shapes" if result.shape else ""


def _pending(session: Session, check_id: str) -> StoredVerification | None:
    """Return the open verification of this re-evaluation, locked until the transaction ends, or ``None``."""
    verifies = session.scalar(select(Submission.verifies).where(Submission.id == check_id))
    if verifies is None:
        return None
    query = select(StoredVerification).where(
        StoredVerification.submission_id == verifies, StoredVerification.status == VerificationStatus.PENDING
    )
    return session.scalars(query.with_for_update().execution_options(populate_existing=True)).one_or_none()


def _queue_check(session: Session, original: Submission, now: datetime, after: timedelta = timedelta(0)) -> None:
    """Queue a copy of ``original``, behind all other submissions, for a device of the same name."""
    assert original.evaluation is not None
    columns = [column.name for column in Submission.__table__.columns]
    values: dict[str, Any] = {name: getattr(original, name) for name in columns if name not in _COPIED_NOT}
    values |= {
        "id": new_id("sub"),
        "verifies": original.id,
        "needs_device_name": original.evaluation.device_name or original.needs_device_name,
        "status": Status.QUEUED,
        "stage": "build",
        "queue_rank": LAST_RANK,
        "submitted_at": now,
        "not_before": now + after if after else None,
    }
    session.add(Submission(**values))
    session.flush()
    if not after:
        request_wakeup(session, queue_name("build", original.device))


def _finish(
    session: Session, verification: StoredVerification, status: VerificationStatus, message: str, now: datetime
) -> None:
    verification.status, verification.message, verification.finished_at = status, message, now
    session.flush()
    _mark(session, verification)


def _mark(session: Session, verification: StoredVerification) -> None:
    """Show the state of ``verification`` on the leaderboards."""
    own = update(StoredLeaderboardEntry).where(StoredLeaderboardEntry.submission_id == verification.submission_id)
    session.execute(own.values(verification=verification.status).execution_options(synchronize_session=False))


def _leaders_unverified(session: Session, withdrawn: Submission) -> list[str]:
    """Return the present leaders of the rankings of ``withdrawn`` that were never verified."""
    columns = ("problem", "problem_version", "device", "precision", "baseline")
    same = {name: getattr(withdrawn, name) for name in columns}
    of_shape = StoredRanking.size.startswith(full_name(withdrawn.size, ""), autoescape=True)
    at = or_(StoredRanking.size == withdrawn.size, of_shape)
    rankings = session.scalars(select(StoredRanking.id).filter_by(**same).where(at).order_by(StoredRanking.id))
    found = []
    for ranking_id in rankings.all():
        first = select(StoredLeaderboardEntry.submission_id, StoredLeaderboardEntry.verification).where(
            StoredLeaderboardEntry.ranking_id == ranking_id
        )
        order = (
            StoredLeaderboardEntry.certain_speedup.desc(),
            StoredLeaderboardEntry.submitted_at,
            StoredLeaderboardEntry.submission_id,
        )
        leader = session.execute(first.order_by(*order).limit(1)).first()
        if leader is not None and leader.verification is None:
            found.append(leader.submission_id)
    return found
