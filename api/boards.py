"""Leaderboards as the API shows them, and as tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from sqlalchemy.orm import Session

from api.records import leaderboard_entry
from api.schemas import Board, DeviceKind, Track
from evaluator.problem import Problem
from storage.leaderboard import Entry, leaderboard

__all__ = ["BOARD_COLUMNS", "board", "board_rows", "ranked"]

BOARD_COLUMNS: Final[Mapping[str, type]] = {
    "rank": int, "submission": str, "author": str, "label": str, "speedup": float, "speedup_low": float,
    "speedup_high": float, "speedup_training": float, "speedup_compiled": float, "roofline_share": float,
    "latency_ms": float, "baseline_ms": float, "gradients": str, "device": str, "device_name": str,
    "source_digest": str, "submitted": datetime, "finished": datetime,
}  # fmt: skip
"""What a row has, and of which type, where it is known."""


def ranked(
    session: Session,
    problem: Problem,
    device: DeviceKind,
    track: Track,
    *,
    size: str,
    precision: str,
    baseline: str = "eager",
    device_name: str | None = None,
    limit: int,
    cursor: int = 0,
) -> list[Entry]:
    """Up to ``limit`` entries after the first ``cursor`` ones; ranks are counted for each device's name.

    A problem that vetting has refused has none.
    """
    if problem.refusal is not None:
        return []
    return leaderboard(
        session,
        problem.id,
        device,
        track,
        precision=precision,
        size=size,
        baseline=baseline,
        device_name=device_name,
        limit=limit,
        cursor=cursor,
    )


def board(
    session: Session,
    problem: Problem,
    device: DeviceKind,
    track: Track,
    *,
    size: str,
    precision: str,
    baseline: str = "eager",
    device_name: str | None = None,
    limit: int,
    cursor: int = 0,
) -> Board:
    """A page of ``ranked`` entries with what they were asked for by, or with the reason why there are none."""
    found = ranked(
        session,
        problem,
        device,
        track,
        size=size,
        precision=precision,
        baseline=baseline,
        device_name=device_name,
        limit=limit + 1,
        cursor=cursor,
    )
    return Board(
        problem=problem.id,
        problem_version=problem.version,
        device=device,
        device_name=device_name,
        track=track,
        size=size,
        precision=precision,
        refusal=problem.refusal,
        entries=[leaderboard_entry(entry) for entry in found[:limit]],
        next_cursor=cursor + limit if len(found) > limit else None,
    )


def board_rows(entries: Iterable[Entry]) -> Iterator[dict[str, Any]]:
    """``entries`` as flat rows of ``BOARD_COLUMNS``."""
    for entry in entries:
        interval = entry.speedup_interval
        low, high = (interval.low, interval.high) if interval else (None, None)
        yield {
            **leaderboard_entry(entry).model_dump(exclude={"speedup_interval"}),
            "speedup_low": low,
            "speedup_high": high,
            "speedup_compiled": entry.speedup_compiled,
            "roofline_share": entry.roofline_share,
        }
