"""The bodies of requests and answers about submissions, problems, leaderboards and workers."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from evaluator.config import SETTABLE_LIMITS
from evaluator.diagnosis.findings import Tool
from evaluator.evaluation import Gradients, SpeedupStatus, Status, Verdict
from evaluator.flags import FlagKind
from evaluator.problems.vetting import Label
from storage.models import DiagnosisStatus, VerificationStatus, WorkerState

__all__ = [
    "AttemptList",
    "AttemptRecord",
    "Baseline",
    "Board",
    "CheckRecord",
    "DeviceKind",
    "DeviceRequirements",
    "DiagnosisRecord",
    "DiagnosisResult",
    "FlagRecord",
    "LeaderboardEntry",
    "Precision",
    "ProblemRecord",
    "ProblemSummary",
    "PublishRequest",
    "SamplesRecord",
    "SeriesRecord",
    "SubmissionPage",
    "SubmissionRecord",
    "SubmissionRequest",
    "Track",
    "VerificationRecord",
    "VettedOn",
    "VisibilityName",
    "WithdrawalRequest",
    "WorkerRecord",
]

DeviceKind = Literal["cpu", "cuda"]
Precision = Literal["float32", "float16", "bfloat16"]
VisibilityName = Literal["public", "source_hidden", "private"]
Baseline = Literal["eager", "compile", "compile-max-autotune", "tf32", "float16", "bfloat16"]
Track = Literal["inference", "training"]

_EXACTLY_ONE: Final[list[JsonValue]] = [
    {"required": [given], "properties": {given: {"type": "string"}, other: {"type": "null"}}}
    for given, other in (("code", "response"), ("response", "code"))
]


class DeviceRequirements(BaseModel):
    """The requirements of a submission for its device. Null means no condition."""

    model_config = ConfigDict(extra="forbid", strict=True)

    device_name: str | None = Field(
        default=None, max_length=200, description="As `/api/v1/workers` and leaderboards have it: `NVIDIA H200`."
    )
    min_memory_gib: float | None = Field(default=None, gt=0, le=1_000_000, description="The device's whole memory.")
    min_compute_capability: str | None = Field(
        default=None, pattern=r"^\d{1,3}\.\d$", description="Of a `cuda` device: `9.0`."
    )


class SubmissionRequest(BaseModel):
    """A candidate and the conditions of its grading. Exactly one of `code` and `response` is given."""

    # In strict mode, "yes" is not a boolean and 1 is not a text.
    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"oneOf": _EXACTLY_ONE})

    problem: str = Field(description="The problem's id, see `/api/v1/problems`.", max_length=200)
    code: str | None = Field(default=None, description="Python source that defines `ModelNew`.")
    response: str | None = Field(
        default=None,
        description="A raw model answer: the last fenced block that defines `ModelNew` is graded, reasoning ignored.",
    )
    device: DeviceKind | None = Field(
        default=None, description="Left out: `cuda` where a worker with a CUDA device is alive, else `cpu`."
    )
    size: str | None = Field(
        default=None,
        max_length=100,
        description="One of the problem's sizes. Left out: `full` on `cuda`; on `cpu` `smoke` where the problem has it "
        "(the full sizes are made for an accelerator: `relu` has 6 GiB of input), else `full`.",
    )
    precision: Precision | None = Field(default=None, description="Left out: the problem's own.")
    require_gradients: bool | None = Field(
        default=None, description="Whether missing gradients fail. Left out: the problem's policy."
    )
    baseline: Baseline | None = Field(
        default=None,
        description="The baseline of the speedup. Default: `eager`, the reference as it is, as leaderboards have it by "
        "default. `compile*`: the reference under `torch.compile`. Lower precisions need the problem's permission.",
    )
    limits: dict[str, float] | None = Field(
        default=None,
        description=f"In seconds, by name: {', '.join(SETTABLE_LIMITS)} (`call_factor` is a multiple of the baseline's "
        "call). They only lower the limits of the problem and of the machine. Default: these limits.",
    )
    label: str | None = Field(default=None, max_length=200, description="Your name for this candidate.")
    author: str | None = Field(default=None, max_length=200, description="The name on the leaderboard.")
    requirements: DeviceRequirements | None = Field(
        default=None, description="The devices that may evaluate it. Default: all of the kind."
    )
    visibility: VisibilityName | None = Field(
        default=None,
        description="The part that others see. `public`: everything; `source_hidden`: verdict, figures and place, but "
        "neither the source nor quotations of it; `private`: nothing, and it is on no leaderboard. The latter two need "
        "a key. Default: that of the batch, or `public`.",
    )


class PublishRequest(BaseModel):
    """The visibility to others from now on."""

    model_config = ConfigDict(extra="forbid", strict=True)

    visibility: VisibilityName


class WithdrawalRequest(BaseModel):
    """The reason for withdrawing an entry from the leaderboards."""

    model_config = ConfigDict(extra="forbid", strict=True)

    reason: str = Field(min_length=1, max_length=1000, description="Shown on the submission's page.")


class WithdrawalRecord(BaseModel):
    """The withdrawal of an entry from the leaderboards."""

    reason: str
    withdrawn: datetime
    by: str | None = Field(description="Only for its owner and for administrators.")


class IntervalRecord(BaseModel):
    """A two-sided interval."""

    low: float
    high: float
    level: float


class LatencyRecord(BaseModel):
    """Median latencies in milliseconds. `*_outer` is measured by the judge's own clock around the same calls."""

    candidate: float
    baseline: float
    candidate_outer: float
    baseline_outer: float


