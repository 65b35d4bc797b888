"""What belongs to one request, for whoever logs or answers during it."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import Final

__all__ = ["RequestIdFilter", "request_id"]

request_id: Final[ContextVar[str | None]] = ContextVar("request_id", default=None)


class RequestIdFilter(logging.Filter):
    """Gives every record a ``request_id``: that of the request it was logged in, or ``-``."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = request_id.get() or "-"
        return True
