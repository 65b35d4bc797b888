"""Counts that outlive every process, written in the transaction of the counted event.

A count and its event are therefore stored together or not at all, whichever process ends when. Each count is spread
over a few rows, of which a transaction takes one at random, so that two transactions seldom wait for each other.
Counts are written at the very end of a transaction, in one order everywhere. These locks are then the last ones, and
no deadlock can arise.
"""

from __future__ import annotations

import json
import secrets
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from storage.models import StoredCount
from storage.upsert import insert_into

__all__ = [
    "Counted",
    "Histogram",
    "Timed",
    "count",
    "forget_noted",
    "observe",
    "read_counts",
    "read_times",
    "write_noted",
]

_KEY: Final = "storage.metrics.counters"
_SHARDS: Final = 8
_SUM: Final = "sum"

Labels = tuple[str, ...]


@dataclass(frozen=True)
class Counted:
    """A counter by the values of ``labels``; ``values`` lists the possible values of each, where they are known."""

    name: str
    labels: Labels
    description: str
    values: tuple[Labels, ...] = ()


@dataclass(frozen=True)
class Timed:
    """A histogram of seconds, with a bucket up to each of ``bounds_s``; the rest is as in ``Counted``."""

    name: str
    labels: Labels
    description: str
    bounds_s: tuple[float, ...]
    values: tuple[Labels, ...] = ()


@dataclass(frozen=True)
class Histogram:
    """The cumulative numbers of values up to each bound, in the order of the bounds, and at last of all values."""

    up_to: tuple[int, ...]
    sum_s: float


def count(session: Session, what: Counted, *labels: str, by: int = 1) -> None:
    """Add ``by``, which may be negative, to a count if and when ``session`` commits."""
    _note(session, what.name, labels, by, len(what.labels))


def observe(session: Session, what: Timed, *labels: str, seconds: float) -> None:
    """Count one duration, if and when ``session`` commits."""
    seconds = max(0.0, seconds)
    bucket = bisect_left(what.bounds_s, seconds)
    bound = "inf" if bucket == len(what.bounds_s) else repr(what.bounds_s[bucket])
    _note(session, what.name, (*labels, bound), 1, len(what.labels) + 1)
    _note(session, what.name, (*labels, _SUM), seconds, len(what.labels) + 1)


def write_noted(session: Session) -> None:
    """Write the counts noted in ``session``. Its factory calls this before a commit (see ``storage.database``)."""
    if session.in_nested_transaction():
        return
    noted: dict[tuple[str, str], float] = session.info.pop(_KEY, {})
    shard = secrets.randbelow(_SHARDS)
    rows = [
        {"name": name, "labels": labels, "shard": shard, "value": value}
        for (name, labels), value in sorted(noted.items())
        if value
    ]
    if rows:
        session.flush()
        new = insert_into(session, StoredCount).values(rows)
        more = {"value": StoredCount.value + new.excluded["value"]}
        session.execute(new.on_conflict_do_update(index_elements=["name", "labels", "shard"], set_=more))


def forget_noted(session: Session) -> None:
    """Forget the counts noted in ``session``, because its transaction was rolled back."""
    session.info.pop(_KEY, None)


def read_counts(session: Session, what: Sequence[Counted]) -> Mapping[Counted, Mapping[Labels, int]]:
    """Return every count that was ever written, by counter and by the values of its labels."""
    rows = _read(session, [each.name for each in what])
    return {each: {labels: round(value) for labels, value in rows[each.name].items()} for each in what}


def read_times(session: Session, what: Timed) -> Mapping[Labels, Histogram]:
    """Return the histograms of ``what`` by the values of its labels; a former bound counts for the next one."""
    buckets: defaultdict[Labels, list[int]] = defaultdict(lambda: [0] * (len(what.bounds_s) + 1))
    sums: dict[Labels, float] = {}
    for (*labels, bound), value in _read(session, [what.name])[what.name].items():
        key = tuple(labels)
        if bound == _SUM:
            sums[key] = value
        else:
            buckets[key][bisect_left(what.bounds_s, float(bound))] += round(value)
    return {key: Histogram(_cumulated(found), sums.get(key, 0.0)) for key, found in buckets.items()}


def _note(session: Session, name: str, labels: Labels, value: float, width: int) -> None:
    if len(labels) != width:
        raise ValueError(f"{name} is counted by {width} labels, not by {labels}")
    if not session.in_transaction():
        session.begin()  # otherwise there would be nothing to roll back
    noted: dict[tuple[str, str], float] = session.info.setdefault(_KEY, {})
    key = (name, json.dumps(labels))
    noted[key] = noted.get(key, 0) + value


def _read(session: Session, names: Sequence[str]) -> Mapping[str, Mapping[Labels, float]]:
    total: Any = func.sum(StoredCount.value)
    query = select(StoredCount.name, StoredCount.labels, total).where(StoredCount.name.in_(names))
    found: dict[str, dict[Labels, float]] = {name: {} for name in names}
    for name, labels, value in session.execute(query.group_by(StoredCount.name, StoredCount.labels)):
        found[name][tuple(json.loads(labels))] = value
    return found


def _cumulated(counts: Sequence[int]) -> tuple[int, ...]:
    return tuple(sum(counts[: number + 1]) for number in range(len(counts)))
