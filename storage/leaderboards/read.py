"""Reading leaderboards: the entries of one problem, and the leaders of many.

They are read from the tables of ``storage.leaderboards.entries``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

from sqlalchemy import ColumnElement, Select, and_, func, or_, select, union_all
from sqlalchemy.orm import Session, aliased, sessionmaker

from evaluator.evaluation import Gradients, Interval
from storage.access.visibility import ADMIN_VIEWER, Viewer
from storage.leaderboards.history import current_rankings, newest_software, rankings_of_version
from storage.leaderboards.own import entries_seen, seen_entry
from storage.models import StoredLeaderboardEntry, StoredRanking

__all__ = [
    "BoardKey",
    "Entry",
    "Ranking",
    "Track",
    "ends_above",
    "every_entry",
    "leaderboard",
    "leaderboard_entries",
    "leaders",
]

Track = Literal["inference", "training"]

_AT_ONCE: Final = 500
_FASTEST_FIRST = (
    StoredLeaderboardEntry.certain_speedup.desc(),
    StoredLeaderboardEntry.submitted_at,
    StoredLeaderboardEntry.submission_id,
)


class Ranking(NamedTuple):
    """The key of rankings on all devices of one kind."""

    problem: str
    device_kind: str
    size: str
    precision: str


@dataclass(frozen=True)
class BoardKey:
    """The key of a leaderboard. ``device`` is a kind.

    Results of different devices are never ranked together: without a ``device_name``, one ranking follows the other, by
    the device's name. Results under different versions of torch and CUDA are not ranked together either: without
    ``software``, each device's newest ranking is meant.
    """

    problem: str
    device: str
    track: Track = "inference"
    size: str = "full"
    precision: str = "float32"
    baseline: str = "eager"
    device_name: str | None = None
    software: str | None = None
    problem_version: str | None = None
    """``None``: the current one."""


@dataclass(frozen=True)
class Entry:
    """One ranked result. ``speedup``, ``roofline_share`` and ``latency_ms`` are those of the track.

    ``rank`` counts from 1 for each ``device_name``. ``software``: the versions of torch and CUDA. ``verification``: the
    state of the verification, where the submission was a record. ``speedup_training`` is set on either track, where it
    was measured.
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
    software: str | None
    problem: str
    problem_version: str
    size: str
    precision: str
    source_digest: str
    submitted_at: datetime
    finished_at: datetime
    verification: str | None


def leaderboard(
    session: Session, board: BoardKey, *, limit: int = 50, cursor: int = 0, viewer: Viewer = ADMIN_VIEWER
) -> list[Entry]:
    """Return up to ``limit`` entries after the first ``cursor`` ones, the fastest first.

    Ranked are candidates that passed against the problem's current version, with the best result of each author and
    source. The training track admits only gradients that match. Entries are ordered by the lower end of their interval,
    and with equal ends by the time of submission. Ranks count the entries that ``viewer`` sees.
    """
    places: list[tuple[StoredRanking, int]] = []
    parts: list[Select[Any]] = []
    before = 0
    for ranking in _rankings(session, board, viewer):
        entries = entries_seen(session, ranking, viewer)
        first, last = max(cursor - before, 0), min(cursor + limit - before, entries)
        before += entries
        if first < last:
            parts.append(_ranked(ranking.id, viewer).offset(first).limit(last - first))
            places.append((ranking, first))
    if not parts:
        return []
    found: dict[int, list[Any]] = {}
    # Nearly always there is one ranking, which needs no union.
    query = parts[0] if len(parts) == 1 else union_all(*(select(part.subquery()) for part in parts))
    for row in session.execute(query):
        found.setdefault(row.ranking_id, []).append(row)
    return [
        _entry(rank, row, ranking)
        for ranking, first in places
        for rank, row in enumerate(sorted(found.get(ranking.id, []), key=_place), first + 1)
    ]


def every_entry(
    sessions: sessionmaker[Session], board: BoardKey, cursor: int = 0, viewer: Viewer = ADMIN_VIEWER
) -> Iterator[Entry]:
    """Yield all entries of ``leaderboard`` after the first ``cursor`` ones.

    They are read some hundreds at a time, each time in a new session, so that a slow reader holds no connection. An
    entry that changes meanwhile may be left out.
    """
    with sessions() as session:
        rankings = [(ranking, entries_seen(session, ranking, viewer)) for ranking in _rankings(session, board, viewer)]
    for ranking, entries in rankings:
        before = min(cursor, entries)
        cursor -= before
        query = _ranked(ranking.id, viewer).limit(_AT_ONCE)
        rows = _read(sessions, query.offset(before))
        while rows:
            yield from (_entry(rank, row, ranking) for rank, row in enumerate(rows, before + 1))
            before += len(rows)
            rows = _read(sessions, query.where(_behind(rows[-1])))


def leaders(
    session: Session, rankings: Collection[Ranking], track: Track = "inference", viewer: Viewer = ADMIN_VIEWER
) -> list[Entry]:
    """Return the first entry of each ranking that ``viewer`` sees, for each device and under its newest software.

    Ordered by problem, kind and name of the device. One query for some hundreds of problems, since a query has a
    bounded number of parameters. The baseline is eager.
    """
    problems = sorted({ranking.problem for ranking in rankings})
    found: list[Entry] = []
    for first in range(0, len(problems), _AT_ONCE):
        some = set(problems[first : first + _AT_ONCE])
        found += _leaders(session, {each for each in rankings if each.problem in some}, track, viewer)
    return found


