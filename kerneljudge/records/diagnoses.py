"""Diagnoses: the findings of NVIDIA's tools."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from kerneljudge.records.types import DeviceKind, DiagnosisStatusName, Precision, Timestamp, ToolName

__all__ = ["CountersRecord", "DiagnosisRecord", "DiagnosisResult", "FaultRecord"]


class FaultRecord(TypedDict):
    """A fault of a kernel, counted as often as it was reported at the same place."""

    what: str
    kernel: str | None
    file: str | None
    """The file as the compiler saw it."""
    line: int | None
    """In that file."""
    candidate_line: int | None
    """The line of the candidate's own source, where it is known."""
    code: str
    """That line of the source."""
    thread: tuple[int, int, int] | None
    """The first one that was reported."""
    block: tuple[int, int, int] | None
    details: list[str]
    count: int


class CountersRecord(TypedDict):
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


class DiagnosisResult(TypedDict):
    """The result of a tool for one forward and one backward of the candidate.

    It comes from a process in which the candidate's code ran, and no verdict depends on it.
    """

    tool: ToolName
    problem: str
    device: DeviceKind
    size: str
    """The one that it was found at; often a smaller one than the submission's."""
    precision: Precision
    stage: str
    """How far the candidate came: `starting`, `importing`, `constructing`, `forward`, `backward`, `done`."""
    seconds: float
    faults: list[FaultRecord]
    counters: list[CountersRecord]
    kernels: list[dict[str, Any]]
    """The resources of the kernels; see `details.kernels`."""
    error: str
    """The exception that the candidate raised in `stage`."""
    obstacle: str
    """The reason for a missing result of the tool; empty where there is a result."""
    printed: str
    """By candidate and tool. Only where the diagnosis itself is asked for, else empty."""
    notes: list[str]
    clean: bool
    """The candidate came to its end, and there is nothing to report."""
    summary: str


class DiagnosisRecord(TypedDict):
    """A diagnosis: a run of the candidate under one of NVIDIA's tools, on a worker, after all waiting evaluations."""

    submission: str
    tool: ToolName
    status: DiagnosisStatusName
    """`failed` is a fault of the service. A tool without a result is `done`, with an `obstacle`."""
    message: str
    """The condition that it waits for, its present step, or its error."""
    attempts: int
    requested: Timestamp
    started: Timestamp | None
    finished: Timestamp | None
    result: DiagnosisResult | None
