"""Comparisons of two batches."""

from __future__ import annotations

from typing_extensions import TypedDict

from kerneljudge.records.evaluations import IntervalRecord

__all__ = ["ComparedBatch", "ComparisonRecord", "FastPDifferenceRecord", "PassAtKDifferenceRecord"]


class ComparedBatch(TypedDict):
    """One of the two batches, on the problems that both have."""

    id: str
    name: str | None
    candidates: int
    """Those that were graded."""
    ungraded: int
    """Those that were not, or not yet."""
    device_names: list[str]
    """The devices that have evaluated lines of the batch. Figures of other devices are hard to compare."""
    only: list[str]
    """Problems of this batch that the other one does not have. They are in no figure here."""


class FastPDifferenceRecord(TypedDict):
    """The difference of fast_p at one `p`, over the problems that both batches have."""

    p: float
    batch: float
    other: float
    difference: float
    """`batch` minus `other`."""
    interval: IntervalRecord
    """Of the difference. Without 0 in it, the batches differ by more than chance."""
    both: int
    """Problems that both batches reach."""
    batch_only: int
    other_only: int
    neither: int


class PassAtKDifferenceRecord(TypedDict):
    """The difference of pass@k at one `p`, over the problems that both batches have."""

    k: int
    p: float
    batch: float
    other: float
    difference: float
    """`batch` minus `other`."""
    interval: IntervalRecord
    """Of the difference."""


class ComparisonRecord(TypedDict):
    """Two batches on the problems that both have, in pairs. *Metrics* in the documentation has the definitions."""

    batch: ComparedBatch
    other: ComparedBatch
    problems: list[str]
    """The problems for which both have a graded candidate."""
    waiting: list[str]
    """The problems that both have, without a graded candidate in one of them. They are in no difference."""
    unequal: int
    """Of these, the problems with more graded candidates in one batch. More candidates have a higher fast_p, so pass@k
    is the fairer figure there.
    """
    fast_p: list[FastPDifferenceRecord]
    """Empty without a common problem."""
    pass_at_k: list[PassAtKDifferenceRecord]
    """For each k of which every common problem has as many candidates, in both batches."""