class RooflineRecord(BaseModel):
    """The roofline bound of a track: the least time that its bytes and operations take at the device's highest rates.

    See *Roofline* in the documentation of the method.
    """

    bound_ms: float
    limited_by: Literal["memory", "compute"]
    share: float = Field(description="`bound_ms` / the candidate's latency. Above 1 there is a note about it.")
    memory_ms: float
    compute_ms: float | None = Field(description="Null where the device's rate in this precision is not known.")
    intensity: float = Field(description="Operations per byte.")
    bytes: int
    operations: int
    bytes_per_s: float = Field(description="The fastest copy seen on the device: bytes read and written.")
    operations_per_s: float | None = Field(description="The fastest matrix product in the problem's precision.")


class ErrorRecord(BaseModel):
    """The errors against the float64 reference.

    `reference_max_rel` is that of the reference in the problem's precision.
    """

    max_abs: float | None
    max_rel: float | None
    reference_max_rel: float | None


class FlagRecord(BaseModel):
    """A remark on the source for a reviewer. It is advice only: no verdict depends on it."""

    kind: FlagKind = Field(description="The kind of remark; see *Flags* in the documentation of the method.")
    line: int | None = Field(description="The line of the source, from 1; null for a remark on more than one line.")
    message: str


class FaultRecord(BaseModel):
    """A fault of a kernel, counted as often as it was reported at the same place."""

    what: str
    kernel: str | None
    file: str | None = Field(description="The file as the compiler saw it.")
    line: int | None = Field(description="In that file.")
    candidate_line: int | None = Field(description="The line of the candidate's own source, where it is known.")
    code: str = Field(description="That line of the source.")
    thread: tuple[int, int, int] | None = Field(description="The first one that was reported.")
    block: tuple[int, int, int] | None
    details: list[str]
    count: int


class CountersRecord(BaseModel):
    """The hardware counters of one launch; null: not reported. Shares are of the device's peak."""

    kernel: str
    grid: str
    block: str
    duration_us: float | None
    read_bytes: float | None
    written_bytes: float | None
    bandwidth_gb_s: float | None
    memory_share: float | None
    compute_share: float | None
    occupancy: float | None
    registers: int | None
    static_shared_bytes: int | None
    dynamic_shared_bytes: int | None


