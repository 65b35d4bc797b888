"""Leaderboards as the API and its pages show them."""

from __future__ import annotations

import csv
import io
from typing import Any

from sqlalchemy.orm import Session

from api.records import leaderboard_entry
from api.schemas import Board, DeviceKind, Track
from evaluator.problem import Problem
from storage.leaderboard import Entry, leaderboard

__all__ = ["board", "board_csv"]

_COLUMNS = (
    "rank", "submission", "author", "label", "speedup", "speedup_low", "speedup_high", "speedup_training",
    "latency_ms", "baseline_ms", "gradients", "device", "device_name", "source_digest", "submitted", "finished",
)  # fmt: skip
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def board(
    session: Session,
    problem: Problem,
    device: DeviceKind,
    track: Track,
    *,
    size: str,
    precision: str,
    device_name: str | None = None,
    limit: int,
    cursor: int = 0,
) -> Board:
    """Up to ``limit`` entries after the first ``cursor`` ones; ranks are counted for each device's name.

    A problem that vetting has refused has no entries, and the reason instead.
    """
    found: list[Entry] = []
    if problem.refusal is None:
        found = leaderboard(
            session,
            problem.id,
            device,
            track,
            precision=precision,
            size=size,
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


def board_csv(ranked: Board) -> str:
    """``ranked`` as CSV with a header line; texts that a spreadsheet would run as formulas are quoted."""
    out = io.StringIO()
    writer = csv.DictWriter(out, _COLUMNS)
    writer.writeheader()
    for entry in ranked.entries:
        row: dict[str, Any] = entry.model_dump(mode="json", exclude={"speedup_interval"})
        interval = entry.speedup_interval
        row["speedup_low"], row["speedup_high"] = (interval.low, interval.high) if interval else (None, None)
        writer.writerow({name: _inert(value) for name, value in row.items()})
    return out.getvalue()


def _inert(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA_STARTS) else value
