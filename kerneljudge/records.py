"""The records of the HTTP API as typed dictionaries, and the same record for a local evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Required, TypedDict, cast

from evaluator.evaluation import Evaluation

__all__ = [
    "Attempt",
    "BatchRecord",
    "BatchResult",
    "Board",
    "Check",
    "Diagnosis",
    "Flag",
    "Interval",
    "Latency",
    "LeaderboardEntry",
    "NewSubmission",
    "ProblemRecord",
    "Requirements",
    "Roofline",
    "Series",
    "SubmissionOptions",
    "SubmissionPage",
    "SubmissionRecord",
    "Verification",
    "VettedOn",
    "blank_record",
    "evaluation_fields",
]


class Interval(TypedDict):
    """A two-sided interval."""

    low: float
    high: float
    level: float


class Latency(TypedDict):
    """Median latencies in milliseconds."""

    candidate: float
    baseline: float
    candidate_outer: float
    baseline_outer: float


class Roofline(TypedDict):
    """A track's roofline bound, its inputs, and the reached share of it."""

    bound_ms: float
    limited_by: str
    share: float
    memory_ms: float
    compute_ms: float | None
    intensity: float
    bytes: int
    operations: int
    bytes_per_s: float
    operations_per_s: float | None


class Errors(TypedDict):
    """The errors against the float64 reference."""

    max_abs: float | None
    max_rel: float | None
    reference_max_rel: float | None


class Flag(TypedDict):
    """Advice about the source; no verdict depends on it."""

    kind: str
    line: int | None
    message: str


class Diagnosis(TypedDict):
    """A run of a candidate under a tool, on a worker. ``result`` is an ``evaluator.diagnosis.findings.Diagnosis``."""

    submission: str
    tool: str
    status: str
    message: str
    attempts: int
    requested: str
    started: str | None
    finished: str | None
    result: dict[str, Any] | None


class Check(TypedDict):
    """A re-evaluation of a record."""

    submission: str
    status: str
    verdict: str | None
    gradients: str | None
    speedup: float | None
    speedup_interval: Interval | None
    speedup_status: str | None
    speedup_training: float | None
    speedup_training_interval: Interval | None
    speedup_training_status: str | None
    device: str | None
    finished: str | None


class Verification(TypedDict):
    """Whether a record is confirmed by re-evaluations."""

    status: str
    message: str
    requested: str
    finished: str | None
    checks: list[Check]


class Requirements(TypedDict, total=False):
    """The requirements for the device. ``None`` means no condition."""

    device_name: str | None
    min_memory_gib: float | None
    min_compute_capability: str | None


class Progress(TypedDict):
    """The work under way."""

    stage: str
    message: str
    share: float | None


class SubmissionRecord(TypedDict):
    """A submission and, once it is over, its evaluation. A local evaluation has no id and no links."""

    id: str | None
    status: str
    verdict: str | None
    gradients: str | None
    problem: str
    problem_version: str | None
    device: str
    size: str
    precision: str
    baseline: str
    require_gradients: bool | None
    limits: dict[str, float] | None
    label: str | None
    author: str | None
    visibility: str
    owner: str | None
    source_shown: bool
    withdrawal: dict[str, Any] | None
    speedup: float | None
    speedup_interval: Interval | None
    speedup_status: str | None
    speedup_warm: float | None
    speedup_warm_interval: Interval | None
    speedup_training: float | None
    speedup_training_interval: Interval | None
    speedup_training_status: str | None
    speedup_compiled: float | None
    speedup_compiled_interval: Interval | None
    latency_ms: Latency | None
    latency_warm_ms: Latency | None
    latency_training_ms: Latency | None
    roofline_share: float | None
    roofline: dict[str, Roofline]
    errors: Errors
    peak_memory_bytes: int | None
    message: str
    hints: list[str]
    notes: list[str]
    flags: list[Flag]
    feedback: str | None
    diagnosis: Diagnosis | None
    verification: Verification | None
    verifies: str | None
    requirements: Requirements | None
    waiting_for: str | None
    details: dict[str, Any]
    queue_position: int | None
    attempts: int
    progress: Progress | None
    timeline: dict[str, str | None]
    stage_s: dict[str, float]
    environment: dict[str, Any]
    links: dict[str, str]


class SubmissionOptions(TypedDict, total=False):
    """The options and names of a submission. The service decides those that are left out."""

    device: str | None
    size: str | None
    precision: str | None
    require_gradients: bool | None
    baseline: str | None
    limits: Mapping[str, float] | None
    label: str | None
    author: str | None
    requirements: Requirements | None
    visibility: str | None


