"""Tables of leaderboards, and of the verification of records.

They hold no facts beyond those in evaluations, except for verifications. ``storage.leaderboards.entries`` keeps them
up to date.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from sqlalchemy import ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from storage.models.base import Base

__all__ = [
    "AuthorBest",
    "RankingRecord",
    "StoredLeaderboardEntry",
    "StoredRanking",
    "StoredVerification",
    "VerdictCount",
    "VerificationStatus",
]


class VerificationStatus(StrEnum):
    """The state of a record's verification. A record whose verification ``failed`` is on no leaderboard any more."""

    PENDING = "pending"
    VERIFIED = "verified"
    FAILED = "failed"

    @property
    def final(self) -> bool:
        return self is not VerificationStatus.PENDING


class StoredRanking(Base):
    """One ranking: a problem in one version, track, size, precision and baseline, on one device and one software.

    ``software`` is the versions of torch and CUDA; it and ``device_name`` are empty where they are not known.
    ``entries`` counts the leaderboard entries, and ``best`` is the highest certain speedup. ``since``: the time when
    the first ranked submission was handed in. The figures of the reference (``*_ms``, ``limited_by``) are those of the
    latest evaluation.
    """

    __tablename__ = "rankings"
    __table_args__ = (
        UniqueConstraint(
            "problem",
            "problem_version",
            "device",
            "size",
            "precision",
            "baseline",
            "track",
            "device_name",
            "software",
            name="uq_rankings_key",
        ),
    )

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    problem: Mapped[str]
    problem_version: Mapped[str]
    device: Mapped[str]
    size: Mapped[str]
    precision: Mapped[str]
    baseline: Mapped[str]
    track: Mapped[str]
    device_name: Mapped[str]
    software: Mapped[str]
    entries: Mapped[int] = mapped_column(default=0)
    best: Mapped[float] = mapped_column(default=0.0)
    since: Mapped[datetime | None]
    baseline_ms: Mapped[float | None]
    compiled_ms: Mapped[float | None]
    bound_ms: Mapped[float | None]
    limited_by: Mapped[str | None]


class StoredLeaderboardEntry(Base):
    """The best result of one author and source in one ranking; ``entry_key`` stands for the two.

    ``speedup``, its interval and the latencies are those of the ranking's track. Entries are ranked by
    ``certain_speedup``, the lower end of the interval, so that an uncertain measurement gains nothing.
    ``verification``: the state of the submission's verification, where it was a record (see ``StoredVerification``).
    """

    __tablename__ = "leaderboard_entries"
    __table_args__ = (
        Index(None, "ranking_id", "certain_speedup"),
        Index(None, "ranking_id", "author", "certain_speedup"),
        Index(None, "ranking_id", "label", "certain_speedup"),
    )

    ranking_id: Mapped[int] = mapped_column(ForeignKey("rankings.id"), primary_key=True)
    entry_key: Mapped[str] = mapped_column(primary_key=True)
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"))
    author: Mapped[str | None]
    label: Mapped[str | None]
    source_digest: Mapped[str]
    gradients: Mapped[str]
    speedup: Mapped[float]
    certain_speedup: Mapped[float] = mapped_column(default=0.0, server_default="0")
    speedup_low: Mapped[float | None]
    speedup_high: Mapped[float | None]
    level: Mapped[float | None]
    speedup_training: Mapped[float | None]
    training_low: Mapped[float | None]
    training_high: Mapped[float | None]
    speedup_compiled: Mapped[float | None]
    roofline_share: Mapped[float | None]
    latency_ms: Mapped[float | None]
    baseline_ms: Mapped[float | None]
    submitted_at: Mapped[datetime]
    finished_at: Mapped[datetime]
    verification: Mapped[str | None]


class RankingRecord(Base):
    """A submission that was the fastest of its ranking when it finished."""

    __tablename__ = "ranking_records"

    ranking_id: Mapped[int] = mapped_column(ForeignKey("rankings.id"), primary_key=True)
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"), primary_key=True)
    speedup: Mapped[float]
    certain_speedup: Mapped[float] = mapped_column(default=0.0, server_default="0")
    author: Mapped[str | None]
    label: Mapped[str | None]
    finished_at: Mapped[datetime]


class AuthorBest(Base):
    """The best result of one author in one ranking. ``log_speedup``: the logarithm, for geometric means."""

    __tablename__ = "author_bests"

    ranking_id: Mapped[int] = mapped_column(ForeignKey("rankings.id"), primary_key=True)
    author: Mapped[str] = mapped_column(primary_key=True)
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"))
    speedup: Mapped[float]
    certain_speedup: Mapped[float] = mapped_column(default=0.0, server_default="0")
    log_speedup: Mapped[float]


class VerdictCount(Base):
    """The number of evaluations of a problem in one tier that ended with one verdict."""

    __tablename__ = "verdict_counts"

    problem: Mapped[str] = mapped_column(primary_key=True)
    problem_version: Mapped[str] = mapped_column(primary_key=True)
    device: Mapped[str] = mapped_column(primary_key=True)
    verdict: Mapped[str] = mapped_column(primary_key=True)
    tier: Mapped[str] = mapped_column(primary_key=True)
    count: Mapped[int]


class StoredVerification(Base):
    """The verification of the record that a submission has set, by re-evaluations.

    The re-evaluations are submissions, whose ``verifies`` names this one. ``message``: their result, or the obstacle to
    one.
    """

    __tablename__ = "verifications"

    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"), primary_key=True)
    status: Mapped[str]
    message: Mapped[str]
    requested_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]

    @property
    def state(self) -> VerificationStatus:
        """``status`` as the enumeration."""
        return VerificationStatus(self.status)