def _leaders(session: Session, rankings: Collection[Ranking], track: Track, viewer: Viewer) -> list[Entry]:
    columns = {
        "problem": StoredRanking.problem,
        "device_kind": StoredRanking.device,
        "size": StoredRanking.size,
        "precision": StoredRanking.precision,
    }
    other = aliased(StoredLeaderboardEntry)
    first = (
        select(other.entry_key)
        .where(other.ranking_id == StoredRanking.id, seen_entry(viewer, other.submission_id))
        .order_by(other.certain_speedup.desc(), other.submitted_at, other.submission_id)
        .limit(1)
        .correlate(StoredRanking)
        .scalar_subquery()
    )
    query = (
        current_rankings()
        .add_columns(StoredLeaderboardEntry)
        .join(
            StoredLeaderboardEntry,
            (StoredLeaderboardEntry.ranking_id == StoredRanking.id) & (StoredLeaderboardEntry.entry_key == first),
        )
        .where(
            *(column.in_({getattr(each, name) for each in rankings}) for name, column in columns.items()),
            StoredRanking.track == track,
            StoredRanking.baseline == "eager",
            newest_software(viewer),
        )
        .order_by(StoredRanking.problem, StoredRanking.device.desc(), StoredRanking.device_name)
    )
    return [
        _entry(1, row, ranking)
        for ranking, row in session.execute(query)
        if Ranking(*(getattr(ranking, column.key) for column in columns.values())) in rankings
    ]


def leaderboard_entries(
    session: Session,
    ranking: StoredRanking,
    *,
    author: str | None = None,
    label: str | None = None,
    limit: int = 50,
    cursor: int = 0,
    viewer: Viewer = ADMIN_VIEWER,
) -> list[Entry]:
    """Return up to ``limit`` entries of one ranking after the first ``cursor``, of one author or label if given.

    ``rank`` counts the entries that meet the conditions and that ``viewer`` sees.
    """
    query = _ranked(ranking.id, viewer).offset(cursor).limit(limit)
    if author is not None:
        query = query.where(StoredLeaderboardEntry.author == author)
    if label is not None:
        query = query.where(StoredLeaderboardEntry.label == label)
    return [_entry(rank, row, ranking) for rank, row in enumerate(session.execute(query), cursor + 1)]


def ends_above(
    session: Session, ranking: StoredRanking, limit: int, viewer: Viewer = ADMIN_VIEWER
) -> list[tuple[float, float]]:
    """Return the ends of the intervals of the first ``limit`` entries that ``viewer`` sees, the fastest first."""
    ends = [
        func.coalesce(each, StoredLeaderboardEntry.speedup)
        for each in (StoredLeaderboardEntry.speedup_low, StoredLeaderboardEntry.speedup_high)
    ]
    query = (
        select(ends[0], ends[1])
        .where(
            StoredLeaderboardEntry.ranking_id == ranking.id, seen_entry(viewer, StoredLeaderboardEntry.submission_id)
        )
        .order_by(*_FASTEST_FIRST)
        .limit(limit)
    )
    return [(low, high) for low, high in session.execute(query)]


def _rankings(session: Session, board: BoardKey, viewer: Viewer) -> Sequence[StoredRanking]:
    asked = {name: value for name, value in vars(board).items() if value is not None}
    query = rankings_of_version(board.problem_version).filter_by(**asked).order_by(StoredRanking.device_name)
    return session.scalars(query if board.software is not None else query.where(newest_software(viewer))).all()


def _read(sessions: sessionmaker[Session], query: Select[Any]) -> Sequence[Any]:
    with sessions() as session:
        return session.execute(query).all()


def _ranked(ranking_id: int, viewer: Viewer) -> Select[Any]:
    """Return a query for the entries of one ranking that ``viewer`` sees as plain rows, the fastest first."""
    return (
        select(*StoredLeaderboardEntry.__table__.columns)
        .where(
            StoredLeaderboardEntry.ranking_id == ranking_id, seen_entry(viewer, StoredLeaderboardEntry.submission_id)
        )
        .order_by(*_FASTEST_FIRST)
    )


def _behind(row: Any) -> ColumnElement[bool]:
    """Return the SQL condition of entries after ``row`` in the order of ``_FASTEST_FIRST``."""
    later = or_(
        StoredLeaderboardEntry.submitted_at > row.submitted_at,
        and_(
            StoredLeaderboardEntry.submitted_at == row.submitted_at,
            StoredLeaderboardEntry.submission_id > row.submission_id,
        ),
    )
    # The first condition is redundant, but lets the database start in the index.
    return and_(
        StoredLeaderboardEntry.certain_speedup <= row.certain_speedup,
        or_(StoredLeaderboardEntry.certain_speedup < row.certain_speedup, later),
    )


def _place(row: Any) -> tuple[float, datetime, str]:
    return -row.certain_speedup, row.submitted_at, row.submission_id


def _entry(rank: int, row: Any, ranking: StoredRanking) -> Entry:
    return Entry(
        rank=rank,
        speedup_interval=_interval(row.speedup_low, row.speedup_high, row.level),
        speedup_training_interval=_interval(row.training_low, row.training_high, row.level),
        gradients=Gradients(row.gradients),
        device_name=ranking.device_name or None,
        software=ranking.software or None,
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
                "verification",
            )
        },
    )


def _interval(low: float | None, high: float | None, level: float | None) -> Interval | None:
    if low is None or high is None:
        return None
    return Interval(low, high) if level is None else Interval(low, high, level)
