"""Batches and their results."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from kerneljudge.records.evaluations import IntervalRecord
from kerneljudge.records.submissions import SubmissionRecord
from kerneljudge.records.types import BatchStatusName, StatusName, Timestamp, VerdictName, VisibilityName

__all__ = [
    "BatchLinks",
    "BatchList",
    "BatchRecord",
    "BestRecord",
    "FiguresRecord",
    "LineErrorRecord",
    "PassAtKRecord",
    "ResultRecord",
    "SummaryRecord",
    "WebhookRecord",
]


class LineErrorRecord(TypedDict):
    """A line that is not a valid submission."""

    line: int
    """From 1; of a batch in one piece, the number of the submission."""
    message: str


class FiguresRecord(TypedDict):
    """The figures of a set of candidates. Shares refer to all problems, including those without a candidate."""

    problems: int
    candidates: int
    """Those that were graded."""
    ungraded: int
    """Those that were not, or not yet."""
    compiled: int
    correct: int
    unsettled: int
    """Of the correct ones, those on too noisy a machine for a speedup."""
    not_vetted: int
    """Of the correct ones, those without a speedup, of problems that are not vetted or refused."""
    weights_fixed: int
    """Of the correct ones, those without a speedup, since they are right with some parameters only as these are at
    first.
    """
    untimed: int
    """Of the correct ones, those without a speedup since nothing was timed, as in the tier `check`."""
    solved: int
    """Problems with a correct candidate."""
    fast_p: dict[str, float]
    """By p: the share of problems whose best candidate is correct with a speedup above p, the lower end of its interval
    included. Above 0, what has no speedup is not faster.
    """
    fast_p_interval: dict[str, IntervalRecord]
    """By p, like `fast_p`: its interval, if problems and candidates were drawn anew. Empty without a problem."""
    geometric_mean: float | None
    """Of the speedups of the correct candidates."""
    best_geometric_mean: float | None
    """The same of each problem's best candidate."""


class PassAtKRecord(TypedDict):
    """The unbiased estimate of the chance that one of `k` candidates is correct with a speedup above `p`.

    It is averaged over problems.
    """

    k: int
    p: float
    value: float
    interval: IntervalRecord
    """Of `value`, if problems and candidates were drawn anew."""


class BestRecord(TypedDict):
    """The best candidate of a problem: the fastest correct one."""

    problem: str
    candidates: int
    correct: int
    name: str
    """Its label, or else its submission's id; empty where none is correct."""
    speedup: float | None
    certain_speedup: float | None
    """The lower end of its interval, by which it is the best."""


class SummaryRecord(TypedDict):
    """The summary of a batch, as far as it is graded. *Metrics* in the documentation has the definitions."""

    overall: FiguresRecord
    verdicts: dict[VerdictName, int]
    pass_at_k: list[PassAtKRecord]
    by_level: dict[str, FiguresRecord]
    """By KernelBench's level."""
    by_tag: dict[str, FiguresRecord]
    best: list[BestRecord]
    missing: list[str]
    """Problems that were asked about and have no candidate."""


class WebhookRecord(TypedDict):
    """The webhook of a batch, and the state of its delivery."""

    url: str
    attempts: int
    delivered: Timestamp | None
    message: str
    """The error of the last attempt; empty without one."""


class BatchLinks(TypedDict):
    """The addresses of a batch and its parts."""

    self: str
    results: str
    events: str
    summary: str
    comparison: str
    """With `?other=` and the id of another batch."""


class BatchRecord(TypedDict):
    """A batch and its progress."""

    id: str
    name: str | None
    visibility: VisibilityName
    owner: str | None
    """As of a submission."""
    status: BatchStatusName
    """`receiving` while lines come in, `running`, `done`; `cancelled` as soon as it is, even if something of it has
    begun and goes on.
    """
    message: str
    """Why it was cancelled."""
    items: int
    """Lines that are submissions."""
    errors_total: int
    """Lines that are none."""
    errors: list[LineErrorRecord]
    """The first 100 of those; of a batch whose source is hidden, only for its owner."""
    statuses: dict[StatusName, int]
    """Items by status."""
    verdicts: dict[VerdictName, int]
    """Items by verdict."""
    finished_items: int
    shared: int
    """Items that share their submission with an earlier line, of this batch or another."""
    rate_per_min: float | None
    """Items that ended a minute, over the last minutes; null before the first."""
    eta_s: float | None
    """Seconds until the last item ends, at that rate."""
    created: Timestamp
    received: Timestamp | None
    """The time at which the last line was received."""
    finished: Timestamp | None
    """When the last item was over."""
    webhook: WebhookRecord | None
    """Only for its owner and for administrators."""
    summary: SummaryRecord | None
    """Only in a single record and at the end of the events."""
    links: BatchLinks


class BatchList(TypedDict):
    """Batches, newest first, without their summaries."""

    items: list[BatchRecord]
    next_cursor: str | None
    """Pass as `cursor` for the next page; null on the last one."""


class ResultRecord(TypedDict):
    """A line of the results: an item that is over."""

    cursor: int
    """Its place in the order of completion; pass it as `cursor` to go on after it."""
    line: int
    label: str | None
    metadata: dict[str, Any] | None
    """The line's own, even where lines share a submission."""
    parent: str | None
    """The same."""
    cancelled: bool
    """The batch was cancelled before it began; its submission went on for another."""
    submission: SubmissionRecord
