"""Inserts of rows that may exist already, on SQLite and on PostgreSQL."""

from __future__ import annotations

from typing import Any

from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

__all__ = ["insert_into"]


def insert_into(session: Session, table: Any) -> Any:
    """Return an ``INSERT`` with ``on_conflict_do_nothing`` and ``on_conflict_do_update``."""
    return postgresql.insert(table) if session.get_bind().dialect.name == "postgresql" else sqlite.insert(table)