class NewSubmission(SubmissionOptions, total=False):
    """A new submission: the fields of the API's request, and the key that identifies a repeated request."""

    problem: Required[str]
    code: str | None
    response: str | None
    idempotency_key: str | None


class SubmissionPage(TypedDict):
    """Submissions, newest first."""

    items: list[SubmissionRecord]
    next_cursor: str | None


class LineError(TypedDict):
    """A line of a batch that is not a valid submission."""

    line: int
    message: str


class BatchRecord(TypedDict):
    """A batch and its progress. ``summary`` is an ``evaluator.summary.Summary`` as plain data."""

    id: str
    name: str | None
    status: str
    message: str
    items: int
    errors_total: int
    errors: list[LineError]
    statuses: dict[str, int]
    verdicts: dict[str, int]
    finished_items: int
    shared: int
    rate_per_min: float | None
    eta_s: float | None
    created: str
    received: str | None
    finished: str | None
    webhook: dict[str, Any] | None
    summary: dict[str, Any] | None
    links: dict[str, str]


class BatchResult(TypedDict):
    """An item of a batch that is over; ``cursor`` is its place in the order of completion."""

    cursor: int
    line: int
    label: str | None
    cancelled: bool
    submission: SubmissionRecord


class Series(TypedDict):
    """The timed calls of one track; entry ``i`` of the candidate is paired with entry ``i`` of the baseline."""

    candidate_device_ms: list[float]
    baseline_device_ms: list[float]
    candidate_outer_ms: list[float]
    baseline_outer_ms: list[float]
    candidate_forward_ms: list[float]
    baseline_forward_ms: list[float]
    order: list[str]


class Attempt(TypedDict):
    """An attempt of a worker on a submission."""

    number: int
    stage: str
    worker: str
    device: str | None
    started: str
    ended: str | None
    outcome: str
    detail: str


class VettedOn(TypedDict):
    """The version of a problem that was vetted, and the conditions. ``stale``: it is not the current version."""

    version: str
    device: str
    size: str
    precision: str
    torch: str
    stale: bool


class ProblemRecord(TypedDict):
    """A problem. ``reference`` is there only where a single problem was requested."""

    id: str
    version: str
    title: str
    description: str
    dtype: str
    sizes: dict[str, dict[str, float]]
    gradient_policy: str
    input_domain: str
    tolerances: dict[str, dict[str, float]]
    tags: list[str]
    baselines: list[str]
    kernelbench: dict[str, Any] | None
    labels: list[str] | None
    ranked: bool
    refusal: str | None
    vetting: VettedOn | None
    reference: str


class LeaderboardEntry(TypedDict):
    """One ranked result."""

    rank: int
    submission: str
    author: str | None
    label: str | None
    speedup: float
    speedup_interval: Interval | None
    speedup_training: float | None
    latency_ms: float | None
    baseline_ms: float | None
    gradients: str
    device: str
    device_name: str | None
    software: str | None
    source_digest: str
    submitted: str
    finished: str
    verification: str | None


class Board(TypedDict):
    """A leaderboard."""

    problem: str
    problem_version: str
    device: str
    device_name: str | None
    software: str | None
    track: str
    size: str
    precision: str
    refusal: str | None
    entries: list[LeaderboardEntry]
    next_cursor: int | None


def blank_record(problem: str, /, **known: Any) -> SubmissionRecord:
    """Return a record in the API's form that is empty but for ``known``, since no service took part."""
    record = {
        **dict.fromkeys(SubmissionRecord.__annotations__),
        "problem": problem,
        "baseline": "eager",
        "visibility": "public",
        "source_shown": True,
        "roofline": {},
        "errors": {"max_abs": None, "max_rel": None, "reference_max_rel": None},
        "message": "",
        "hints": [],
        "notes": [],
        "flags": [],
        "details": {},
        "attempts": 1,
        "timeline": dict.fromkeys(("submitted", "built", "started", "finished")),
        "stage_s": {},
        "environment": {},
        "links": {},
        **known,
    }
    return cast(SubmissionRecord, record)


def evaluation_fields(evaluation: Evaluation) -> dict[str, Any]:
    """Return the fields of a record that an evaluation provides."""
    found = evaluation.to_dict()
    for not_in_a_record in ("samples", "log"):
        del found[not_in_a_record]
    return {**found, "hints": list(evaluation.hints), "notes": list(evaluation.notes)}
