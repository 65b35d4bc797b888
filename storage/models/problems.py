"""Tables of problems, their owners and vettings, and sources."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKeyConstraint
from sqlalchemy.orm import Mapped, mapped_column

from storage.models.base import Base

__all__ = ["CreatedProblem", "StoredProblem", "StoredSource", "StoredVetting"]


class StoredSource(Base):
    """One text, stored once however often it is submitted."""

    __tablename__ = "sources"

    digest: Mapped[str] = mapped_column(primary_key=True)
    text: Mapped[str]
    created_at: Mapped[datetime]


class StoredProblem(Base):
    """One version of a problem, as ``Problem.to_dict`` wrote it.

    ``vettings``: the vettings of this version that came with the problem, each as ``Vetting.to_dict`` wrote it.
    """

    __tablename__ = "problems"

    id: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[str] = mapped_column(primary_key=True)
    definition: Mapped[dict[str, Any]]
    current: Mapped[bool] = mapped_column(index=True)
    created_at: Mapped[datetime]
    vettings: Mapped[list[dict[str, Any]]] = mapped_column(default=list, server_default="[]")


class CreatedProblem(Base):
    """A problem that a client created through the API. ``version`` is the current one of its versions.

    ``owner``: the client, or ``None`` where the service asks for no keys. ``visibility``: ``public`` or ``private``.
    ``revision`` counts the changes of this row.
    """

    __tablename__ = "created_problems"
    __table_args__ = (ForeignKeyConstraint(["id", "version"], ["problems.id", "problems.version"]),)

    id: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[str]
    owner: Mapped[str | None]
    visibility: Mapped[str]
    created_at: Mapped[datetime]
    revision: Mapped[int]
    withdrawn_at: Mapped[datetime | None]


class StoredVetting(Base):
    """A worker's vetting of one version of a problem, at one precision on one kind of device.

    ``record`` is as ``Vetting.to_dict`` wrote it.
    """

    __tablename__ = "vettings"
    __table_args__ = (ForeignKeyConstraint(["problem", "problem_version"], ["problems.id", "problems.version"]),)

    problem: Mapped[str] = mapped_column(primary_key=True)
    problem_version: Mapped[str] = mapped_column(primary_key=True)
    precision: Mapped[str] = mapped_column(primary_key=True)
    device: Mapped[str] = mapped_column(primary_key=True)
    record: Mapped[dict[str, Any]]
    found_at: Mapped[datetime]
