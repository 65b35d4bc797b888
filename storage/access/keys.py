"""API keys: random texts that identify a client and its permissions.

A key is shown once, when it is made, and stored as its SHA-256. A slow hash is not needed, because a key has 256
random bits and cannot be guessed. Bound to a session; nothing here commits.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import delete, or_, select, update
from sqlalchemy.orm import Session

from storage.access import audit
from storage.clock import database_now
from storage.ids import new_id
from storage.models import ApiKey, SignIn

__all__ = ["KEY_PREFIX", "Keys", "Scope", "UnknownKey", "digest_of"]

KEY_PREFIX: Final = "kj_"

_SHOWN: Final = 10
_RANDOM_BYTES: Final = 32
_SIGNED_IN_FOR: Final = timedelta(hours=12)
_SEEN_AGAIN_AFTER: Final = timedelta(minutes=1)


class Scope(StrEnum):
    """A permission of a key; each scope includes those before it."""

    READ = "read"
    SUBMIT = "submit"
    REFERENCES = "references"
    ADMIN = "admin"

    @property
    def implied(self) -> frozenset[Scope]:
        """This scope and those that it includes."""
        scopes = list(Scope)
        return frozenset(scopes[: scopes.index(self) + 1])


class UnknownKey(LookupError):
    """There is no key with this id."""


def digest_of(token: str) -> str:
    """Return the SHA-256 of a key or of a sign-in's cookie, as it is stored."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


class Keys:
    """Queries and changes within one session. ``by`` is the actor of a change, for the audit trail."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def create(
        self,
        client: str,
        scopes: Collection[Scope],
        *,
        by: str,
        own_only: bool = False,
        expires_in: timedelta | None = None,
        requests_per_min: int | None = None,
        submissions_per_day: int | None = None,
    ) -> tuple[ApiKey, str]:
        """Make a new key for ``client``; return it with its text, which cannot be shown again.

        With ``own_only``, it sees the submissions and batches of ``client`` alone. Limits of ``None`` are those of the
        settings. Raises ``ValueError`` for an administrator's key with ``own_only``.
        """
        if own_only and Scope.ADMIN in scopes:
            raise ValueError("a key with the scope admin sees everything, so it cannot see its own alone")
        now = database_now(self._session)
        token = KEY_PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
        key = ApiKey(
            id=new_id("key"),
            digest=digest_of(token),
            prefix=token[:_SHOWN],
            client=client,
            scopes=[str(scope) for scope in Scope if scope in scopes],
            own_only=own_only,
            created_at=now,
            created_by=by,
            expires_at=None if expires_in is None else now + expires_in,
            requests_per_min=requests_per_min,
            submissions_per_day=submissions_per_day,
        )
        self._session.add(key)
        self._session.flush()
        told = {"own_only": True} if own_only else {}
        audit.record(self._session, "key.created", by=by, subject=key.id, client=client, scopes=key.scopes, **told)
        return key, token

    def get(self, key_id: str) -> ApiKey:
        """Return the key with this id. Raises ``UnknownKey``."""
        key = self._session.get(ApiKey, key_id, populate_existing=True)
        if key is None:
            raise UnknownKey(f"no key {key_id!r}")
        return key

    def all(self) -> Sequence[ApiKey]:
        """Return every key that was ever made, the newest first."""
        return self._session.scalars(select(ApiKey).order_by(ApiKey.id.desc())).all()

    def revoke(self, key_id: str, *, by: str) -> ApiKey:
        """Revoke the key and end the sign-ins that were made with it. Raises ``UnknownKey``."""
        key = self.get(key_id)
        if key.revoked_at is None:
            key.revoked_at = database_now(self._session)
            self._session.execute(delete(SignIn).where(SignIn.key_id == key_id))
            self._session.flush()
            audit.record(self._session, "key.revoked", by=by, subject=key_id, client=key.client)
        return key

    def limit(self, key_id: str, limits: Mapping[str, int | None], *, by: str) -> ApiKey:
        """Change ``requests_per_min`` or ``submissions_per_day``; ``None`` is the limit of the settings.

        Raises ``UnknownKey``.
        """
        key = self.get(key_id)
        before = {name: getattr(key, name) for name in limits}
        for name, value in limits.items():
            setattr(key, name, value)
        self._session.flush()
        audit.record(self._session, "key.limited", by=by, subject=key_id, before=before, after=dict(limits))
        return key

    def good(self, token: str) -> ApiKey | None:
        """Return the key whose text is ``token``, if it is neither revoked nor expired."""
        return self._good(select(ApiKey).where(ApiKey.digest == digest_of(token)))

    def sign_in(self, key: ApiKey) -> str:
        """Return a text that stands for ``key`` for some hours, so that a browser need not store the key itself."""
        now = database_now(self._session)
        self._session.execute(delete(SignIn).where(SignIn.expires_at < now))
        token = secrets.token_urlsafe(_RANDOM_BYTES)
        self._session.add(SignIn(digest=digest_of(token), key_id=key.id, expires_at=now + _SIGNED_IN_FOR))
        self._session.flush()
        return token

    def signed_in(self, token: str) -> ApiKey | None:
        """Return the key that ``sign_in`` gave ``token`` for, if both are still valid."""
        now = database_now(self._session)
        found = select(ApiKey).join(SignIn, SignIn.key_id == ApiKey.id)
        return self._good(found.where(SignIn.digest == digest_of(token), SignIn.expires_at > now))

    def sign_out(self, token: str) -> None:
        """End the sign-in of ``token``."""
        self._session.execute(delete(SignIn).where(SignIn.digest == digest_of(token)))

    def used(self, key_ids: Collection[str]) -> None:
        """Note that the keys were used just now; written at most once a minute for each key."""
        now = database_now(self._session)
        stale = or_(ApiKey.last_used_at.is_(None), ApiKey.last_used_at < now - _SEEN_AGAIN_AFTER)
        # In one order everywhere, as all locks.
        for key_id in sorted(key_ids):
            self._session.execute(update(ApiKey).where(ApiKey.id == key_id, stale).values(last_used_at=now))

    def _good(self, query: Any) -> ApiKey | None:
        key: ApiKey | None = self._session.scalars(query.where(ApiKey.revoked_at.is_(None))).one_or_none()
        if key is None or (key.expires_at is not None and key.expires_at <= database_now(self._session)):
            return None
        return key
