"""The table of the metrics' counters."""

from __future__ import annotations

from sqlalchemy.orm import Mapped, mapped_column

from storage.models.base import Base

__all__ = ["StoredCount"]


class StoredCount(Base):
    """One shard of a count, which is the sum over all shards. ``labels``: the values of its labels, as a JSON list."""

    __tablename__ = "counts"

    name: Mapped[str] = mapped_column(primary_key=True)
    labels: Mapped[str] = mapped_column(primary_key=True)
    shard: Mapped[int] = mapped_column(primary_key=True)
    value: Mapped[float]
