"""Leaderboard entries, updated in the transaction that stores an evaluation.

The cost of reading a leaderboard therefore depends on the entries shown, not on the number of submissions. Rows are
locked in one order: counts, then rankings by track, then batches (see ``storage.submissions.completion``). Two workers
therefore cannot deadlock.

Withdrawn submissions are on no leaderboard, and private ones only on those of private problems.
``storage.grading.withdrawal`` adds and removes entries later.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from evaluator.evaluation import Evaluation, Gradients, Interval, Latency, TrackFigures
from evaluator.problems.requested import is_requested
from evaluator.problems.shapes import MEAN, full_name
from storage.access.visibility import Visibility
from storage.created_problems import has_leaderboards
from storage.models import AuthorBest, RankingRecord, StoredLeaderboardEntry, StoredRanking, Submission, VerdictCount
from storage.upsert import insert_into

__all__ = [
    "RANKED_TIER",
    "Outcome",
    "Result",
    "add_to_leaderboards",
    "count_verdicts",
    "entry_key_of",
    "entry_values",
    "figures_of",
    "locked_ranking",
    "logarithm_of",
    "outcome_of",
    "results_of",
    "software_of",
]

RANKED_TIER: Final = "full"


class Outcome(NamedTuple):
    """The key of the counts of verdicts."""

    problem: str
    problem_version: str
    device: str
    verdict: str
    tier: str


class Result(NamedTuple):
    """The result of one track of an evaluation, at its size, at a timed ``shape`` of it, or their mean (``MEAN``).

    ``figures`` are all figures of that size or shape.
    """

    track: str
    speedup: float
    interval: Interval | None
    latency: Latency | None
    figures: TrackFigures
    shape: str = ""

    @property
    def certain_speedup(self) -> float:
        """The lower end of the interval, by which entries are ranked; the speedup where there is no interval."""
        return self.speedup if self.interval is None else self.interval.low


def count_verdicts(session: Session, outcomes: Mapping[Outcome, int]) -> None:
    """Count evaluations that were stored just now."""
    # In one order everywhere, as all locks.
    for outcome, count in sorted(outcomes.items()):
        first = insert_into(session, VerdictCount).values(**outcome._asdict(), count=count)
        session.execute(
            first.on_conflict_do_update(
                index_elements=Outcome._fields, set_={"count": VerdictCount.count + first.excluded["count"]}
            )
        )


def add_to_leaderboards(session: Session, submission_id: str, evaluation: Evaluation, now: datetime) -> bool:
    """Count ``evaluation`` and, if it passed, enter it in its leaderboards; return whether it is a record.

    Only the tier ``RANKED_TIER`` is entered, so that all entries aim at the same accuracy. Problems that came with
    requests have no leaderboards.
    """
    # Read again, because its owner may have published it since the worker has read it.
    submission = session.get_one(Submission, submission_id, populate_existing=True)
    if not has_leaderboards(session, submission):
        return False
    if submission.visibility != Visibility.PRIVATE:
        count_verdicts(session, {outcome_of(submission, evaluation): 1})
    if is_requested(submission.problem):
        return False
    record = False
    for result in results_of(evaluation) if submission.tier == RANKED_TIER else ():
        ranking = locked_ranking(session, submission, evaluation, result, figures_of(evaluation, result))
        record |= _upsert_entry(session, ranking, submission, evaluation, result, now)
    return record


def outcome_of(submission: Submission, evaluation: Evaluation) -> Outcome:
    """Return the key by which ``evaluation`` is counted."""
    return Outcome(
        submission.problem, submission.problem_version, submission.device, evaluation.verdict, submission.tier
    )


def software_of(environment: Mapping[str, Any]) -> str:
    """Return the versions of torch and CUDA, where they are known, because the reference's speed depends on them."""
    parts = [
        f"{name} {environment[key]}" for name, key in (("torch", "torch"), ("CUDA", "cuda")) if environment.get(key)
    ]
    return ", ".join(parts) if environment.get("torch") else ""


