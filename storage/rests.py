"""How long what failed through a fault of ours rests: what broke may need a while."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import or_

__all__ = ["pause_after_unsettled", "rest_after", "rested"]

_RESTS: Final = tuple(timedelta(seconds=seconds) for seconds in (1, 10, 60))

_PAUSES: Final = tuple(timedelta(seconds=seconds) for seconds in (10, 60, 300))
"""What makes a machine noisy passes in minutes, or not soon."""


def rest_after(faults: int) -> timedelta:
    """The rest after the ``faults``-th fault."""
    return _RESTS[min(faults, len(_RESTS)) - 1]


def pause_after_unsettled(times: int) -> timedelta | None:
    """How long what was unsettled ``times`` times waits to be measured again; ``None``: it has been often enough."""
    return _PAUSES[times - 1] if times <= len(_PAUSES) else None


def rested(not_before: Any, now: datetime) -> Any:
    """The condition that a row, with its column ``not_before``, rests no more."""
    return or_(not_before.is_(None), not_before <= now)
