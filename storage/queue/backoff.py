"""Backoff of submissions before their next attempt, because a fault or a noisy machine may last a while."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import case, or_

from storage.models import Leased, Submission

__all__ = ["backoff_after", "is_due", "pause_after_unsettled"]

_LONGEST_PAUSE: Final = timedelta(days=1)
"""The longest pause after a noisy measurement that the settings allow, and more than that of a re-evaluation."""
_BACKOFF: Final = tuple(timedelta(seconds=seconds) for seconds in (1, 10, 60))


def backoff_after(faults: int) -> timedelta:
    """Return the backoff after the ``faults``-th fault: 1 s, 10 s, then 60 s each time."""
    return _BACKOFF[min(faults, len(_BACKOFF)) - 1]


def pause_after_unsettled(times: int, pauses_s: Sequence[float]) -> timedelta | None:
    """Return the pause before a submission that was unsettled ``times`` times is measured again.

    ``None`` where it has been measured often enough.
    """
    return timedelta(seconds=pauses_s[times - 1]) if times <= len(pauses_s) else None


def is_due(table: type[Leased], now: datetime) -> Any:
    """Return the SQL condition that the backoff of a row of ``table`` is over.

    A backoff that ends later than any can is over as well: it was begun before the clock was set back.
    """
    end: Any = table.not_before
    latest: Any = now + _BACKOFF[-1]
    if issubclass(table, Submission):
        may_pause = or_(table.unsettled > 0, table.verifies.is_not(None))
        latest = case((may_pause, now + _LONGEST_PAUSE), else_=latest)
    return or_(end.is_(None), end <= now, end > latest)