def results_of(evaluation: Evaluation) -> Iterator[Result]:
    """Yield the result of each track that ``evaluation`` is ranked on."""
    if not evaluation.passed:
        return
    trained = evaluation.gradients is Gradients.MATCH
    yield from _results(evaluation, trained)
    if not evaluation.shapes:
        return
    for name, figures in sorted(evaluation.shapes.items()):
        yield from _results(figures, trained, name)
    mean = TrackFigures(
        speedup=evaluation.speedup_mean,
        speedup_interval=evaluation.speedup_mean_interval,
        speedup_training=evaluation.speedup_training_mean,
        speedup_training_interval=evaluation.speedup_training_mean_interval,
    )
    yield from _results(mean, trained, MEAN)


def _results(figures: TrackFigures, trained: bool, shape: str = "") -> Iterator[Result]:
    if figures.speedup is not None:
        yield Result("inference", figures.speedup, figures.speedup_interval, figures.latency_ms, figures, shape)
    if figures.speedup_training is not None and trained:
        interval, latency = figures.speedup_training_interval, figures.latency_training_ms
        yield Result("training", figures.speedup_training, interval, latency, figures, shape)


def ranked_size(submission: Submission, result: Result) -> str:
    """Return the size of the ranking of ``result``, which may name a shape."""
    return full_name(submission.size, result.shape) if result.shape else submission.size


def figures_of(evaluation: Evaluation, result: Result) -> dict[str, Any]:
    """Return the figures of the reference in an evaluation, as columns of its ranking."""
    bound = result.figures.roofline.get(result.track)
    figures: dict[str, Any] = {}
    if result.latency is not None:
        figures["baseline_ms"] = result.latency.baseline
        if result.track == "inference" and evaluation.speedup_compiled is not None and not result.shape:
            figures["compiled_ms"] = result.latency.candidate * evaluation.speedup_compiled
    if bound is not None:
        figures |= {"bound_ms": bound.bound_ms, "limited_by": bound.limited_by}
    return figures


def locked_ranking(
    session: Session, submission: Submission, evaluation: Evaluation, result: Result, figures: Mapping[str, Any]
) -> Any:
    """Return the id and the best of the ranking, with new ``figures``, locked until the transaction ends."""
    key = {
        "problem": submission.problem,
        "problem_version": submission.problem_version,
        "device": submission.device,
        "size": ranked_size(submission, result),
        "precision": submission.precision,
        "baseline": submission.baseline,
        "track": result.track,
        "device_name": str(evaluation.environment.get("device_name") or ""),
        "software": software_of(evaluation.environment),
    }
    new = insert_into(session, StoredRanking).values(**key, entries=0, best=0.0, since=submission.submitted_at)
    session.execute(new.on_conflict_do_nothing())
    # Written even where nothing changes, for the lock.
    locked = update(StoredRanking).filter_by(**key).values(**figures or {"best": StoredRanking.best})
    return session.execute(
        locked.returning(StoredRanking.id, StoredRanking.best).execution_options(synchronize_session=False)
    ).one()


