"""Who may see what: submissions and batches belong to clients, who decide what others see of them.

A *client* is whom a key was given to (see ``storage.access.keys``). What nobody owns, because it was handed in without
a key, is public.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

from sqlalchemy import ColumnElement, and_, or_, true

__all__ = ["EVERYTHING", "Viewer", "Visibility", "owned_key"]


class Visibility(StrEnum):
    """What others see of a submission: all of it, all but its source and what quotes it, or not even that it is."""

    PUBLIC = "public"
    SOURCE_HIDDEN = "source_hidden"
    PRIVATE = "private"

    def opens_to(self, wanted: Visibility) -> bool:
        """Whether ``wanted`` shows at least as much: what others have seen cannot be taken back."""
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
    """Somebody who looks: a client, or anybody at all; ``everything``: an administrator."""

    client: str | None = None
    everything: bool = False

    def owns(self, row: _Owned) -> bool:
        """Whether ``row`` is his to change; administrators may change everything."""
        return self.everything or (self.client is not None and row.owner == self.client)

    def sees(self, row: _Owned) -> bool:
        """Whether ``row`` is there at all, for him."""
        return row.visibility != Visibility.PRIVATE or self.owns(row)

    def sees_source(self, row: _Owned) -> bool:
        """Whether he is shown the source, and what quotes it."""
        return row.visibility == Visibility.PUBLIC or self.owns(row)

    def seen(self, table: Any) -> ColumnElement[bool]:
        """The condition that ``sees`` holds, on rows of ``table``."""
        return self._or_owned(table, table.visibility != str(Visibility.PRIVATE))

    def source_seen(self, table: Any) -> ColumnElement[bool]:
        """The condition that ``sees_source`` holds, on rows of ``table``."""
        return self._or_owned(table, table.visibility == str(Visibility.PUBLIC))

    def _or_owned(self, table: Any, shown: ColumnElement[bool]) -> ColumnElement[bool]:
        if self.everything:
            return true()
        return shown if self.client is None else or_(shown, and_(table.owner.is_not(None), table.owner == self.client))


EVERYTHING: Final = Viewer(everything=True)


def owned_key(owner: str | None, key: str | None) -> str | None:
    """An idempotency key as it is stored: that of one client is never that of another."""
    if owner is None or key is None:
        return key
    return hashlib.sha256(json.dumps([owner, key]).encode()).hexdigest()
