"""The form of records on the wire: times as text, and records as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any, overload

from pydantic import TypeAdapter

__all__ = ["to_json", "to_text"]


@overload
def to_text(moment: datetime) -> str: ...


@overload
def to_text(moment: datetime | None) -> str | None: ...


def to_text(moment: datetime | None) -> str | None:
    """Return a time in UTC as a ``Timestamp`` of a record."""
    return None if moment is None else moment.isoformat().replace("+00:00", "Z")


def to_json(kind: type, record: Mapping[str, Any]) -> str:
    """Return ``record`` as JSON, exactly as a route that returns a ``kind`` sends it."""
    adapter = _adapter(kind)
    # Without validation, pydantic would not know what to do with names of enumerations and with times.
    return adapter.dump_json(adapter.validate_python(record)).decode()


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
