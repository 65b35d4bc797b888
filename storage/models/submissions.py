"""Tables of submissions, the attempts on them, and their evaluations."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from sqlalchemy import BigInteger, ForeignKey, ForeignKeyConstraint, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column, relationship

from evaluator.evaluation import Evaluation, Status
from evaluator.problems.vetting import without_figures
from storage.columns import JsonText
from storage.models.base import Base
from storage.models.leases import Leased
from storage.models.problems import StoredSource

__all__ = ["Attempt", "AttemptOutcome", "Stage", "StoredEvaluation", "Submission"]

Stage = Literal["build", "evaluate"]
AttemptOutcome = Literal["running", "built", "done", "unsettled", "fault", "lost", "released", "cancelled"]


class Submission(Leased, Base):
    """A request to evaluate a candidate on a problem, and its state.

    ``device`` is a kind (``cpu``, ``cuda``). ``unsettled`` counts the measurements without a figure, and ``attempts``
    grows with them as well. ``queue_rank``: the lowest rank goes first (see ``storage.queue.fair_order``).
    ``dedup_key``: the deduplication key of a submission from a batch (see ``storage.submissions.deduplication``).
    ``traceparent``: the trace that it is part of, in the form of W3C Trace Context (see ``runtime.tracing``).
    ``needs_*``: requirements for the device (see ``storage.queue.eligibility``).

    ``verifies``: the submission whose record this one evaluates again; such a re-evaluation is no user's, and is on no
    leaderboard. ``owner`` is the client that handed the submission in, ``None`` for one without a key. ``visibility``:
    the part that others see (see ``storage.access.visibility``). ``withdrawn_*``: the actor, the time and the reason of
    its withdrawal from the leaderboards.

    ``user_metadata``: a JSON object of its user, which is never interpreted. ``parent``: the id of the earlier
    submission that the candidate was derived from. Of several lines of batches that share the submission, the first
    one has decided both.
    """

    __tablename__ = "submissions"
    __table_args__ = (
        ForeignKeyConstraint(["problem", "problem_version"], ["problems.id", "problems.version"]),
        UniqueConstraint("idempotency_key"),
        Index(None, "status", "stage", "device", "queue_rank", "id"),
        Index(None, "problem", "problem_version", "device", "size", "precision"),
        Index(None, "problem", "id"),
        Index(None, "author", "id"),
        Index(None, "label", "id"),
        Index(None, "owner", "id"),
        Index(None, "parent", "id"),
        Index(None, "tier", "id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    problem: Mapped[str]
    problem_version: Mapped[str]
    source_digest: Mapped[str] = mapped_column(ForeignKey("sources.digest"), index=True)
    origin: Mapped[str]
    device: Mapped[str]
    size: Mapped[str]
    precision: Mapped[str]
    baseline: Mapped[str]
    require_gradients: Mapped[bool | None]
    limits: Mapped[str] = mapped_column(default="", server_default="")
    tier: Mapped[str] = mapped_column(default="full", server_default="full")
    rules: Mapped[str] = mapped_column(default="", server_default="")
    label: Mapped[str | None]
    author: Mapped[str | None]
    user_metadata: Mapped[dict[str, Any] | None] = mapped_column(JsonText)
    parent: Mapped[str | None]
    idempotency_key: Mapped[str | None]
    content_digest: Mapped[str]
    dedup_key: Mapped[str | None] = mapped_column(index=True, unique=True)
    traceparent: Mapped[str | None]
    needs_device_name: Mapped[str | None]
    needs_memory_bytes: Mapped[int | None] = mapped_column(BigInteger)
    needs_capability: Mapped[int | None]
    verifies: Mapped[str | None] = mapped_column(index=True)
    owner: Mapped[str | None]
    visibility: Mapped[str] = mapped_column(default="public", server_default="public")
    withdrawn_at: Mapped[datetime | None]
    withdrawn_by: Mapped[str | None]
    withdrawn_reason: Mapped[str | None]

    status: Mapped[str]
    stage: Mapped[str]
    queue_rank: Mapped[int] = mapped_column(default=0, server_default="0")
    message: Mapped[str] = mapped_column(default="")
    unsettled: Mapped[int] = mapped_column(default=0, server_default="0")

    progress_stage: Mapped[str | None]
    progress_message: Mapped[str | None]
    progress_share: Mapped[float | None]
    build_s: Mapped[float | None]
    build_log: Mapped[str] = mapped_column(default="", deferred=True)

    submitted_at: Mapped[datetime]
    built_at: Mapped[datetime | None]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]

    evaluation: Mapped[StoredEvaluation | None] = relationship(back_populates="submission", lazy="joined")
    # Loaded only on request: a list does not need it.
    source: Mapped[StoredSource] = relationship(lazy="raise", viewonly=True)

    # Not a column: False where an idempotency key led to a submission that existed already.
    created = True

    @property
    def state(self) -> Status:
        """``status`` as the enumeration."""
        return Status(self.status)


class Attempt(Base):
    """One claim of a submission by a worker. ``device`` is the id of the worker's device, ``None`` for builders.

    ``outcome``: ``running``, ``built``, ``done``, ``unsettled``, ``fault`` (ours, with ``detail``), ``lost`` (the lease
    expired), ``released`` (given back, for the reason in ``detail``), ``cancelled``. ``unsettled``: the candidate
    passed, but the machine was too noisy for a figure, and the submission waits to be measured again. For the id of
    the device see ``storage.queue.eligibility``.
    """

    __tablename__ = "attempts"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"), index=True)
    stage: Mapped[str]
    number: Mapped[int]
    worker: Mapped[str]
    device: Mapped[str | None]
    token: Mapped[str] = mapped_column(unique=True)
    started_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    outcome: Mapped[str]
    detail: Mapped[str]


class StoredEvaluation(Base):
    """The immutable record of one run, whole as JSON, with the columns that queries need beside it.

    ``certain_*``: the lower end of the speedup's interval, or the speedup where there is no interval. ``samples`` and
    ``log`` are loaded only on request. ``withheld``: the reason why its figures are not shown (see
    ``storage.vettings``). The columns have no figures then, while the record keeps them.
    """

    __tablename__ = "evaluations"
    __table_args__ = (Index(None, "verdict", "submission_id"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"), unique=True)
    verdict: Mapped[str]
    gradients: Mapped[str]
    device: Mapped[str]
    device_name: Mapped[str | None]
    speedup: Mapped[float | None]
    speedup_status: Mapped[str | None]
    speedup_training: Mapped[float | None]
    speedup_training_status: Mapped[str | None]
    certain_speedup: Mapped[float | None]
    certain_speedup_training: Mapped[float | None]
    created_at: Mapped[datetime]
    withheld: Mapped[str | None]
    record: Mapped[dict[str, Any]]
    samples: Mapped[dict[str, Any]] = mapped_column(deferred=True)
    log: Mapped[str] = mapped_column(deferred=True)

    submission: Mapped[Submission] = relationship(back_populates="evaluation")

    def to_evaluation(self, *, complete: bool = False) -> Evaluation:
        """Return the record as the evaluator's type, without figures where they are withheld.

        With ``complete``, raw samples and the log are included.
        """
        extra = {"samples": self.samples, "log": self.log} if complete else {"samples": {}, "log": ""}
        evaluation = Evaluation.from_dict({**self.record, **extra})
        return evaluation if self.withheld is None else without_figures(evaluation, self.withheld)
