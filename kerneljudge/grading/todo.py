"""The candidates of an input that are still to be graded, and their results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from kerneljudge.grading.inputs import Entry, Input, Work
from kerneljudge.grading.local_record import failed_record
from kerneljudge.grading.options import GradingOptions
from kerneljudge.grading.sources import UnusableFile
from kerneljudge.records import ProblemSummary, SubmissionRecord

__all__ = ["REFUSED", "GradedEntry", "Grader", "Todo", "refused_entry"]

REFUSED: Final = "refused"
"""The outcome of a candidate that a service, or this machine, does not take."""


@dataclass(frozen=True)
class GradedEntry:
    """The result of one candidate.

    ``samples_ms`` are its timed calls, where they were requested. With ``again``, it replaces an earlier result.
    """

    entry: Entry
    record: SubmissionRecord
    samples_ms: Sequence[float] = ()
    refused: bool = False
    again: bool = False


class Todo:
    """The candidates of an input that are still to be graded."""

    def __init__(self, everything: Input, entries: Sequence[Entry]) -> None:
        self.entries = entries
        self._everything = everything
        self._wanted = {entry.key: entry for entry in entries}

    def __iter__(self) -> Iterator[tuple[Entry, Work]]:
        """Yield them in the order of ``entries``. Raises ``UnusableFile`` where the input has changed."""
        count = 0
        for work in self._everything:
            if isinstance(work, Work) and work.key in self._wanted:
                count += 1
                if work.entry != self._wanted[work.key]:
                    raise UnusableFile(f"{work.key} has changed since the input was first read; grade it again")
                yield self._wanted[work.key], work
        if count < len(self.entries):
            raise UnusableFile("the input has lost lines since it was first read; grade it again")


class Grader(Protocol):
    """A service, or this machine, with its problems. ``where`` is its place in words."""

    @property
    def where(self) -> str: ...

    def problems(self) -> Sequence[ProblemSummary]:
        """Return the problems that candidates may be for."""

    def grade(self, todo: Todo, options: GradingOptions) -> Iterator[GradedEntry]:
        """Yield the results of the candidates, in any order."""


def refused_entry(entry: Entry, why: str, options: GradingOptions) -> GradedEntry:
    """Return the result of a candidate that is not graded, for the reason ``why``."""
    known = {"device": options.device, "size": options.size, "tier": options.tier}
    record = failed_record(entry.problem, f"{REFUSED}: {why}", **known)
    return GradedEntry(entry, record, refused=True)
