"""Who is fastest: at one problem, and at the head of each."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

from sqlalchemy import ColumnElement, Select, func, select, tuple_
from sqlalchemy.orm import Session

from evaluator.evaluation import Gradients, Interval, Status, Verdict
from storage.models import StoredEvaluation, StoredProblem, Submission

__all__ = ["Entry", "Ranking", "Track", "leaderboard", "leaders"]

Track = Literal["inference", "training"]

# Null sorts differently on SQLite and PostgreSQL.
_MEASURED_ON = func.coalesce(StoredEvaluation.device_name, "")


class Ranking(NamedTuple):
    """What is ranked together, but for the device's name."""

    problem: str
    device_kind: str
    size: str
    precision: str


@dataclass(frozen=True)
class Entry:
    """One ranked result. ``speedup`` and ``latency_ms`` are those of the track.

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
    order = _order(track)
    admitted = _admitted(track).where(
        Submission.problem == problem,
        Submission.device == device_kind,
        Submission.size == size,
        Submission.precision == precision,
        Submission.baseline == baseline,
    )
    place = func.row_number().over(
        partition_by=(_MEASURED_ON, Submission.author, Submission.source_digest), order_by=order
    )
    admitted = admitted.add_columns(place.label("place"))
    if device_name is not None:
        admitted = admitted.where(StoredEvaluation.device_name == device_name)
    best = admitted.subquery()
    rank = func.row_number().over(
        partition_by=best.c.measured_on, order_by=(best.c.speedup.desc(), best.c.submitted_at, best.c.id)
    )
    ranked = select(best.c.id, best.c.measured_on, rank.label("rank")).where(best.c.place == 1).subquery()
    query = (
        select(Submission, ranked.c.rank)
        .join(ranked, ranked.c.id == Submission.id)
        .order_by(ranked.c.measured_on, ranked.c.rank)
        .offset(cursor)
        .limit(limit)
    )
    return [_entry(rank, row, track) for row, rank in session.execute(query).unique()]


def leaders(session: Session, rankings: Collection[Ranking], track: Track = "inference") -> list[Entry]:
    """The first of each ranking, of each device that was measured on: by problem, kind and name of the device.

    One query, however many rankings there are.
    """
    place = func.row_number().over(
        partition_by=(Submission.problem, Submission.device, Submission.size, Submission.precision, _MEASURED_ON),
        order_by=_order(track),
    )
    asked_for = tuple_(Submission.problem, Submission.device, Submission.size, Submission.precision)
    placed = (
        _admitted(track)
        .add_columns(place.label("place"))
        .where(asked_for.in_([tuple(ranking) for ranking in rankings]), Submission.baseline == "eager")
        .subquery()
    )
    query = (
        select(Submission)
        .join(placed, placed.c.id == Submission.id)
        .where(placed.c.place == 1)
        .order_by(Submission.problem, Submission.device.desc(), placed.c.measured_on)
    )
    return [_entry(1, row, track) for row in session.execute(query).unique().scalars()]


def _speedup(track: Track) -> ColumnElement[float | None]:
    return StoredEvaluation.speedup.expression if track == "inference" else StoredEvaluation.speedup_training.expression


def _order(track: Track) -> tuple[ColumnElement[Any], ...]:
    return _speedup(track).desc(), Submission.submitted_at.expression, Submission.id.expression


def _admitted(track: Track) -> Select[str, float | None, str, datetime]:
    """What passed against a problem's current version, and has a speedup on the track."""
    speedup = _speedup(track)
    admitted = (
        select(
            Submission.id.label("id"),
            speedup.label("speedup"),
            _MEASURED_ON.label("measured_on"),
            Submission.submitted_at.label("submitted_at"),
        )
        .join(StoredEvaluation, StoredEvaluation.submission_id == Submission.id)
        .join(
            StoredProblem,
            (StoredProblem.id == Submission.problem) & (StoredProblem.version == Submission.problem_version),
        )
        .where(
            StoredProblem.current,
            Submission.status == Status.DONE,
            StoredEvaluation.verdict == Verdict.PASSED,
            speedup.is_not(None),
        )
    )
    return admitted.where(StoredEvaluation.gradients == Gradients.MATCH) if track == "training" else admitted


def _entry(rank: int, submission: Submission, track: Track) -> Entry:
    stored = submission.evaluation
    assert stored is not None
    assert submission.finished_at is not None
    evaluation = stored.to_evaluation()
    training = track == "training"
    speedup = evaluation.speedup_training if training else evaluation.speedup
    latency = evaluation.latency_training_ms if training else evaluation.latency_ms
    assert speedup is not None
    values: dict[str, Any] = {
        name: getattr(submission, name)
        for name in ("author", "label", "problem", "problem_version", "size", "precision", "source_digest")
    }
    return Entry(
        rank=rank,
        submission_id=submission.id,
        speedup=speedup,
        speedup_interval=evaluation.speedup_training_interval if training else evaluation.speedup_interval,
        speedup_training=evaluation.speedup_training,
        speedup_training_interval=evaluation.speedup_training_interval,
        latency_ms=None if latency is None else latency.candidate,
        baseline_ms=None if latency is None else latency.baseline,
        gradients=evaluation.gradients,
        device=submission.device,
        device_name=stored.device_name,
        submitted_at=submission.submitted_at,
        finished_at=submission.finished_at,
        **values,
    )
