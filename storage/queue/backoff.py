"""How long a submission rests before its next attempt: what broke, or was too noisy, may need a while."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import or_

__all__ = ["backoff_after", "is_due", "pause_after_unsettled"]

_BACKOFF: Final = tuple(timedelta(seconds=seconds) for seconds in (1, 10, 60))


def backoff_after(faults: int) -> timedelta:
    """The rest after the ``faults``-th fault."""
    return _BACKOFF[min(faults, len(_BACKOFF)) - 1]


def pause_after_unsettled(times: int, pauses_s: Sequence[float]) -> timedelta | None:
    """How long what was unsettled ``times`` times waits to be measured again; ``None``: it has been often enough."""
    return timedelta(seconds=pauses_s[times - 1]) if times <= len(pauses_s) else None


def is_due(not_before: Any, now: datetime) -> Any:
    """The condition that a row, with its column ``not_before``, rests no more."""
    return or_(not_before.is_(None), not_before <= now)
