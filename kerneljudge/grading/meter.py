"""The progress display of grading."""

from __future__ import annotations

import time
from collections import Counter

from kerneljudge.cli.progress import ProgressLine

__all__ = ["Meter"]


class Meter:
    """A progress display with counts, the rate, and the remaining time."""

    def __init__(self, total: int, line: ProgressLine) -> None:
        self._total = total
        self._line = line
        self._outcomes: Counter[str] = Counter()
        self._started = time.monotonic()
        self._show()

    def count(self, outcome: str) -> None:
        """Count one result by its outcome, and show the new counts."""
        self._outcomes[outcome] += 1
        self._show()

    def _show(self) -> None:
        done = self._outcomes.total()
        parts = [f"{done} of {self._total}"]
        parts += [f"{count} {outcome.replace('_', ' ')}" for outcome, count in self._outcomes.most_common()]
        minutes = (time.monotonic() - self._started) / 60
        if done and minutes > 0:
            rate = done / minutes
            parts += [f"{rate:.3g} a minute", f"{(self._total - done) / rate:.3g} min left"]
        self._line.show("grading", ", ".join(parts), done / self._total if self._total else 1.0)
