"""How long a submission rests before its next attempt: what broke, or was too noisy, may need a while."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import or_

__all__ = ["pause_after_unsettled", "rest_after", "rested"]

_RESTS: Final = tuple(timedelta(seconds=seconds) for seconds in (1, 10, 60))


def rest_after(faults: int) -> timedelta:
    """The rest after the ``faults``-th fault."""
    return _RESTS[min(faults, len(_RESTS)) - 1]


def pause_after_unsettled(times: int, pauses_s: Sequence[float]) -> timedelta | None:
    """How long what was unsettled ``times`` times waits to be measured again; ``None``: it has been often enough."""
    return timedelta(seconds=pauses_s[times - 1]) if times <= len(pauses_s) else None


def rested(not_before: Any, now: datetime) -> Any:
    """The condition that a row, with its column ``not_before``, rests no more."""
    return or_(not_before.is_(None), not_before <= now)
