"""Keys for an application that asks for them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy.orm import Session, sessionmaker

from storage.access.keys import Keys, Scope


class Keyring:
    """Makes keys; ``key["ada"]`` is a header that ada's requests carry, and ``None`` stands for nobody."""

    def __init__(self, sessions: sessionmaker[Session]) -> None:
        self._sessions = sessions
        self.ids: dict[str, str] = {}
        self.tokens: dict[str, str] = {}

    def make(self, client: str, scopes: Collection[Scope] = (Scope.SUBMIT,), **options: Any) -> dict[str, str]:
        with self._sessions.begin() as session:
            key, token = Keys(session).create(client, scopes, by="a test", **options)
        self.ids[client], self.tokens[client] = key.id, token
        return self[client]

    def __getitem__(self, client: str | None) -> dict[str, str]:
        return {} if client is None else {"Authorization": f"Bearer {self.tokens[client]}"}
