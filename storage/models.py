"""The tables.

    sources              texts by their SHA-256
    problems             every version that was ever judged against
    submissions          requests for an evaluation, and their state
    attempts             each claim of a submission by a worker
    evaluations          the immutable records
    diagnoses            findings of tools in candidates
    workers              worker processes, by heartbeat
    batches              many submissions with one summary
    batch_items          the lines of batches
    batch_errors         lines that are no submission
    webhooks             receivers of the end of a batch
    rankings             groups of submissions that are ranked together
    leaderboard_entries  the best of each author and source
    ranking_records      the fastest of a ranking, over time
    author_bests         the best of each author
    verdict_counts       verdicts by problem
    counts               counters of the metrics
    verifications        records and their re-evaluations
    vettings             findings of workers about problems
    audit_events         actions of interest to administrators
    api_keys             keys and their scopes
    sign_ins             browsers that stand for a key
    usage                requests by key or address

Only the modules of ``storage`` write these rows. The tables from ``rankings`` to ``verdict_counts`` hold no facts
beyond those in evaluations. Leaderboards are read from them; ``storage.leaderboards.entries`` keeps them up to date.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Literal

from sqlalchemy import BigInteger, ForeignKey, ForeignKeyConstraint, Index, MetaData, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from evaluator.evaluation import Evaluation, Status
from evaluator.problems.vetting import without_figures
from storage.columns import CleanText, JsonData, UtcDateTime

__all__ = [
    "ApiKey",
    "Attempt",
    "AuditEvent",
    "AuthorBest",
    "Base",
    "Batch",
    "BatchError",
    "BatchItem",
    "BatchStatus",
    "DiagnosisStatus",
    "RankingRecord",
    "SignIn",
    "Stage",
    "StoredCount",
    "StoredDiagnosis",
    "StoredEvaluation",
    "StoredLeaderboardEntry",
    "StoredProblem",
    "StoredRanking",
    "StoredSource",
    "StoredVerification",
    "StoredVetting",
    "StoredWorker",
    "Submission",
    "Usage",
    "VerdictCount",
    "VerificationStatus",
    "Webhook",
    "WorkerState",
]

Stage = Literal["build", "evaluate"]
AttemptOutcome = Literal["running", "built", "done", "unsettled", "fault", "lost", "released", "cancelled"]


class DiagnosisStatus(StrEnum):
    """The state of a diagnosis. ``failed`` means a fault of ours; a tool without a finding leads to ``done``."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"

    @property
    def final(self) -> bool:
        return self in (DiagnosisStatus.DONE, DiagnosisStatus.FAILED)


class WorkerState(StrEnum):
    """Whether a worker takes submissions.

    ``testing``: it tests itself first. ``unhealthy``: its device is not healthy at the moment. ``out``: its device was
    taken out of use, until a self-test passes. ``stopping``: it was asked to end.
    """

    TESTING = "testing"
    READY = "ready"
    UNHEALTHY = "unhealthy"
    OUT = "out"
    STOPPING = "stopping"

    @property
    def takes(self) -> bool:
        """Whether the worker takes waiting submissions, now or in a moment."""
        return self in (WorkerState.TESTING, WorkerState.READY)


class VerificationStatus(StrEnum):
    """The state of a record's verification. A record whose verification ``failed`` is on no leaderboard any more."""

    PENDING = "pending"
    VERIFIED = "verified"
    FAILED = "failed"

    @property
    def final(self) -> bool:
        return self is not VerificationStatus.PENDING


class BatchStatus(StrEnum):
    """The state of a batch. A ``cancelled`` batch may still have submissions that had begun before."""

    RECEIVING = "receiving"
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"


_NAMES: Final = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    """All tables, with names for every constraint, so that migrations can name them."""

    metadata = MetaData(naming_convention=_NAMES)
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy's own form
        str: CleanText,
        datetime: UtcDateTime,
        dict[str, Any]: JsonData,
        list[str]: JsonData,
        list[dict[str, Any]]: JsonData,
    }


class StoredSource(Base):
    """One text, stored once however often it is submitted."""

    __tablename__ = "sources"

    digest: Mapped[str] = mapped_column(primary_key=True)
    text: Mapped[str]
    created_at: Mapped[datetime]


class StoredProblem(Base):
    """One version of a problem, as ``Problem.to_dict`` wrote it.

    ``vettings``: the vettings of this version that came with the problem, each as ``Vetting.to_dict`` wrote it.
    """

    __tablename__ = "problems"

    id: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[str] = mapped_column(primary_key=True)
    definition: Mapped[dict[str, Any]]
    current: Mapped[bool] = mapped_column(index=True)
    created_at: Mapped[datetime]
    vettings: Mapped[list[dict[str, Any]]] = mapped_column(default=list, server_default="[]")


