"""Submissions, with their attempts and samples."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import TypedDict

from kerneljudge.records.diagnoses import DiagnosisRecord
from kerneljudge.records.evaluations import (
    ErrorRecord,
    FlagRecord,
    IntervalRecord,
    LatencyRecord,
    RooflineRecord,
    ShapeFiguresRecord,
)
from kerneljudge.records.problems import RulesRecord
from kerneljudge.records.types import (
    DeviceKind,
    GradientsName,
    Precision,
    SpeedupStatusName,
    StatusName,
    TierName,
    Timestamp,
    Track,
    VerdictName,
    VerificationStatusName,
    VisibilityName,
)

__all__ = [
    "AttemptList",
    "AttemptRecord",
    "CheckRecord",
    "LinkRecord",
    "ProgressRecord",
    "RequirementsRecord",
    "SamplesRecord",
    "SeriesRecord",
    "SubmissionPage",
    "SubmissionRecord",
    "TimelineRecord",
    "VerificationRecord",
    "WithdrawalRecord",
]


class RequirementsRecord(TypedDict):
    """The requirements of a submission for its device. Null means no condition."""

    device_name: str | None
    """As `/api/v1/workers` and leaderboards have it: `NVIDIA H200`."""
    min_memory_gib: float | None
    """The device's whole memory."""
    min_compute_capability: str | None
    """Of a `cuda` device: `9.0`."""


class WithdrawalRecord(TypedDict):
    """The withdrawal of an entry from the leaderboards."""

    reason: str
    withdrawn: Timestamp
    by: str | None
    """Only for its owner and for administrators."""


class ProgressRecord(TypedDict):
    """The work under way."""

    stage: str
    message: str
    share: float | None
    """0 to 1, where it can be told."""


class TimelineRecord(TypedDict):
    """The times of a submission's steps, in UTC."""

    submitted: Timestamp
    built: Timestamp | None
    started: Timestamp | None
    finished: Timestamp | None


class LinkRecord(TypedDict):
    """The addresses of everything about a submission."""

    self: str
    source: str
    reference: str
    log: str
    samples: str
    attempts: str
    events: str
    diagnosis: str
    page: str


class CheckRecord(TypedDict):
    """A re-evaluation of a record: a submission of its own, on no leaderboard."""

    submission: str
    status: StatusName
    verdict: VerdictName | None
    gradients: GradientsName | None
    speedup: float | None
    speedup_interval: IntervalRecord | None
    speedup_status: SpeedupStatusName | None
    speedup_training: float | None
    speedup_training_interval: IntervalRecord | None
    speedup_training_status: SpeedupStatusName | None
    device: str | None
    """Which one, as the attempts have it."""
    finished: Timestamp | None


class VerificationRecord(TypedDict):
    """Whether a record is confirmed by re-evaluations; see *Records* in the documentation of the method."""

    status: VerificationStatusName
    """A `failed` one is on no leaderboard any more."""
    message: str
    requested: Timestamp
    finished: Timestamp | None
    checks: list[CheckRecord]
    """The evaluations again, the first one first."""


