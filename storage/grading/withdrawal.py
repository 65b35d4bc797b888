"""Later changes of leaderboards: an entry is withdrawn, reinstated, or published.

``rebuild_entries`` rebuilds the leaderboard entries that depend on a submission, from the stored evaluations. They
are then as if the submission had never (or always) been among them. Nothing of the submission is deleted: its
evaluation stays, and so do the actor, the time and the reason of its withdrawal. Nothing here commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, delete, func, null, select, tuple_
from sqlalchemy.orm import Session

from evaluator.evaluation import Evaluation, Gradients, Status, Verdict
from evaluator.problems.requested import is_requested
from evaluator.problems.shapes import split_name
from storage.access import audit
from storage.access.visibility import Visibility
from storage.clock import database_now
from storage.created_problems import hold_visibility, is_private, ranked_among_its_like
from storage.leaderboards.entries import (
    RANKED_TIER,
    Result,
    count_verdicts,
    entry_key_of,
    entry_values,
    figures_of,
    locked_ranking,
    logarithm_of,
    outcome_of,
    results_of,
    software_of,
)
from storage.models import (
    AuthorBest,
    RankingRecord,
    StoredEvaluation,
    StoredLeaderboardEntry,
    StoredRanking,
    StoredVerification,
    Submission,
)
from storage.submissions.submissions import UnknownSubmission

__all__ = ["NotPublishable", "NotRanked", "publish", "rebuild_entries", "reinstate", "withdraw"]


class NotRanked(ValueError):
    """The submission has not passed or is not of the ranked tier, so it has no leaderboard entry to be withdrawn."""


class NotPublishable(ValueError):
    """The requested visibility shows less of the submission than others could see before, or its problem is private."""


def withdraw(session: Session, submission_id: str, reason: str, by: str | None) -> Submission:
    """Withdraw the submission from the leaderboards; one that is withdrawn already stays as it is.

    Raises ``UnknownSubmission``, ``NotRanked``.
    """
    submission = _locked(session, submission_id)
    if submission.evaluation is None or submission.evaluation.verdict != Verdict.PASSED:
        raise NotRanked(f"submission {submission_id} has not passed, and is on no leaderboard")
    if submission.tier != RANKED_TIER:
        raise NotRanked(f"submission {submission_id} is of the tier {submission.tier}, which is on no leaderboard")
    if submission.withdrawn_at is not None:
        return submission
    submission.withdrawn_at = database_now(session)
    submission.withdrawn_by, submission.withdrawn_reason = by, reason
    session.flush()
    rebuild_entries(session, submission)
    audit.record(session, "submission.withdrawn", by=by, subject=submission_id, reason=reason)
    return submission


def reinstate(session: Session, submission_id: str, by: str | None) -> Submission:
    """Reinstate a withdrawn submission on the leaderboards. Raises ``UnknownSubmission``."""
    submission = _locked(session, submission_id)
    if submission.withdrawn_at is None:
        return submission
    was = {"withdrawn_by": submission.withdrawn_by, "reason": submission.withdrawn_reason}
    submission.withdrawn_at = submission.withdrawn_by = submission.withdrawn_reason = None
    session.flush()
    rebuild_entries(session, submission)
    audit.record(session, "submission.reinstated", by=by, subject=submission_id, **was)
    return submission


def publish(session: Session, submission_id: str, visibility: Visibility, by: str | None) -> Submission:
    """Widen the visibility of the submission. Raises ``UnknownSubmission``, ``NotPublishable``."""
    submission = _locked(session, submission_id)
    before = Visibility(submission.visibility)
    if not before.opens_to(visibility):
        raise NotPublishable(f"submission {submission_id} is {before}: it cannot become {visibility} any more")
    if before is visibility:
        return submission
    if is_private(session, submission.problem):
        raise NotPublishable(f"problem {submission.problem} is private, and so are all submissions to it")
    submission.visibility = str(visibility)
    # From now on, equal lines must not get a submission that was handed in under another visibility.
    submission.dedup_key = None
    session.flush()
    if before is Visibility.PRIVATE and submission.evaluation is not None:
        count_verdicts(session, {outcome_of(submission, submission.evaluation.to_evaluation()): 1})
        rebuild_entries(session, submission)
    details = {"before": str(before), "after": str(visibility)}
    audit.record(session, "submission.published", by=by, subject=submission_id, **details)
    return submission


def rebuild_entries(session: Session, *submissions: Submission) -> None:
    """Rebuild those parts of rankings that depend on any of ``submissions``, from the stored evaluations."""
    parts: dict[int, list[Submission]] = {}
    for submission in submissions:
        if submission.evaluation is None or submission.tier != RANKED_TIER or is_requested(submission.problem):
            continue
        # Its publication would otherwise find no entry yet, and leave one of a private submission on a public board.
        hold_visibility(session, submission.problem)
        evaluation = submission.evaluation.to_evaluation()
        admitted = submission.withdrawn_at is None
        for result in results_of(evaluation):
            figures = figures_of(evaluation, result) if admitted else {}
            locked = locked_ranking(session, submission, evaluation, result, figures)
            parts.setdefault(locked.id, []).append(submission)
    # Each ranking once: for a shape, that reads the record of every later submission.
    for ranking_id, own in parts.items():
        _rebuild(session, session.get_one(StoredRanking, ranking_id, populate_existing=True), own)


def _rebuild(session: Session, ranking: StoredRanking, submissions: Sequence[Submission]) -> None:
    for each in {entry_key_of(each): each for each in submissions}.values():
        _rebuild_entry(session, ranking, each)
    for each in {each.author: each for each in submissions}.values():
        _rebuild_author(session, ranking, each)
    _rebuild_records(session, ranking, submissions)
    own = StoredLeaderboardEntry.ranking_id == ranking.id
    ranking.entries = session.scalar(select(func.count()).select_from(StoredLeaderboardEntry).where(own)) or 0
    ranking.best = session.scalar(select(func.max(StoredLeaderboardEntry.certain_speedup)).where(own)) or 0.0
    session.flush()


def _locked(session: Session, submission_id: str) -> Submission:
    # By the id alone: PostgreSQL does not lock rows of the nullable side of an outer join.
    session.execute(select(Submission.id).where(Submission.id == submission_id).with_for_update())
    submission = session.get(Submission, submission_id, populate_existing=True)
    if submission is None:
        raise UnknownSubmission(f"no submission {submission_id}")
    return submission


def _ranked(ranking: StoredRanking, *columns: Any) -> Select[Any]:
    """Return a query for columns of all submissions that ``ranking`` may rank, with any software.

    It includes those that are not the best of their entry key. ``_result_in`` then checks the software.
    """
    query = (
        select(*columns)
        .join(StoredEvaluation, StoredEvaluation.submission_id == Submission.id)
        .where(
            *(
                getattr(Submission, name) == getattr(ranking, name)
                for name in ("problem", "problem_version", "device", "precision", "baseline")
            ),
            Submission.size == split_name(ranking.size)[0],
            Submission.tier == RANKED_TIER,
            Submission.status == Status.DONE,
            Submission.verifies.is_(None),
            Submission.withdrawn_at.is_(None),
            ranked_among_its_like(),
            StoredEvaluation.verdict == Verdict.PASSED,
            func.coalesce(StoredEvaluation.device_name, "") == ranking.device_name,
        )
    )
    if _shape_of(ranking) == "":  # the figures of shapes are in the records alone
        query = query.where(_certain(ranking).is_not(None))
    return query if ranking.track == "inference" else query.where(StoredEvaluation.gradients == Gradients.MATCH)


def _shape_of(ranking: StoredRanking) -> str:
    return split_name(ranking.size)[1] or ""


def _certain(ranking: StoredRanking) -> Any:
    inference = ranking.track == "inference"
    return StoredEvaluation.certain_speedup if inference else StoredEvaluation.certain_speedup_training


def _rebuild_entry(session: Session, ranking: StoredRanking, submission: Submission) -> None:
    """Rebuild the entry of the author and source of ``submission``: their best result."""
    key = {"ranking_id": ranking.id, "entry_key": entry_key_of(submission)}
    session.execute(delete(StoredLeaderboardEntry).filter_by(**key).execution_options(synchronize_session="fetch"))
    own = _ranked(ranking, Submission.id).where(
        Submission.source_digest == submission.source_digest,
        Submission.author.is_not_distinct_from(submission.author),
    )
    fastest: tuple[Submission, Evaluation, Result] | None = None
    # Of a size, the fastest come first. The figures of a shape are in the records alone, so each is read.
    order = () if _shape_of(ranking) else (_certain(ranking).desc(),)
    for submission_id in session.scalars(own.order_by(*order, Submission.submitted_at, Submission.id)).all():
        each = session.get_one(Submission, submission_id)
        found = _result_in(each, ranking)
        if found is not None and (fastest is None or found[1].certain_speedup > fastest[2].certain_speedup):
            fastest = (each, *found)
            if not _shape_of(ranking):
                break
    if fastest is not None:
        best, evaluation, result = fastest
        assert best.finished_at is not None
        verification = session.get(StoredVerification, best.id, populate_existing=True)
        known = None if verification is None else verification.status
        session.add(StoredLeaderboardEntry(**key, **entry_values(best, evaluation, result, best.finished_at, known)))
        session.flush()


def _result_in(submission: Submission, ranking: StoredRanking) -> tuple[Evaluation, Result] | None:
    """Return what ``ranking`` ranks of ``submission``; ``None`` under other software, or where there is no figure."""
    assert submission.evaluation is not None
    evaluation = submission.evaluation.to_evaluation()
    if software_of(evaluation.environment) != ranking.software:
        return None
    place = (ranking.track, _shape_of(ranking))
    return next(((evaluation, each) for each in results_of(evaluation) if (each.track, each.shape) == place), None)


def _rebuild_author(session: Session, ranking: StoredRanking, submission: Submission) -> None:
    if submission.author is None:
        return
    key = {"ranking_id": ranking.id, "author": submission.author}
    session.execute(delete(AuthorBest).filter_by(**key).execution_options(synchronize_session="fetch"))
    first = select(
        StoredLeaderboardEntry.submission_id, StoredLeaderboardEntry.speedup, StoredLeaderboardEntry.certain_speedup
    ).filter_by(**key)
    best = session.execute(
        first.order_by(
            StoredLeaderboardEntry.certain_speedup.desc(),
            StoredLeaderboardEntry.finished_at,
            StoredLeaderboardEntry.submission_id,
        ).limit(1)
    ).first()
    if best is not None:
        values = best._asdict()
        session.add(AuthorBest(**key, **values, log_speedup=logarithm_of(best.speedup)))
        session.flush()


def _rebuild_records(session: Session, ranking: StoredRanking, submissions: Sequence[Submission]) -> None:
    """Rebuild the records from the first end of ``submissions`` on; earlier ones do not depend on them."""
    since = min((each.finished_at, each.id) for each in submissions if each.finished_at is not None)
    own = RankingRecord.ranking_id == ranking.id
    moment = tuple_(RankingRecord.finished_at, RankingRecord.submission_id)
    best = session.scalar(select(func.max(RankingRecord.certain_speedup)).where(own, moment < since)) or 0.0
    later = delete(RankingRecord).where(own, moment >= since)
    session.execute(later.execution_options(synchronize_session="fetch"))
    ended = tuple_(Submission.finished_at, Submission.id)
    certain = null() if _shape_of(ranking) else _certain(ranking)
    columns = (Submission.id, certain.label("certain"), Submission.author, Submission.label, Submission.finished_at)
    faster = _ranked(ranking, *columns).where(ended >= since)
    if not _shape_of(ranking):
        faster = faster.where(certain > best)
    for row in session.execute(faster.order_by(Submission.finished_at, Submission.id)).all():
        if row.certain is not None and row.certain <= best:
            continue
        found = _result_in(session.get_one(Submission, row.id), ranking)
        if found is not None and found[1].certain_speedup > best:
            best = found[1].certain_speedup
            who = {"submission_id": row.id, "author": row.author, "label": row.label}
            speedups = {"speedup": found[1].speedup, "certain_speedup": best}
            session.add(RankingRecord(ranking_id=ranking.id, finished_at=row.finished_at, **speedups, **who))
    session.flush()
