"""Column types that behave alike on SQLite and PostgreSQL."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, DateTime, Dialect, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import TypeDecorator

__all__ = ["CleanText", "JsonData", "JsonText", "UtcDateTime", "clean_text", "json_safe"]


def clean_text(text: str) -> str:
    """Return ``text`` with NUL replaced by U+FFFD and lone surrogates by ``?``, as no database can store them."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def json_safe(value: Any) -> Any:
    """Return ``value`` as JSON that every database accepts: a float that is not finite becomes ``None``."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {clean_text(str(key)): json_safe(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(entry) for entry in value]
    return value


class CleanText(TypeDecorator[str]):
    """Text that ``clean_text`` cleans on the way in: stored values, and the values of comparisons."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002 - the interface
        return None if value is None else clean_text(value)


class JsonData(TypeDecorator[Any]):
    """JSON (``JSONB`` on PostgreSQL) that ``json_safe`` makes safe on the way in."""

    impl = JSON(none_as_null=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> Any:
        return dialect.type_descriptor(JSONB(none_as_null=True) if dialect.name == "postgresql" else self.impl_instance)

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:  # noqa: ARG002 - the interface
        return json_safe(value)


class JsonText(TypeDecorator[Any]):
    """JSON as text, which keeps the order of names and each number as it was written. ``JSONB`` keeps neither."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:  # noqa: ARG002 - the interface
        return None if value is None else clean_text(json.dumps(value, ensure_ascii=False, allow_nan=False))

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:  # noqa: ARG002 - the interface
        return None if value is None else json.loads(value)


class UtcDateTime(TypeDecorator[datetime]):
    """A moment, always in UTC; SQLite stores it without a time zone.

    Raises ``ValueError`` for a value without a time zone.
    """

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a moment needs its time zone")
        moment = value.astimezone(UTC)
        return moment if dialect.name == "postgresql" else moment.replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
