"""Rankings as wholes: which there are, who was the fastest when, how many ended how, and authors over many of them.

Read from what ``storage.leaderboards.entries`` keeps; ``storage.leaderboards.read`` has their entries.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, case, exists, func, or_, select
from sqlalchemy.orm import Session, aliased

from evaluator.evaluation import Verdict
from storage.models import AuthorBest, RankingRecord, StoredLeaderboardEntry, StoredProblem, StoredRanking, VerdictCount

__all__ = [
    "AuthorFigures",
    "author_figures",
    "current_rankings",
    "newest_software",
    "rankings_of",
    "records",
    "sample",
    "verdicts_of",
]


@dataclass(frozen=True)
class AuthorFigures:
    """What an author amounts to over a set of rankings, one for each problem at most.

    ``faster``: how many of them they have a speedup above 1 in, with its whole interval. ``log_speedup``: the mean
    of the logarithms.
    """

    author: str
    problems: int
    faster: int
    log_speedup: float


def current_rankings() -> Select[StoredRanking]:
    """The rankings of problems in their current versions."""
    return (
        select(StoredRanking)
        .join(
            StoredProblem,
            (StoredProblem.id == StoredRanking.problem) & (StoredProblem.version == StoredRanking.problem_version),
        )
        .where(StoredProblem.current, StoredRanking.entries > 0)
    )


@functools.cache
def newest_software() -> ColumnElement[bool]:
    """The condition that no other ranking differs in its software alone and is newer."""
    other = aliased(StoredRanking)
    same = [
        getattr(other, name) == getattr(StoredRanking, name)
        for name in ("problem", "problem_version", "device", "size", "precision", "baseline", "track", "device_name")
    ]
    # Not by when the row was made: what is published late was measured under an older version.
    newer = or_(
        other.since > StoredRanking.since, and_(other.since == StoredRanking.since, other.id > StoredRanking.id)
    )
    return ~exists().where(*same, newer, other.entries > 0).correlate(StoredRanking)


def rankings_of(session: Session, problem: str | None = None, *, newest: bool = False) -> Sequence[StoredRanking]:
    """Everything that is ranked of ``problem`` in its current version, or of all; the fullest first.

    ``newest``: of each device only what was measured under its newest software.
    """
    query = current_rankings().order_by(StoredRanking.entries.desc(), StoredRanking.id)
    if newest:
        query = query.where(newest_software())
    return session.scalars(query if problem is None else query.where(StoredRanking.problem == problem)).all()


def records(session: Session, ranking: StoredRanking) -> Sequence[RankingRecord]:
    """Who was the fastest when, the first one first."""
    query = select(RankingRecord).where(RankingRecord.ranking_id == ranking.id)
    return session.scalars(query.order_by(RankingRecord.certain_speedup)).all()


def sample(session: Session, ranking: StoredRanking, limit: int) -> list[Any]:
    """When some of the entries finished, their speedups and submissions: the same ones each time, from all times."""
    query = select(
        StoredLeaderboardEntry.finished_at, StoredLeaderboardEntry.speedup, StoredLeaderboardEntry.submission_id
    )
    # An entry key begins with the digest of its source: the first ones are as good as drawn.
    query = query.where(StoredLeaderboardEntry.ranking_id == ranking.id).order_by(StoredLeaderboardEntry.entry_key)
    return list(session.execute(query.limit(limit)))


def verdicts_of(session: Session, problem: str, problem_version: str) -> Mapping[Verdict, int]:
    """How many evaluations of this version of a problem ended with each verdict."""
    query = (
        select(VerdictCount.verdict, func.sum(VerdictCount.count))
        .where(VerdictCount.problem == problem, VerdictCount.problem_version == problem_version)
        .group_by(VerdictCount.verdict)
    )
    return {Verdict(verdict): int(count) for verdict, count in session.execute(query)}


def author_figures(session: Session, rankings: Collection[int], limit: int) -> list[AuthorFigures]:
    """The first ``limit`` authors over these rankings: by how many they are faster in, then by their mean speedup."""
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