class DiagnosisResult(BaseModel):
    """The result of a tool for one forward and one backward of the candidate.

    It comes from a process in which the candidate's code ran, and no verdict depends on it.
    """

    tool: Tool
    problem: str
    device: DeviceKind
    size: str = Field(description="The one that it was found at; often a smaller one than the submission's.")
    precision: Precision
    stage: str = Field(
        description="How far the candidate came: `starting`, `importing`, `constructing`, `forward`, `backward`, "
        "`done`."
    )
    seconds: float
    faults: list[FaultRecord]
    counters: list[CountersRecord]
    kernels: list[dict[str, Any]] = Field(description="The resources of the kernels; see `details.kernels`.")
    error: str = Field(description="The exception that the candidate raised in `stage`.")
    obstacle: str = Field(description="The reason for a missing result of the tool; empty where there is a result.")
    printed: str = Field(description="By candidate and tool. Only where the diagnosis itself is asked for, else empty.")
    notes: list[str]
    clean: bool = Field(description="The candidate came to its end, and there is nothing to report.")
    summary: str


class DiagnosisRecord(BaseModel):
    """A diagnosis: a run of the candidate under one of NVIDIA's tools, on a worker, after all waiting evaluations."""

    submission: str
    tool: Tool
    status: DiagnosisStatus = Field(
        description="`failed` is a fault of the service. A tool without a result is `done`, with an `obstacle`."
    )
    message: str = Field(description="The condition that it waits for, its present step, or its error.")
    attempts: int
    requested: datetime
    started: datetime | None
    finished: datetime | None
    result: DiagnosisResult | None


class ProgressRecord(BaseModel):
    """The work under way."""

    stage: str
    message: str
    share: float | None = Field(description="0 to 1, where it can be told.")


class TimelineRecord(BaseModel):
    """The times of a submission's steps, in UTC."""

    submitted: datetime
    built: datetime | None
    started: datetime | None
    finished: datetime | None


class LinkRecord(BaseModel):
    """The addresses of everything about a submission."""

    self: str
    source: str
    log: str
    samples: str
    attempts: str
    events: str
    diagnosis: str
    page: str


class CheckRecord(BaseModel):
    """A re-evaluation of a record: a submission of its own, on no leaderboard."""

    submission: str
    status: Status
    verdict: Verdict | None
    gradients: Gradients | None
    speedup: float | None
    speedup_interval: IntervalRecord | None
    speedup_status: SpeedupStatus | None
    speedup_training: float | None
    speedup_training_interval: IntervalRecord | None
    speedup_training_status: SpeedupStatus | None
    device: str | None = Field(description="Which one, as the attempts have it.")
    finished: datetime | None


class VerificationRecord(BaseModel):
    """Whether a record is confirmed by re-evaluations; see *Records* in the documentation of the method."""

    status: VerificationStatus = Field(description="A `failed` one is on no leaderboard any more.")
    message: str
    requested: datetime
    finished: datetime | None
    checks: list[CheckRecord] = Field(description="The evaluations again, the first one first.")