class SubmissionRecord(TypedDict):
    """A submission and, once it is over, its evaluation."""

    id: str
    status: StatusName
    verdict: VerdictName | None
    gradients: GradientsName | None
    problem: str
    problem_version: str
    device: DeviceKind
    size: str
    precision: Precision
    baseline: str
    require_gradients: bool | None
    limits: dict[str, float]
    """The requested limits; empty without any."""
    tier: TierName
    """The depth of grading. Leaderboards rank `full` alone."""
    rules: RulesRecord
    """The requested rules, besides those of the problem; empty without any. `details.rules` has all that applied, and
    `details.broken_rules` each break with its line.
    """
    label: str | None
    author: str | None
    metadata: dict[str, Any] | None
    """The JSON object that it was handed in with. It is never interpreted."""
    parent: str | None
    """The id of the submission that it was derived from; null where you do not see that one."""
    visibility: VisibilityName
    owner: str | None
    """The client whose key it was handed in with. Only for that client and for administrators."""
    source_shown: bool
    """Whether you may see the source. If not, whatever quotes it is empty here as well: message, hints, notes, flags,
    feedback, diagnosis, details, metadata.
    """
    withdrawal: WithdrawalRecord | None
    """Whether it was taken from the leaderboards, and why."""
    speedup: float | None
    speedup_interval: IntervalRecord | None
    speedup_status: SpeedupStatusName | None
    """`measured` exactly where there is a speedup. `unsettled`: the machine was too noisy to tell, in every
    measurement. `not_vetted`: the problem is not vetted yet, or vetting refuses it. Both say nothing about the
    candidate: a missing speedup is not one of 0. `weights_fixed`: parameters that are the same under every seed are
    folded in or left out, and it cannot be told which. Null: there is nothing to measure, as in the tier `check`.
    """
    speedup_warm: float | None
    """Of a forward on warm caches, where that makes a difference."""
    speedup_warm_interval: IntervalRecord | None
    speedup_training: float | None
    speedup_training_interval: IntervalRecord | None
    speedup_training_status: SpeedupStatusName | None
    """The same of forward and backward together. `weights_fixed` here alone: it is wrong once its weights have changed
    between two calls, as in training.
    """
    speedup_compiled: float | None
    """Over the reference compiled by `torch.compile`, where the service compares with it."""
    speedup_compiled_interval: IntervalRecord | None
    speedup_mean: float | None
    """The geometric mean of the speedups at the size and at the problem's timed shapes; null where any is missing."""
    speedup_mean_interval: IntervalRecord | None
    speedup_training_mean: float | None
    speedup_training_mean_interval: IntervalRecord | None
    shapes: dict[str, ShapeFiguresRecord]
    """The figures at the problem's timed shapes, by name."""
    latency_ms: LatencyRecord | None
    latency_warm_ms: LatencyRecord | None
    latency_training_ms: LatencyRecord | None
    roofline_share: float | None
    """The inference track's share of its roofline bound."""
    roofline: dict[Track, RooflineRecord]
    """By track, of candidates that passed."""
    errors: ErrorRecord
    peak_memory_bytes: int | None
    message: str
    hints: list[str]
    notes: list[str]
    flags: list[FlagRecord]
    """Remarks on the source. They never decide a verdict."""
    feedback: str | None
    """Feedback for a language model about its candidate, in at most 2,000 characters: stage, error with its line, worst
    elements, figures, hints. It is there once there is a verdict, in a single record and in the results of a batch,
    not in lists.
    """
    diagnosis: DiagnosisRecord | None
    """The latest one, on request or after a device fault. Only in a single record, not in lists."""
    verification: VerificationRecord | None
    """The verification of a record on a leaderboard. Only in a single record, not in lists."""
    verifies: str | None
    """The submission whose record this one re-evaluates; the service has made it."""
    requirements: RequirementsRecord | None
    waiting_for: str | None
    """The kind of worker that it needs, if none that could run it is available."""
    details: dict[str, Any]
    queue_position: int | None
    """1 is next; a few others may come first to share a baseline. Only in a single record, not in lists."""
    attempts: int
    progress: ProgressRecord | None
    timeline: TimelineRecord
    stage_s: dict[str, float]
    environment: dict[str, Any]
    links: LinkRecord


class SeriesRecord(TypedDict):
    """The timed calls of one track, in the order in which they were taken.

    Entry `i` of the candidate is paired with entry `i` of the baseline. `*_device_ms` is measured by the runner's own
    clock (CUDA events on `cuda`), `*_outer_ms` by the judge's around the same call.
    """

    candidate_device_ms: list[float]
    baseline_device_ms: list[float]
    candidate_outer_ms: list[float]
    baseline_outer_ms: list[float]
    candidate_forward_ms: list[float]
    """The forward's part, where there is a backward."""
    baseline_forward_ms: list[float]
    order: list[str]
    """The side that was called first in each pair."""


class SamplesRecord(TypedDict):
    """The raw samples behind a submission's figures."""

    submission: str
    tracks: dict[str, SeriesRecord]
    """By track: `inference`, and `training` where it was timed. Those of a timed shape are `inference/SHAPE` and so on.
    """


class AttemptRecord(TypedDict):
    """An attempt of a worker on the submission."""

    number: int
    """Grows with each fault of ours, and begins at 1 again after a retry."""
    stage: Literal["build", "evaluate"]
    worker: str
    device: str | None
    """A GPU's UUID, or the machine and `cpu`; null for builds."""
    started: Timestamp
    ended: Timestamp | None
    outcome: str
    """`running`, `built`, `done`, `unsettled` (it passed, and is measured again), `fault` (ours), `lost` (the worker
    was not heard of any more), `released` (given back without a fault: `detail` says why), `cancelled`.
    """
    detail: str


class AttemptList(TypedDict):
    """Every attempt on one submission, the first one first."""

    submission: str
    items: list[AttemptRecord]


class SubmissionPage(TypedDict):
    """Submissions, newest first."""

    items: list[SubmissionRecord]
    next_cursor: str | None
    """Pass as `cursor` for the next page; null on the last one."""
