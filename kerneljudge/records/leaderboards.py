"""Leaderboards."""

from __future__ import annotations

from typing_extensions import TypedDict

from kerneljudge.records.evaluations import IntervalRecord
from kerneljudge.records.types import DeviceKind, GradientsName, Timestamp, Track, VerificationStatusName

__all__ = ["Board", "LeaderboardEntry"]


class LeaderboardEntry(TypedDict):
    """One ranked result."""

    rank: int
    """Counts from 1 for each `device_name`: neither different devices nor different versions of torch and CUDA are
    ranked together.
    """
    submission: str
    author: str | None
    label: str | None
    speedup: float
    """That of the track."""
    speedup_interval: IntervalRecord | None
    speedup_training: float | None
    latency_ms: float | None
    baseline_ms: float | None
    gradients: GradientsName
    device: DeviceKind
    device_name: str | None
    software: str | None
    """The versions of torch and CUDA."""
    source_digest: str
    submitted: Timestamp
    finished: Timestamp
    verification: VerificationStatusName | None
    """Of an entry that made a record: the state of its re-evaluation."""


class Board(TypedDict):
    """A leaderboard: one problem, kind of device, track, size or shape, and precision."""

    problem: str
    problem_version: str
    device: DeviceKind
    device_name: str | None
    """As asked for; null: the ranking of each device, one after another."""
    software: str | None
    """As asked for; null: the newest that each device was measured under."""
    track: Track
    size: str
    shape: str | None
    """A timed shape of the size, `*` for the mean of the size and these, or null: the size alone."""
    precision: str
    refusal: str | None
    """Why the problem is not ranked; then there are no entries."""
    entries: list[LeaderboardEntry]
    next_cursor: int | None
