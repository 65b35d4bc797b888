"""Backoff of submissions before their next attempt, because a fault or a noisy machine may last a while."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import or_

__all__ = ["backoff_after", "is_due", "pause_after_unsettled"]

_BACKOFF: Final = tuple(timedelta(seconds=seconds) for seconds in (1, 10, 60))


def backoff_after(faults: int) -> timedelta:
    """Return the backoff after the ``faults``-th fault: 1 s, 10 s, then 60 s each time."""
    return _BACKOFF[min(faults, len(_BACKOFF)) - 1]


def pause_after_unsettled(times: int, pauses_s: Sequence[float]) -> timedelta | None:
    """Return the pause before a submission that was unsettled ``times`` times is measured again.

    ``None`` where it has been measured often enough.
    """
    return timedelta(seconds=pauses_s[times - 1]) if times <= len(pauses_s) else None


def is_due(not_before: Any, now: datetime) -> Any:
    """Return the SQL condition that a row's backoff, with its end in the column ``not_before``, is over."""
    return or_(not_before.is_(None), not_before <= now)
