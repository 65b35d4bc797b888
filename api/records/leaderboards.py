"""Leaderboards as records of the API, and as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final, cast

from sqlalchemy.orm import Session, sessionmaker

from api.records.encoding import to_text
from evaluator.evaluation import Interval
from evaluator.problems.problem import Problem
from evaluator.problems.shapes import split_name
from kerneljudge.records import Board, IntervalRecord, LeaderboardEntry
from storage.access.visibility import Viewer
from storage.leaderboards.read import BoardKey, Entry, every_entry, leaderboard

__all__ = ["BOARD_COLUMNS", "board", "board_rows"]

BOARD_COLUMNS: Final[Mapping[str, type]] = {
    "rank": int, "submission": str, "author": str, "label": str, "speedup": float, "speedup_low": float,
    "speedup_high": float, "speedup_training": float, "speedup_compiled": float, "roofline_share": float,
    "latency_ms": float, "baseline_ms": float, "gradients": str, "device": str, "device_name": str,
    "source_digest": str, "submitted": datetime, "finished": datetime, "software": str, "verification": str,
}  # fmt: skip
"""The columns of a row, with their types."""


def board(session: Session, problem: Problem, key: BoardKey, *, limit: int, cursor: int = 0, viewer: Viewer) -> Board:
    """Return up to ``limit`` entries after the first ``cursor`` ones, with the key that selects them.

    Ranks are counted for each device's name. A problem that vetting has refused has no entries, but the reason.
    """
    refusal = problem.refusal_at(key.precision)
    size, shape = split_name(key.size)
    found = [] if refusal else leaderboard(session, key, limit=limit + 1, cursor=cursor, viewer=viewer)
    return cast(
        Board,
        {
            **{
                name: getattr(key, name)
                for name in ("problem", "device", "device_name", "software", "track", "precision")
            },
            "size": size,
            "shape": shape,
            "problem_version": problem.version,
            "refusal": refusal,
            "entries": [_entry(entry) for entry in found[:limit]],
            "next_cursor": cursor + limit if len(found) > limit else None,
        },
    )


def board_rows(
    readers: sessionmaker[Session], problem: Problem, key: BoardKey, cursor: int, viewer: Viewer
) -> Iterator[dict[str, Any]]:
    """Yield all entries after the first ``cursor`` ones as flat rows of ``BOARD_COLUMNS``. They are read on demand."""
    for entry in () if problem.refusal_at(key.precision) else every_entry(readers, key, cursor, viewer):
        interval = entry.speedup_interval
        low, high = (interval.low, interval.high) if interval else (None, None)
        yield {
            **_entry(entry),
            "submitted": entry.submitted_at,
            "finished": entry.finished_at,
            "speedup_low": low,
            "speedup_high": high,
            "speedup_compiled": entry.speedup_compiled,
            "roofline_share": entry.roofline_share,
        }


def _entry(entry: Entry) -> LeaderboardEntry:
    return LeaderboardEntry(
        rank=entry.rank,
        submission=entry.submission_id,
        author=entry.author,
        label=entry.label,
        speedup=entry.speedup,
        speedup_interval=_interval(entry.speedup_interval),
        speedup_training=entry.speedup_training,
        latency_ms=entry.latency_ms,
        baseline_ms=entry.baseline_ms,
        gradients=entry.gradients,
        device="cuda" if entry.device == "cuda" else "cpu",
        device_name=entry.device_name,
        software=entry.software,
        source_digest=entry.source_digest,
        submitted=to_text(entry.submitted_at),
        finished=to_text(entry.finished_at),
        verification=entry.verification,
    )


def _interval(interval: Interval | None) -> IntervalRecord | None:
    return None if interval is None else IntervalRecord(low=interval.low, high=interval.high, level=interval.level)