class StoredVetting(Base):
    """A worker's vetting of one version of a problem, at one precision on one kind of device.

    ``record`` is as ``Vetting.to_dict`` wrote it.
    """

    __tablename__ = "vettings"
    __table_args__ = (ForeignKeyConstraint(["problem", "problem_version"], ["problems.id", "problems.version"]),)

    problem: Mapped[str] = mapped_column(primary_key=True)
    problem_version: Mapped[str] = mapped_column(primary_key=True)
    precision: Mapped[str] = mapped_column(primary_key=True)
    device: Mapped[str] = mapped_column(primary_key=True)
    record: Mapped[dict[str, Any]]
    found_at: Mapped[datetime]


class Submission(Base):
    """A request to evaluate a candidate on a problem, and its state.

    ``device`` is a kind (``cpu``, ``cuda``). ``attempts`` counts from 1 with the first claim and grows with each fault
    of ours and each unsettled measurement. ``claim_token`` belongs to the one worker whose results are accepted; after
    ``lease_until`` that worker counts as lost. ``wakeup_due_at``: the time of a queued row's next wake-up.
    ``not_before``: the end of its backoff, before which it is not claimed. ``queue_rank``: the lowest rank goes first
    (see ``storage.queue.fair_order``). ``dedup_key``: the deduplication key of a submission from a batch (see
    ``storage.submissions.deduplication``). ``traceparent``: the trace that it is part of, in the form of W3C Trace
    Context (see ``runtime.tracing``). ``needs_*``: requirements for the device (see ``storage.queue.eligibility``).

    ``verifies``: the submission whose record this one evaluates again; such a re-evaluation is no user's, and is on no
    leaderboard. ``owner`` is the client that handed the submission in, ``None`` for one without a key. ``visibility``:
    the part that others see (see ``storage.access.visibility``). ``withdrawn_*``: the actor, the time and the reason of
    its withdrawal from the leaderboards.
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
    label: Mapped[str | None]
    author: Mapped[str | None]
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
    attempts: Mapped[int] = mapped_column(default=0)
    faults: Mapped[int] = mapped_column(default=0)
    unsettled: Mapped[int] = mapped_column(default=0, server_default="0")
    wakeup_due_at: Mapped[datetime | None]
    wakeups: Mapped[int] = mapped_column(default=0)
    not_before: Mapped[datetime | None]
    claim_token: Mapped[str | None] = mapped_column(index=True, unique=True)
    claim_worker: Mapped[str | None]
    lease_until: Mapped[datetime | None] = mapped_column(index=True)

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


class StoredDiagnosis(Base):
    """The findings of one tool in the candidate of one submission, or their state. A new request replaces them.

    ``result`` is as ``Diagnosis.to_dict`` wrote it, except for ``printed``, which is loaded only on request. Claims,
    leases, wake-ups and backoff are as those of a submission.
    """

    __tablename__ = "diagnoses"
    __table_args__ = (Index(None, "status", "tool", "requested_at"),)

    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"), primary_key=True)
    tool: Mapped[str] = mapped_column(primary_key=True)
    status: Mapped[str]
    message: Mapped[str]
    attempts: Mapped[int]
    faults: Mapped[int]
    wakeup_due_at: Mapped[datetime | None]
    wakeups: Mapped[int]
    not_before: Mapped[datetime | None]
    claim_token: Mapped[str | None] = mapped_column(index=True, unique=True)
    claim_worker: Mapped[str | None]
    lease_until: Mapped[datetime | None] = mapped_column(index=True)
    requested_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    result: Mapped[dict[str, Any] | None]
    printed: Mapped[str] = mapped_column(deferred=True)

    @property
    def state(self) -> DiagnosisStatus:
        """``status`` as the enumeration."""
        return DiagnosisStatus(self.status)


class StoredWorker(Base):
    """A worker process, alive as long as its heartbeat is recent.

    ``busy_s``: the seconds for which it has had work so far. ``reason``: why it takes nothing, where that is so.
    ``unchecked``: the parts of its device's health that cannot be checked.
    """

    __tablename__ = "workers"

    id: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str]
    queues: Mapped[list[str]]
    device: Mapped[str | None]
    capabilities: Mapped[dict[str, Any]]
    started_at: Mapped[datetime]
    heartbeat_at: Mapped[datetime]
    current_submission: Mapped[str | None]
    busy_s: Mapped[float] = mapped_column(default=0.0, server_default="0")
    state: Mapped[str] = mapped_column(default=WorkerState.READY, server_default="ready")
    reason: Mapped[str] = mapped_column(default="", server_default="")
    unchecked: Mapped[list[str]] = mapped_column(default=list, server_default="[]")


class Batch(Base):
    """Many submissions that were handed in together.

    ``items`` and ``errors`` count its lines received so far. ``last_place`` is the highest place in the order of
    completion that an item has got; it only grows. ``received_at``: the time of the last line. ``heard_at``: until
    then, the time when a part of it came in last. ``message``: why it was cancelled. ``owner`` and ``visibility``: as
    those of a submission.
    """

    __tablename__ = "batches"
    __table_args__ = (UniqueConstraint("idempotency_key"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str | None]
    idempotency_key: Mapped[str | None]
    content_digest: Mapped[str | None]
    items: Mapped[int] = mapped_column(default=0)
    errors: Mapped[int] = mapped_column(default=0)
    last_place: Mapped[int] = mapped_column(default=0)
    message: Mapped[str] = mapped_column(default="")
    owner: Mapped[str | None]
    visibility: Mapped[str] = mapped_column(default="public", server_default="public")
    created_at: Mapped[datetime]
    heard_at: Mapped[datetime]
    received_at: Mapped[datetime | None]
    cancelled_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None] = mapped_column(index=True)

    # Not a column: False where an idempotency key led to a batch that existed already.
    created = True

    @property
    def state(self) -> BatchStatus:
        """The state of the batch, by its columns."""
        if self.cancelled_at is not None:
            return BatchStatus.CANCELLED
        if self.finished_at is not None:
            return BatchStatus.DONE
        return BatchStatus.RECEIVING if self.received_at is None else BatchStatus.RUNNING


class BatchItem(Base):
    """One line of a batch, and its submission, which other lines may have as well (see ``shared``).

    ``place`` is its place in the batch's order of completion, ``None`` until its submission is over. ``cancelled``:
    the batch was cancelled while the submission went on for another batch.
    """

    __tablename__ = "batch_items"
    __table_args__ = (Index(None, "batch_id", "place"),)

    batch_id: Mapped[str] = mapped_column(ForeignKey("batches.id"), primary_key=True)
    line: Mapped[int] = mapped_column(primary_key=True)
    label: Mapped[str | None]
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"), index=True)
    shared: Mapped[bool]
    cancelled: Mapped[bool]
    place: Mapped[int | None]
    finished_at: Mapped[datetime | None]


class BatchError(Base):
    """A line of a batch that is no submission."""

    __tablename__ = "batch_errors"

    batch_id: Mapped[str] = mapped_column(ForeignKey("batches.id"), primary_key=True)
    line: Mapped[int] = mapped_column(primary_key=True)
    message: Mapped[str]


class Webhook(Base):
    """A receiver of a batch's end. ``due_at``: the time of the next attempt; ``None`` before the end and afterwards."""

    __tablename__ = "webhooks"

    batch_id: Mapped[str] = mapped_column(ForeignKey("batches.id"), primary_key=True)
    url: Mapped[str]
    secret: Mapped[str]
    attempts: Mapped[int]
    due_at: Mapped[datetime | None] = mapped_column(index=True)
    delivered_at: Mapped[datetime | None]
    message: Mapped[str]


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


