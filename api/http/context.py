"""The context of one request, for the code that answers it. Log lines have it as a field (see ``evaluator.logs``)."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

__all__ = ["request_id"]

request_id: Final[ContextVar[str | None]] = ContextVar("request_id", default=None)
