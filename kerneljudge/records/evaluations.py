"""The figures of an evaluation."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from kerneljudge.records.types import FlagKindName, SpeedupStatusName

__all__ = ["ErrorRecord", "FlagRecord", "IntervalRecord", "LatencyRecord", "RooflineRecord", "ShapeFiguresRecord"]


class IntervalRecord(TypedDict):
    """A two-sided interval."""

    low: float
    high: float
    level: float


class LatencyRecord(TypedDict):
    """Median latencies in milliseconds. `*_outer` is measured by the judge's own clock around the same calls."""

    candidate: float
    baseline: float
    candidate_outer: float
    baseline_outer: float


class ShapeFiguresRecord(TypedDict):
    """The figures at a timed shape of the problem. They mean the same as the submission's own."""

    speedup: float | None
    speedup_interval: IntervalRecord | None
    speedup_status: SpeedupStatusName | None
    speedup_training: float | None
    speedup_training_interval: IntervalRecord | None
    speedup_training_status: SpeedupStatusName | None
    latency_ms: LatencyRecord | None
    latency_training_ms: LatencyRecord | None


class RooflineRecord(TypedDict):
    """The roofline bound of a track: the least time that its bytes and operations take at the device's highest rates.

    See *Roofline* in the documentation of the method.
    """

    bound_ms: float
    limited_by: Literal["memory", "compute"]
    share: float
    """`bound_ms` / the candidate's latency. Above 1 there is a note about it."""
    memory_ms: float
    compute_ms: float | None
    """Null where the device's rate in this precision is not known."""
    intensity: float
    """Operations per byte."""
    bytes: int
    operations: int
    bytes_per_s: float
    """The fastest copy seen on the device: bytes read and written."""
    operations_per_s: float | None
    """The fastest matrix product in the problem's precision."""


class ErrorRecord(TypedDict):
    """The errors against the float64 reference.

    `reference_max_rel` is that of the reference in the problem's precision.
    """

    max_abs: float | None
    max_rel: float | None
    reference_max_rel: float | None


class FlagRecord(TypedDict):
    """A remark on the source for a reviewer. It is advice only: no verdict depends on it."""

    kind: FlagKindName
    """The kind of remark; see *Flags* in the documentation of the method."""
    line: int | None
    """The line of the source, from 1; null for a remark on more than one line."""
    message: str