class VerdictCount(Base):
    """The number of evaluations of a problem that ended with one verdict."""

    __tablename__ = "verdict_counts"

    problem: Mapped[str] = mapped_column(primary_key=True)
    problem_version: Mapped[str] = mapped_column(primary_key=True)
    device: Mapped[str] = mapped_column(primary_key=True)
    verdict: Mapped[str] = mapped_column(primary_key=True)
    count: Mapped[int]


class StoredCount(Base):
    """One shard of a count, which is the sum over all shards. ``labels``: the values of its labels, as a JSON list."""

    __tablename__ = "counts"

    name: Mapped[str] = mapped_column(primary_key=True)
    labels: Mapped[str] = mapped_column(primary_key=True)
    shard: Mapped[int] = mapped_column(primary_key=True)
    value: Mapped[float]


class ApiKey(Base):
    """A key of the API without its text: ``digest`` is its SHA-256, and ``prefix`` its first characters.

    ``client`` names its holder. A limit of ``None`` is that of the settings, and 0 is no limit. ``last_used_at`` is
    some minutes old at most.
    """

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(index=True, unique=True)
    prefix: Mapped[str]
    client: Mapped[str]
    scopes: Mapped[list[str]]
    created_at: Mapped[datetime]
    created_by: Mapped[str]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    requests_per_min: Mapped[int | None]
    submissions_per_day: Mapped[int | None]


class SignIn(Base):
    """A browser that stands for a key until ``expires_at``; ``digest`` is the SHA-256 of its cookie."""

    __tablename__ = "sign_ins"

    digest: Mapped[str] = mapped_column(primary_key=True)
    key_id: Mapped[str] = mapped_column(ForeignKey("api_keys.id"), index=True)
    expires_at: Mapped[datetime]


class Usage(Base):
    """The number of requests or submissions (``kind``) of one ``subject`` in the period from ``began_at`` on."""

    __tablename__ = "usage"

    kind: Mapped[str] = mapped_column(primary_key=True)
    began_at: Mapped[datetime] = mapped_column(primary_key=True)
    subject: Mapped[str] = mapped_column(primary_key=True)
    count: Mapped[int]


class AuditEvent(Base):
    """An action of ``actor`` on ``subject``. ``actor`` is ``None`` for requests without a key."""

    __tablename__ = "audit_events"

    id: Mapped[str] = mapped_column(primary_key=True)
    at: Mapped[datetime]
    actor: Mapped[str | None]
    action: Mapped[str]
    subject: Mapped[str]
    details: Mapped[dict[str, Any]]