class SubmissionRecord(BaseModel):
    """A submission and, once it is over, its evaluation."""

    id: str
    status: Status
    verdict: Verdict | None
    gradients: Gradients | None
    problem: str
    problem_version: str
    device: DeviceKind
    size: str
    precision: Precision
    baseline: str
    require_gradients: bool | None
    limits: dict[str, float] = Field(description="The requested limits; empty without any.")
    label: str | None
    author: str | None
    visibility: VisibilityName
    owner: str | None = Field(
        description="The client whose key it was handed in with. Only for that client and for administrators."
    )
    source_shown: bool = Field(
        description="Whether you may see the source. If not, whatever quotes it is empty here as well: message, hints, "
        "notes, flags, feedback, diagnosis, details."
    )
    withdrawal: WithdrawalRecord | None = Field(description="Whether it was taken from the leaderboards, and why.")
    speedup: float | None
    speedup_interval: IntervalRecord | None
    speedup_status: SpeedupStatus | None = Field(
        description="`measured` exactly where there is a speedup. `unsettled`: the machine was too noisy to tell, in "
        "every measurement. `not_vetted`: the problem is not vetted yet, or vetting refuses it. Both say nothing about "
        "the candidate: a missing speedup is not one of 0. `weights_fixed`: parameters that are the same under every "
        "seed are folded in or left out, and it cannot be told which. Null: there is nothing to measure."
    )
    speedup_warm: float | None = Field(description="Of a forward on warm caches, where that makes a difference.")
    speedup_warm_interval: IntervalRecord | None
    speedup_training: float | None
    speedup_training_interval: IntervalRecord | None
    speedup_training_status: SpeedupStatus | None = Field(
        description="The same of forward and backward together. `weights_fixed` here alone: it is wrong once its "
        "weights have changed between two calls, as in training."
    )
    speedup_compiled: float | None = Field(
        description="Over the reference compiled by `torch.compile`, where the service compares with it."
    )
    speedup_compiled_interval: IntervalRecord | None
    latency_ms: LatencyRecord | None
    latency_warm_ms: LatencyRecord | None
    latency_training_ms: LatencyRecord | None
    roofline_share: float | None = Field(description="The inference track's share of its roofline bound.")
    roofline: dict[Track, RooflineRecord] = Field(description="By track, of candidates that passed.")
    errors: ErrorRecord
    peak_memory_bytes: int | None
    message: str
    hints: list[str]
    notes: list[str]
    flags: list[FlagRecord] = Field(description="Remarks on the source. They never decide a verdict.")
    feedback: str | None = Field(
        description="Feedback for a language model about its candidate, in at most 2,000 characters: stage, error with "
        "its line, worst elements, figures, hints. It is there once there is a verdict, in a single record and in the "
        "results of a batch, not in lists."
    )
    diagnosis: DiagnosisRecord | None = Field(
        description="The latest one, on request or after a device fault. Only in a single record, not in lists."
    )
    verification: VerificationRecord | None = Field(
        description="The verification of a record on a leaderboard. Only in a single record, not in lists."
    )
    verifies: str | None = Field(
        description="The submission whose record this one re-evaluates; the service has made it."
    )
    requirements: DeviceRequirements | None
    waiting_for: str | None = Field(
        description="The kind of worker that it needs, if none that could run it is available."
    )
    details: dict[str, Any]
    queue_position: int | None = Field(
        description="1 is next; a few others may come first to share a baseline. Only in a single record, not in lists."
    )
    attempts: int
    progress: ProgressRecord | None
    timeline: TimelineRecord
    stage_s: dict[str, float]
    environment: dict[str, Any]
    links: LinkRecord


class SeriesRecord(BaseModel):
    """The timed calls of one track, in the order in which they were taken.

    Entry `i` of the candidate is paired with entry `i` of the baseline. `*_device_ms` is measured by the runner's own
    clock (CUDA events on `cuda`), `*_outer_ms` by the judge's around the same call.
    """

    candidate_device_ms: list[float]
    baseline_device_ms: list[float]
    candidate_outer_ms: list[float]
    baseline_outer_ms: list[float]
    candidate_forward_ms: list[float] = Field(description="The forward's part, where there is a backward.")
    baseline_forward_ms: list[float]
    order: list[str] = Field(description="The side that was called first in each pair.")


class SamplesRecord(BaseModel):
    """The raw samples behind a submission's figures."""

    submission: str
    tracks: dict[str, SeriesRecord] = Field(description="By track: `inference`, and `training` where it was timed.")


class AttemptRecord(BaseModel):
    """An attempt of a worker on the submission."""

    number: int = Field(description="Grows with each fault of ours, and begins at 1 again after a retry.")
    stage: Literal["build", "evaluate"]
    worker: str
    device: str | None = Field(description="A GPU's UUID, or the machine and `cpu`; null for builds.")
    started: datetime
    ended: datetime | None
    outcome: str = Field(
        description="`running`, `built`, `done`, `unsettled` (it passed, and is measured again), `fault` (ours), "
        "`lost` (the worker was not heard of any more), `released` (given back without a fault: `detail` says why), "
        "`cancelled`."
    )
    detail: str


class AttemptList(BaseModel):
    """Every attempt on one submission, the first one first."""

    submission: str
    items: list[AttemptRecord]


class SubmissionPage(BaseModel):
    """Submissions, newest first."""

    items: list[SubmissionRecord]
    next_cursor: str | None = Field(description="Pass as `cursor` for the next page; null on the last one.")


