"""Rankings as wholes: their list, their records over time, counts of verdicts, and authors over many rankings.

They are read from the tables of ``storage.leaderboards.entries``; ``storage.leaderboards.read`` has the entries.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, case, exists, func, or_, select
from sqlalchemy.orm import Session, aliased

from evaluator.evaluation import Verdict
from storage.access.visibility import ADMIN_VIEWER, Viewer
from storage.leaderboards.entries import RANKED_TIER
from storage.leaderboards.own import seen_entry
from storage.models import (
    AuthorBest,
    RankingRecord,
    StoredEvaluation,
    StoredLeaderboardEntry,
    StoredProblem,
    StoredRanking,
    Submission,
    VerdictCount,
)

__all__ = [
    "AuthorFigures",
    "author_figures",
    "current_rankings",
    "newest_software",
    "rankings_of",
    "rankings_of_version",
    "records",
    "sample",
    "verdicts_of",
]


@dataclass(frozen=True)
class AuthorFigures:
    """The figures of an author over a set of rankings, one for each problem at most.

    ``problems``: the number of rankings with a result. ``faster``: the number of them with a certain speedup above 1,
    so that the whole interval is. ``log_speedup``: the mean of the speedups' logarithms.
    """

    author: str
    problems: int
    faster: int
    log_speedup: float


def current_rankings() -> Select[StoredRanking]:
    """Return a query for the rankings of problems in their current versions that have entries."""
    return (
        select(StoredRanking)
        .join(
            StoredProblem,
            (StoredProblem.id == StoredRanking.problem) & (StoredProblem.version == StoredRanking.problem_version),
        )
        .where(StoredProblem.current, StoredRanking.entries > 0)
    )


def rankings_of_version(version: str | None) -> Select[StoredRanking]:
    """Return the query of ``current_rankings``, or that of the rankings of one version of a problem."""
    if version is None:
        return current_rankings()
    return select(StoredRanking).where(StoredRanking.problem_version == version, StoredRanking.entries > 0)


def newest_software(viewer: Viewer = ADMIN_VIEWER) -> ColumnElement[bool]:
    """Return the SQL condition that no newer ranking differs in its software alone.

    Only rankings with an entry that ``viewer`` sees count.
    """
    if not viewer.own_only:
        return _newest_software_of_all()
    other = aliased(StoredRanking)
    own = exists().where(
        StoredLeaderboardEntry.ranking_id == other.id, seen_entry(viewer, StoredLeaderboardEntry.submission_id)
    )
    return _newest_software(other, own.correlate(other))


@functools.cache
def _newest_software_of_all() -> ColumnElement[bool]:
    other = aliased(StoredRanking)
    return _newest_software(other, other.entries > 0)


def _newest_software(other: type[StoredRanking], has_entries: ColumnElement[bool]) -> ColumnElement[bool]:
    same = [
        getattr(other, name) == getattr(StoredRanking, name)
        for name in ("problem", "problem_version", "device", "size", "precision", "baseline", "track", "device_name")
    ]
    # Not by the time of the row: a submission that was published late may have been measured under older software.
    newer = or_(
        other.since > StoredRanking.since, and_(other.since == StoredRanking.since, other.id > StoredRanking.id)
    )
    return ~exists().where(*same, newer, has_entries).correlate(StoredRanking)


def rankings_of(
    session: Session,
    problem: str | None = None,
    *,
    version: str | None = None,
    newest: bool = False,
    viewer: Viewer = ADMIN_VIEWER,
) -> Sequence[StoredRanking]:
    """Return the rankings of ``problem`` in its current or another ``version``, or of all problems; the fullest first.

    ``newest``: only the ranking under the newest software of each device. Left out are rankings without an entry that
    ``viewer`` sees. Where a viewer sees own entries alone, ``entries`` and ``best`` are of these.
    """
    query = rankings_of_version(version).order_by(StoredRanking.entries.desc(), StoredRanking.id)
    if newest:
        query = query.where(newest_software(viewer))
    if problem is not None:
        query = query.where(StoredRanking.problem == problem)
    if not viewer.own_only:
        return session.scalars(query).all()
    seen = seen_entry(viewer, StoredLeaderboardEntry.submission_id)
    own = (
        select(StoredLeaderboardEntry.ranking_id, func.count(), func.max(StoredLeaderboardEntry.certain_speedup))
        .where(seen)
        .group_by(StoredLeaderboardEntry.ranking_id)
    )
    figures = {ranking: (entries, best) for ranking, entries, best in session.execute(own)}
    found = list(session.scalars(query.where(StoredRanking.id.in_(figures))))
    for ranking in found:
        # No row of this session any more, so that the changed figures are never stored.
        session.expunge(ranking)
        ranking.entries, ranking.best = figures[ranking.id]
    return sorted(found, key=lambda ranking: (-ranking.entries, ranking.id))


def records(session: Session, ranking: StoredRanking, viewer: Viewer = ADMIN_VIEWER) -> Sequence[RankingRecord]:
    """Return the records of ``ranking`` over time that ``viewer`` sees, the first one first."""
    query = select(RankingRecord).where(
        RankingRecord.ranking_id == ranking.id, seen_entry(viewer, RankingRecord.submission_id)
    )
    return session.scalars(query.order_by(RankingRecord.certain_speedup)).all()


def sample(session: Session, ranking: StoredRanking, limit: int, viewer: Viewer = ADMIN_VIEWER) -> list[Any]:
    """Return the end, the speedup and the submission of up to ``limit`` entries that ``viewer`` sees.

    They are spread over all times, and are the same ones each time.
    """
    query = select(
        StoredLeaderboardEntry.finished_at, StoredLeaderboardEntry.speedup, StoredLeaderboardEntry.submission_id
    )
    # An entry key begins with the digest of its source, so the first keys are as good as a random draw.
    query = query.where(
        StoredLeaderboardEntry.ranking_id == ranking.id, seen_entry(viewer, StoredLeaderboardEntry.submission_id)
    ).order_by(StoredLeaderboardEntry.entry_key)
    return list(session.execute(query.limit(limit)))


def verdicts_of(
    session: Session, problem: str, problem_version: str, viewer: Viewer = ADMIN_VIEWER, *, private: bool = False
) -> Mapping[Verdict, int]:
    """Return the number of evaluations of this version of a problem by verdict, in the ranked tier alone.

    Where a viewer sees own submissions alone, private ones among them are counted as well. So are those of a
    ``private`` problem, of which no counts are kept.
    """
    if viewer.own_only or private:
        own = (
            select(StoredEvaluation.verdict, func.count())
            .join(Submission, Submission.id == StoredEvaluation.submission_id)
            .where(viewer.visible(Submission), Submission.verifies.is_(None), Submission.tier == RANKED_TIER)
            .where(Submission.problem == problem, Submission.problem_version == problem_version)
            .group_by(StoredEvaluation.verdict)
        )
        return {Verdict(verdict): int(count) for verdict, count in session.execute(own)}
    query = (
        select(VerdictCount.verdict, func.sum(VerdictCount.count))
        .where(
            VerdictCount.problem == problem,
            VerdictCount.problem_version == problem_version,
            VerdictCount.tier == RANKED_TIER,
        )
        .group_by(VerdictCount.verdict)
    )
    return {Verdict(verdict): int(count) for verdict, count in session.execute(query)}


def author_figures(
    session: Session, rankings: Collection[int], limit: int, viewer: Viewer = ADMIN_VIEWER
) -> list[AuthorFigures]:
    """Return the first ``limit`` authors over these rankings, by ``faster`` and then by their mean speedup.

    Only results that ``viewer`` sees count.
    """
    if viewer.own_only:
        return _own_author_figures(session, rankings, limit, viewer)
    faster = func.sum(case((AuthorBest.certain_speedup > 1.0, 1), else_=0))
    mean = func.avg(AuthorBest.log_speedup)
    query = (
        select(AuthorBest.author, func.count(), faster, mean)
        .where(AuthorBest.ranking_id.in_(rankings))
        .group_by(AuthorBest.author)
        .order_by(faster.desc(), mean.desc(), AuthorBest.author)
        .limit(limit)
    )
    return [
        AuthorFigures(author, problems, int(ahead), float(logarithm))
        for author, problems, ahead, logarithm in session.execute(query)
    ]


def _own_author_figures(session: Session, rankings: Collection[int], limit: int, viewer: Viewer) -> list[AuthorFigures]:
    """Return the same from the entries that ``viewer`` sees: an author's best may be another client's."""
    entry = StoredLeaderboardEntry
    query = select(entry.ranking_id, entry.author, entry.certain_speedup, entry.speedup).where(
        entry.ranking_id.in_(rankings), entry.author.is_not(None), seen_entry(viewer, entry.submission_id)
    )
    best: dict[str, dict[int, tuple[float, float]]] = defaultdict(dict)
    for ranking, author, certain, speedup in session.execute(query):
        assert author is not None
        best[author][ranking] = max(best[author].get(ranking, (0.0, 0.0)), (certain, speedup))
    figures = [
        AuthorFigures(
            author,
            len(results),
            sum(certain > 1.0 for certain, _ in results.values()),
            math.fsum(math.log(speedup) for _, speedup in results.values()) / len(results),
        )
        for author, results in best.items()
    ]
    return sorted(figures, key=lambda each: (-each.faster, -each.log_speedup, each.author))[:limit]
