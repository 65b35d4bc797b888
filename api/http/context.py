"""What belongs to one request, for whoever answers during it; who logs has it as a field (see ``evaluator.logs``)."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

__all__ = ["request_id"]

request_id: Final[ContextVar[str | None]] = ContextVar("request_id", default=None)
