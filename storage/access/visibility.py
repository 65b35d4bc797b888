"""Visibility: submissions and batches belong to clients, which decide how much others see of them.

A *client* is the holder of a key (see ``storage.access.keys``). Submissions that were handed in without a key have no
owner and are public.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

from sqlalchemy import ColumnElement, and_, false, or_, true

__all__ = ["ADMIN_VIEWER", "Viewer", "Visibility", "owned_key"]


class Visibility(StrEnum):
    """The part of a submission that others see.

    ``public``: all of it. ``source_hidden``: all except its source and texts that quote it. ``private``: nothing, not
    even its existence.
    """

    PUBLIC = "public"
    SOURCE_HIDDEN = "source_hidden"
    PRIVATE = "private"

    def opens_to(self, wanted: Visibility) -> bool:
        """Whether ``wanted`` shows at least as much, because a visibility can only be widened."""
        openness = list(Visibility)
        return openness.index(wanted) <= openness.index(self)


class _Owned(Protocol):
    """A row that belongs to a client."""

    @property
    def owner(self) -> Any: ...

    @property
    def visibility(self) -> Any: ...


@dataclass(frozen=True)
class Viewer:
    """A viewer of rows: a client, or the public where ``client`` is ``None``.

    ``everything``: an administrator. ``own_only``: a client that sees nothing of others, not even their public rows.
    """

    client: str | None = None
    everything: bool = False
    own_only: bool = False

    def owns(self, row: _Owned) -> bool:
        """Whether the viewer may change ``row``; administrators may change every row."""
        return self.everything or (self.client is not None and row.owner == self.client)

    def sees(self, row: _Owned) -> bool:
        """Whether the viewer may know of ``row`` at all."""
        return (row.visibility != Visibility.PRIVATE and not self.own_only) or self.owns(row)

    def sees_source(self, row: _Owned) -> bool:
        """Whether the viewer may see the source, and texts that quote it."""
        return (row.visibility == Visibility.PUBLIC and not self.own_only) or self.owns(row)

    def visible(self, table: Any) -> ColumnElement[bool]:
        """Return the SQL condition of ``sees`` on rows of ``table``."""
        return self._or_owned(table, table.visibility != str(Visibility.PRIVATE))

    def source_visible(self, table: Any) -> ColumnElement[bool]:
        """Return the SQL condition of ``sees_source`` on rows of ``table``."""
        return self._or_owned(table, table.visibility == str(Visibility.PUBLIC))

    def _or_owned(self, table: Any, shown: ColumnElement[bool]) -> ColumnElement[bool]:
        if self.everything:
            return true()
        if self.own_only:
            shown = false()
        return shown if self.client is None else or_(shown, and_(table.owner.is_not(None), table.owner == self.client))


ADMIN_VIEWER: Final = Viewer(everything=True)


def owned_key(owner: str | None, key: str | None) -> str | None:
    """Return an idempotency key as it is stored, so that equal keys of two clients differ."""
    if owner is None or key is None:
        return key
    return hashlib.sha256(json.dumps([owner, key]).encode()).hexdigest()
