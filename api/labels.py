"""Outcomes and figures in the form that pages show."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

from evaluator.evaluation import Gradients, Interval, SpeedupStatus, Status, Verdict
from evaluator.flags import FlagKind
from kerneljudge.records import IntervalRecord
from kerneljudge.terms.findings import Tool
from storage.models import BatchStatus, DiagnosisStatus, VerificationStatus, WorkerState
from storage.queue.celery_app import diagnosis_queue

__all__ = [
    "BATCHES",
    "DIAGNOSES",
    "FLAGS",
    "GRADIENTS",
    "MEANINGS",
    "STATUSES",
    "UNMEASURED",
    "VERDICTS",
    "VERIFICATIONS",
    "WORKER_STATES",
    "as_time",
    "figure",
    "first_upper",
    "interval",
    "machine",
    "measured",
    "milliseconds",
    "moment",
    "points",
    "seconds",
    "share",
    "share_range",
    "size_of",
    "thousands",
    "times",
    "tone",
    "undiagnosed",
]


class Shown(NamedTuple):
    """A word for something, and its colour (see ``tone``)."""

    word: str
    tone: str


VERDICTS: Final = {
    Verdict.PASSED: "passed",
    Verdict.INVALID_SOURCE: "no valid source",
    Verdict.LOAD_ERROR: "failed to load",
    Verdict.COMPILE_ERROR: "failed to compile",
    Verdict.CONSTRUCT_ERROR: "failed to construct",
    Verdict.RUNTIME_ERROR: "failed while running",
    Verdict.TIMEOUT: "took too long",
    Verdict.OUT_OF_MEMORY: "ran out of memory",
    Verdict.WRONG_SHAPE: "wrong shape",
    Verdict.WRONG_DTYPE: "wrong dtype",
    Verdict.WRONG_OUTPUT: "wrong output",
    Verdict.WRONG_GRADIENT: "wrong gradient",
    Verdict.REJECTED: "rejected",
}

MEANINGS: Final = {
    Verdict.PASSED: "Every call was right, in the time that it has.",
    Verdict.INVALID_SOURCE: "The source is no Python, or has no class ModelNew.",
    Verdict.LOAD_ERROR: "Importing the module failed.",
    Verdict.COMPILE_ERROR: "A compiler or linker refused an extension.",
    Verdict.CONSTRUCT_ERROR: "Making a ModelNew failed.",
    Verdict.RUNTIME_ERROR: "A call failed, or the process ended meanwhile.",
    Verdict.TIMEOUT: "Something took longer than its limit: an import, a build, a call, or all of it.",
    Verdict.OUT_OF_MEMORY: "It needed more memory than it may use.",
    Verdict.WRONG_SHAPE: "An output has another shape than the reference's.",
    Verdict.WRONG_DTYPE: "An output has another dtype than the reference's.",
    Verdict.WRONG_OUTPUT: "An output differs from the reference's by more than the tolerance.",
    Verdict.WRONG_GRADIENT: "A gradient differs from the reference's by more than the tolerance.",
    Verdict.REJECTED: "It broke a rule about its source, or one of measurement: it changed its inputs, say.",
}

STATUSES: Final = {
    Status.QUEUED: "waiting in the queue",
    Status.BUILDING: "being compiled",
    Status.EVALUATING: "being evaluated",
    Status.DONE: "done",
    Status.FAILED: "not graded: the fault is ours",
    Status.CANCELLED: "cancelled",
}

BATCHES: Final = {
    BatchStatus.RECEIVING: "coming in",
    BatchStatus.RUNNING: "being graded",
    BatchStatus.DONE: "done",
    BatchStatus.CANCELLED: "cancelled",
}

DIAGNOSES: Final = {
    DiagnosisStatus.PENDING: "waiting in the queue, after all evaluations",
    DiagnosisStatus.RUNNING: "being made",
    DiagnosisStatus.DONE: "done",
    DiagnosisStatus.FAILED: "not made: the fault is ours",
}

VERIFICATIONS: Final = {
    VerificationStatus.PENDING: "it is to be evaluated again, after all that waits",
    VerificationStatus.VERIFIED: "an evaluation again, later and with other inputs, has confirmed it",
    VerificationStatus.FAILED: "no evaluation again has confirmed it, so it was withdrawn from the leaderboards",
}

WORKER_STATES: Final = {
    WorkerState.READY: Shown("alive", "good"),
    WorkerState.TESTING: Shown("testing itself", "open"),
    WorkerState.UNHEALTHY: Shown("takes nothing: device not fit", "fault"),
    WorkerState.OUT: Shown("takes nothing: device taken out", "fault"),
    WorkerState.STOPPING: Shown("stopping", "open"),
}

UNMEASURED: Final = {
    SpeedupStatus.UNSETTLED: "too noisy to tell",
    SpeedupStatus.NOT_VETTED: "not vetted, or refused",
    SpeedupStatus.WEIGHTS_FIXED: "weights fixed",
}
"""The reasons for a missing speedup."""

GRADIENTS: Final = {
    Gradients.MATCH: "match",
    Gradients.PARTIAL: "match, as far as comparable",
    Gradients.MISMATCH: "differ",
    Gradients.MISSING: "missing",
    Gradients.NOT_APPLICABLE: "not applicable",
    Gradients.NOT_CHECKED: "not checked",
}

FLAGS: Final = {
    FlagKind.LIBRARY_ONLY: "library only",
    FlagKind.UNUSED_KERNEL: "unused kernel",
    FlagKind.INHERITS_REFERENCE: "inherits the reference",
    FlagKind.EXCEPTION_FALLBACK: "fallback where something raises",
    FlagKind.PRECISION_SHORTCUT: "less precision",
    FlagKind.CACHES_OUTPUTS: "keeps results",
    FlagKind.READS_ITS_SURROUNDINGS: "looks at its surroundings",
    FlagKind.PATCHES_LIBRARIES: "changes a library",
    FlagKind.CONCEALS_SOURCE: "hidden source",
}

_DASH: Final = "\N{EN DASH}"
_TIMES: Final = "\N{MULTIPLICATION SIGN}"
_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")


def undiagnosed(tool: Tool, served: Collection[str]) -> str:
    """Return a text on the worker that a diagnosis waits for; empty where such a worker is running."""
    if diagnosis_queue(tool) in served:
        return ""
    return f"waiting for a worker with a CUDA device and {tool.program}: none is running"


def tone(status: Status | str, verdict: Verdict | str | None) -> str:
    """Return the colour of an outcome: ``good``, ``bad``, ``fault`` (ours) or ``open``."""
    if status == Status.DONE:
        return "good" if verdict == Verdict.PASSED else "bad"
    return "fault" if Status(status).final else "open"


def times(speedup: float | None) -> str:
    """Format a speedup with a multiplication sign.

    It has three significant digits or two decimals, and below a tenth two digits.
    """
    if speedup is None:
        return _DASH
    if speedup < 0.1:
        return f"{speedup:#.2g}{_TIMES}"
    return f"{speedup:.2f}{_TIMES}" if speedup < 100 else f"{speedup:.0f}{_TIMES}"


def measured(speedup: float | None, status: SpeedupStatus | str | None) -> str:
    """Format a speedup, or the reason that there is none."""
    if speedup is None and status in UNMEASURED:
        return UNMEASURED[SpeedupStatus(status)]
    return times(speedup)


def interval(value: Interval | IntervalRecord | None) -> str:
    """Format an interval, as short as its width allows."""
    if value is None:
        return ""
    low, high = (value.low, value.high) if isinstance(value, Interval) else (value["low"], value["high"])
    decimals = 2 if high - low >= 0.02 else 3
    return f"{low:.{decimals}f} {_DASH} {high:.{decimals}f}"


def milliseconds(value: float | None) -> str:
    """Format a latency with three digits: in milliseconds, or below a tenth of a millisecond in microseconds."""
    if value is None:
        return _DASH
    if value < 0.1:
        return f"{1000 * value:.1f} µs"
    return f"{_three_digits(value)} ms" if value < 999.5 else f"{_three_digits(value / 1000)} s"


def seconds(value: float | None) -> str:
    """Format a duration, in the unit that suits it."""
    if value is None:
        return _DASH
    if value < 1:
        return f"{1000 * value:.0f} ms"
    if value < 90:
        return f"{value:.1f} s"
    return f"{value / 60:.0f} min" if value < 5400 else f"{value / 3600:.1f} h"


def share(value: float | None) -> str:
    """Format a share in percent."""
    if value is None:
        return _DASH
    return f"{100 * value:.0f} %" if value == 0 or value >= 0.1 else f"{100 * value:.1f} %"


def points(value: float) -> str:
    """Format the difference of two shares in percentage points, with its sign."""
    return f"{100 * value:+.1f}".replace("-", "\N{MINUS SIGN}") if round(1000 * value) else "0.0"


def share_range(value: IntervalRecord) -> str:
    """Format the interval of a share in percent."""
    return f"{100 * value['low']:.0f} {_DASH} {100 * value['high']:.0f} %"


def thousands(number: int) -> str:
    """Format a number with thin spaces between its thousands."""
    return f"{number:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def size_of(count: int | None) -> str:
    """Format a number of bytes in the largest unit of which there is at least one."""
    if count is None:
        return _DASH
    value = float(count)
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            return f"{value:.4g} {unit}"
        value /= 1024
    raise AssertionError("the last unit takes everything")


def figure(value: float | str) -> str:
    """Format a number of a tensor. Values that are not finite come as text."""
    return value if isinstance(value, str) else f"{value:.6g}"


def machine(facts: Mapping[str, object]) -> dict[str, object]:
    """Return facts about a machine for a page: words for names, sizes in their unit, and no unknown values."""
    shown: dict[str, object] = {}
    for name, value in facts.items():
        if name.endswith("_bytes") and isinstance(value, int):
            shown[name.removesuffix("_bytes").replace("_", " ")] = size_of(value)
        elif value is not None:
            shown[name.replace("_", " ")] = value
    return shown


def first_upper(text: str) -> str:
    """Return ``text`` with its first letter in upper case; the rest stays."""
    return text[:1].upper() + text[1:]


def as_time(value: datetime | str) -> datetime:
    """Return the moment of a row of the database or of a record, which has it as text."""
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def moment(value: datetime | str) -> str:
    """Format a moment in UTC, to the second."""
    return as_time(value).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def _three_digits(value: float) -> str:
    """Format with three digits and trailing zeros, so that figures in a column have the same length."""
    return f"{value:#.3g}".removesuffix(".")