class ToleranceRecord(BaseModel):
    """The tolerance of an element: it is right within `atol * rms(expected) + rtol * |expected|`."""

    atol: float
    rtol: float


class KernelBenchRecord(BaseModel):
    """The level, number and name of a KernelBench problem."""

    level: int
    problem_id: int
    name: str


class VettedOn(BaseModel):
    """The version of a problem that was vetted, and the conditions of its vetting."""

    version: str
    device: DeviceKind
    size: str
    precision: Precision
    torch: str
    stale: bool = Field(description="The problem has changed since, so the findings are left out.")


class ProblemSummary(BaseModel):
    """A problem without its source."""

    id: str
    version: str
    title: str
    description: str
    dtype: Precision
    sizes: dict[str, dict[str, int | float]] = Field(description="The reference's globals at each size.")
    gradient_policy: Literal["check", "require", "none"]
    input_domain: Literal["real", "as_written"]
    tolerances: dict[str, ToleranceRecord]
    tags: list[str]
    baselines: list[Baseline] = Field(description="The baselines that a submission may name.")
    kernelbench: KernelBenchRecord | None
    labels: list[Label] | None = Field(
        description="The findings of vetting, see *Vetting* in the documentation of the method; null: this version was "
        "never vetted."
    )
    ranked: bool = Field(
        description="Whether it has leaderboards. A problem that was not vetted has some, unless vetting is required."
    )
    refusal: str | None = Field(description="The reason for missing leaderboards.")
    vetting: VettedOn | None


class ProblemRecord(ProblemSummary):
    """A problem with the source of its reference."""

    reference: str = Field(description="The reference's Python source, at its `full` size.")


class ProblemList(BaseModel):
    """All problems to which candidates can be submitted, by id."""

    items: list[ProblemSummary]


class LeaderboardEntry(BaseModel):
    """One ranked result."""

    rank: int = Field(
        description="Counts from 1 for each `device_name`: neither different devices nor different versions of torch "
        "and CUDA are ranked together."
    )
    submission: str
    author: str | None
    label: str | None
    speedup: float = Field(description="That of the track.")
    speedup_interval: IntervalRecord | None
    speedup_training: float | None
    latency_ms: float | None
    baseline_ms: float | None
    gradients: Gradients
    device: DeviceKind
    device_name: str | None
    software: str | None = Field(description="The versions of torch and CUDA.")
    source_digest: str
    submitted: datetime
    finished: datetime
    verification: VerificationStatus | None = Field(
        description="Of an entry that made a record: the state of its re-evaluation."
    )


class Board(BaseModel):
    """A leaderboard: one problem, kind of device, track, size and precision."""

    problem: str
    problem_version: str
    device: DeviceKind
    device_name: str | None = Field(description="As asked for; null: the ranking of each device, one after another.")
    software: str | None = Field(description="As asked for; null: the newest that each device was measured under.")
    track: Track
    size: str
    precision: str
    refusal: str | None = Field(description="Why the problem is not ranked; then there are no entries.")
    entries: list[LeaderboardEntry]
    next_cursor: int | None


class WorkerRecord(BaseModel):
    """A worker process."""

    id: str
    kind: str
    alive: bool
    queues: list[str]
    device: str | None
    capabilities: dict[str, Any]
    current_submission: str | None = Field(description="Null as well where it is not visible to you.")
    state: WorkerState = Field(
        description="`ready`; `testing`: it tests itself first; `unhealthy`: its device is not fit at the moment; "
        "`out`: its device was taken out until a self-test passes; `stopping`."
    )
    reason: str = Field(description="The reason why it takes no work, where it takes none.")
    unchecked: list[str] = Field(description="The checks of its device's health that could not be made.")
    started: datetime
    heartbeat: datetime


class WorkerList(BaseModel):
    """Every worker of the last hour."""

    items: list[WorkerRecord]


class Health(BaseModel):
    """Whether the service can do its work."""

    status: Literal["ok"]
    problems: int | None = None
    degraded: list[str] = Field(
        default_factory=list, description="The parts that are impaired, while requests are answered."
    )
