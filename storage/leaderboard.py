"""Who is fastest: at one problem, at the head of each, and over many. Read from what ``storage.standings`` keeps."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

from sqlalchemy import Select, case, func, select, tuple_, union_all
from sqlalchemy.orm import Session, aliased

from evaluator.evaluation import Gradients, Interval, Verdict
from storage.models import AuthorBest, RankingRecord, Standing, StoredProblem, StoredRanking, VerdictCount

__all__ = [
    "AuthorFigures",
    "Entry",
    "Ranking",
    "Track",
    "author_figures",
    "ends_above",
    "leaderboard",
    "leaders",
    "rankings_of",
    "records",
    "sample",
    "standings",
    "verdicts_of",
]

Track = Literal["inference", "training"]

_FASTEST_FIRST = (Standing.speedup.desc(), Standing.submitted_at, Standing.submission_id)


class Ranking(NamedTuple):
    """What is ranked together, but for the device's name."""

    problem: str
    device_kind: str
    size: str
    precision: str


@dataclass(frozen=True)
class Entry:
    """One ranked result. ``speedup``, ``roofline_share`` and ``latency_ms`` are those of the track.

    ``rank`` counts from 1 for each ``device_name``. ``speedup_training`` is there on either track, where
    it was measured.
    """

    rank: int
    submission_id: str
    author: str | None
    label: str | None
    speedup: float
    speedup_interval: Interval | None
    speedup_training: float | None
    speedup_training_interval: Interval | None
    speedup_compiled: float | None
    roofline_share: float | None
    latency_ms: float | None
    baseline_ms: float | None
    gradients: Gradients
    device: str
    device_name: str | None
    problem: str
    problem_version: str
    size: str
    precision: str
    source_digest: str
    submitted_at: datetime
    finished_at: datetime


@dataclass(frozen=True)
class AuthorFigures:
    """What an author amounts to over a set of rankings, one for each problem at most.

    ``faster``: how many of them he has a speedup above 1 in. ``log_speedup``: the mean of the logarithms.
    """

    author: str
    problems: int
    faster: int
    log_speedup: float


def leaderboard(
    session: Session,
    problem: str,
    device_kind: str,
    track: Track = "inference",
    *,
    precision: str = "float32",
    size: str = "full",
    baseline: str = "eager",
    device_name: str | None = None,
    limit: int = 50,
    cursor: int = 0,
) -> list[Entry]:
    """Up to ``limit`` entries after the first ``cursor`` ones, the fastest first.

    Ranks what passed against the problem's current version, the best result of each author and source.
    The training track admits only gradients that match. Equal speedups rank by who was first.

    What different devices measured is never ranked together: without a ``device_name``, one ranking
    follows the other, by the device's name.
    """
    asked = _current().where(
        StoredRanking.problem == problem,
        StoredRanking.device == device_kind,
        StoredRanking.track == track,
        StoredRanking.size == size,
        StoredRanking.precision == precision,
        StoredRanking.baseline == baseline,
    )
    if device_name is not None:
        asked = asked.where(StoredRanking.device_name == device_name)
    rankings = session.scalars(asked.order_by(StoredRanking.device_name)).all()
    places: list[tuple[StoredRanking, int]] = []
    parts = []
    before = 0
    for ranking in rankings:
        first, last = max(cursor - before, 0), min(cursor + limit - before, ranking.entries)
        before += ranking.entries
        if first < last:
            part = _ranked(ranking.id).offset(first).limit(last - first)
            parts.append(select(part.subquery()))
            places.append((ranking, first))
    if not parts:
        return []
    found: dict[int, list[Any]] = {}
    for row in session.execute(union_all(*parts)):
        found.setdefault(row.ranking_id, []).append(row)
    return [
        _entry(rank, row, ranking)
        for ranking, first in places
        for rank, row in enumerate(sorted(found.get(ranking.id, []), key=_place), first + 1)
    ]


def leaders(session: Session, rankings: Collection[Ranking], track: Track = "inference") -> list[Entry]:
    """The first of each ranking, of each device that was measured on: by problem, kind and name of the device.

    One query, however many rankings there are.
    """
    asked_for = tuple_(StoredRanking.problem, StoredRanking.device, StoredRanking.size, StoredRanking.precision)
    other = aliased(Standing)
    first = (
        select(other.contender)
        .where(other.ranking_id == StoredRanking.id)
        .order_by(other.speedup.desc(), other.submitted_at, other.submission_id)
        .limit(1)
        .correlate(StoredRanking)
        .scalar_subquery()
    )
    query = (
        _current()
        .add_columns(Standing)
        .join(Standing, (Standing.ranking_id == StoredRanking.id) & (Standing.contender == first))
        .where(
            asked_for.in_([tuple(ranking) for ranking in rankings]),
            StoredRanking.track == track,
            StoredRanking.baseline == "eager",
        )
        .order_by(StoredRanking.problem, StoredRanking.device.desc(), StoredRanking.device_name)
    )
    return [_entry(1, row, ranking) for ranking, row in session.execute(query)]


