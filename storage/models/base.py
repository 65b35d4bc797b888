"""The base of all tables, and the names of their constraints."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from sqlalchemy import MetaData
from sqlalchemy.orm import DeclarativeBase

from storage.columns import CleanText, JsonData, UtcDateTime

__all__ = ["Base"]

_NAMES: Final = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    """All tables, with names for every constraint, so that migrations can name them."""

    metadata = MetaData(naming_convention=_NAMES)
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy's own form
        str: CleanText,
        datetime: UtcDateTime,
        dict[str, Any]: JsonData,
        list[str]: JsonData,
        list[dict[str, Any]]: JsonData,
    }