def _upsert_entry(
    session: Session,
    ranking: Any,
    submission: Submission,
    evaluation: Evaluation,
    result: Result,
    now: datetime,
) -> bool:
    """Enter ``result`` in its ranking; return whether it is the fastest there now."""
    values = entry_values(submission, evaluation, result, now)
    key = (ranking.id, entry_key_of(submission))
    entry = session.get(StoredLeaderboardEntry, key, populate_existing=True)
    if entry is None:
        session.add(StoredLeaderboardEntry(ranking_id=key[0], entry_key=key[1], **values))
        more = update(StoredRanking).where(StoredRanking.id == ranking.id).values(entries=StoredRanking.entries + 1)
        session.execute(more.execution_options(synchronize_session=False))
    elif _better(result.certain_speedup, submission, entry):
        for name, value in values.items():
            setattr(entry, name, value)
    session.flush()
    if submission.author is not None:
        _best_of_author(session, ranking.id, submission, submission.author, result)
    record = bool(result.certain_speedup > ranking.best)
    if record:
        speedups = {"speedup": result.speedup, "certain_speedup": result.certain_speedup}
        who = {"author": submission.author, "label": submission.label}
        session.add(
            RankingRecord(ranking_id=ranking.id, submission_id=submission.id, finished_at=now, **speedups, **who)
        )
        best = update(StoredRanking).where(StoredRanking.id == ranking.id).values(best=result.certain_speedup)
        session.execute(best.execution_options(synchronize_session=False))
        session.flush()
    return record


def entry_values(
    submission: Submission,
    evaluation: Evaluation,
    result: Result,
    finished_at: datetime,
    verification: str | None = None,
) -> dict[str, Any]:
    """Return the columns of the leaderboard entry of one result.

    ``verification``: the state of the verification, where the submission was a record.
    """
    return {
        "author": submission.author,
        "label": submission.label,
        "submission_id": submission.id,
        "source_digest": submission.source_digest,
        "gradients": evaluation.gradients,
        "speedup": result.speedup,
        "certain_speedup": result.certain_speedup,
        "speedup_low": None if result.interval is None else result.interval.low,
        "speedup_high": None if result.interval is None else result.interval.high,
        "level": None if result.interval is None else result.interval.level,
        "speedup_training": result.figures.speedup_training,
        "training_low": _training(result.figures, "low"),
        "training_high": _training(result.figures, "high"),
        "speedup_compiled": None if result.shape else evaluation.speedup_compiled,
        "roofline_share": _share(result.figures, result.track),
        "latency_ms": None if result.latency is None else result.latency.candidate,
        "baseline_ms": None if result.latency is None else result.latency.baseline,
        "submitted_at": submission.submitted_at,
        "finished_at": finished_at,
        "verification": verification,
    }


def _best_of_author(session: Session, ranking_id: int, submission: Submission, author: str, result: Result) -> None:
    values = {
        "submission_id": submission.id,
        "speedup": result.speedup,
        "certain_speedup": result.certain_speedup,
        "log_speedup": logarithm_of(result.speedup),
    }
    known = session.execute(select(AuthorBest).filter_by(ranking_id=ranking_id, author=author)).scalar_one_or_none()
    if known is None:
        session.add(AuthorBest(ranking_id=ranking_id, author=author, **values))
    elif result.certain_speedup > known.certain_speedup:
        for name, value in values.items():
            setattr(known, name, value)
    session.flush()


def _better(certain_speedup: float, submission: Submission, current: StoredLeaderboardEntry) -> bool:
    """Whether a result has the higher certain speedup than ``current``, or the same and was handed in earlier."""
    if certain_speedup != current.certain_speedup:
        return certain_speedup > current.certain_speedup
    return (submission.submitted_at, submission.id) < (current.submitted_at, current.submission_id)


def logarithm_of(speedup: float) -> float:
    """Return the logarithm of ``speedup``, for geometric means; 0 where there is none."""
    return math.log(speedup) if 0 < speedup < math.inf else 0.0


def entry_key_of(submission: Submission) -> str:
    """Return one text for each author and source.

    It begins with the digest, which has a fixed length, so that no author's name can lead to another's key.
    """
    digest = submission.source_digest
    return digest if submission.author is None else f"{digest}:{submission.author}"


def _training(figures: TrackFigures, end: str) -> float | None:
    interval = figures.speedup_training_interval
    return None if interval is None else float(getattr(interval, end))


def _share(figures: TrackFigures, track: str) -> float | None:
    roofline = figures.roofline.get(track)
    if roofline is not None:
        return roofline.share
    return figures.roofline_share if track == "inference" else None