def rankings_of(session: Session, problem: str | None = None) -> Sequence[StoredRanking]:
    """Everything that is ranked of ``problem`` in its current version, or of all; the fullest first."""
    query = _current().order_by(StoredRanking.entries.desc(), StoredRanking.id)
    return session.scalars(query if problem is None else query.where(StoredRanking.problem == problem)).all()


def standings(
    session: Session,
    ranking: StoredRanking,
    *,
    author: str | None = None,
    label: str | None = None,
    limit: int = 50,
    cursor: int = 0,
) -> list[Entry]:
    """Up to ``limit`` entries of one ranking after the first ``cursor``, of one author or label where that is given.

    ``rank`` counts what meets the conditions.
    """
    query = _ranked(ranking.id).offset(cursor).limit(limit)
    if author is not None:
        query = query.where(Standing.author == author)
    if label is not None:
        query = query.where(Standing.label == label)
    return [_entry(rank, row, ranking) for rank, row in enumerate(session.execute(query), cursor + 1)]


def ends_above(session: Session, ranking: StoredRanking, limit: int) -> list[tuple[float, float]]:
    """Where the intervals of the first ``limit`` entries begin and end, the fastest first."""
    ends = [func.coalesce(each, Standing.speedup) for each in (Standing.speedup_low, Standing.speedup_high)]
    query = select(ends[0], ends[1]).where(Standing.ranking_id == ranking.id).order_by(*_FASTEST_FIRST).limit(limit)
    return [(low, high) for low, high in session.execute(query)]


def records(session: Session, ranking: StoredRanking) -> Sequence[RankingRecord]:
    """Who was the fastest when, the first one first."""
    query = select(RankingRecord).where(RankingRecord.ranking_id == ranking.id)
    return session.scalars(query.order_by(RankingRecord.speedup)).all()


def sample(session: Session, ranking: StoredRanking, limit: int) -> list[Any]:
    """When some of the entries finished, their speedups and submissions: the same ones each time, from all times."""
    query = select(Standing.finished_at, Standing.speedup, Standing.submission_id)
    # A contender begins with the digest of its source: the first ones are as good as drawn.
    query = query.where(Standing.ranking_id == ranking.id).order_by(Standing.contender)
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
    faster = func.sum(case((AuthorBest.speedup > 1.0, 1), else_=0))
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


def _current() -> Select[StoredRanking]:
    """The rankings of problems in their current versions."""
    return (
        select(StoredRanking)
        .join(
            StoredProblem,
            (StoredProblem.id == StoredRanking.problem) & (StoredProblem.version == StoredRanking.problem_version),
        )
        .where(StoredProblem.current, StoredRanking.entries > 0)
    )


def _ranked(ranking_id: int) -> Any:
    """The standings of one ranking as plain rows, the fastest first."""
    return select(*Standing.__table__.columns).where(Standing.ranking_id == ranking_id).order_by(*_FASTEST_FIRST)


def _place(row: Any) -> tuple[float, datetime, str]:
    return -row.speedup, row.submitted_at, row.submission_id


def _entry(rank: int, row: Any, ranking: StoredRanking) -> Entry:
    return Entry(
        rank=rank,
        speedup_interval=_interval(row.speedup_low, row.speedup_high, row.level),
        speedup_training_interval=_interval(row.training_low, row.training_high, row.level),
        gradients=Gradients(row.gradients),
        device_name=ranking.device_name or None,
        **{name: getattr(ranking, name) for name in ("device", "problem", "problem_version", "size", "precision")},
        **{
            name: getattr(row, name)
            for name in (
                "submission_id",
                "author",
                "label",
                "speedup",
                "speedup_training",
                "speedup_compiled",
                "roofline_share",
                "latency_ms",
                "baseline_ms",
                "source_digest",
                "submitted_at",
                "finished_at",
            )
        },
    )


def _interval(low: float | None, high: float | None, level: float | None) -> Interval | None:
    if low is None or high is None:
        return None
    return Interval(low, high) if level is None else Interval(low, high, level)
