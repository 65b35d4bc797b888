"""The routes of keys, for administrators: make, list, change and revoke.

None of them works in open mode, where callers are not identified. There, ``kerneljudge keys`` does it on the server.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, cast

from fastapi import APIRouter, Depends, Path

from api.http.errors import Forbidden, NotFound, problems
from api.records.encoding import to_text
from api.schemas.keys import KeyChange, KeyRequest
from api.services.auth import ADMINISTERS, CallerDep
from api.services.container import ReadSession, WriteSession
from kerneljudge.records import KeyList, KeyRecord, NewKeyRecord
from storage.access.keys import Keys, Scope, UnknownKey
from storage.models import ApiKey

__all__ = ["router"]

router = APIRouter(prefix="/api/v1/keys", tags=["keys"])


def _administrator(caller: CallerDep) -> str:
    """Return the client of the request. Raises ``Forbidden`` where the caller is unknown."""
    if caller.client is None:
        raise Forbidden("this service asks for no keys; its operator makes them with kerneljudge keys create")
    return caller.client


Administrator = Annotated[str, Depends(_administrator)]
KeyId = Annotated[str, Path(max_length=100)]


@router.post("", status_code=201, dependencies=[ADMINISTERS], responses=problems(400, 413, 422))
def create_key(body: KeyRequest, administrator: Administrator, session: WriteSession) -> NewKeyRecord:
    """Make a key. Its text is in this answer alone: the service stores only a hash of it."""
    key, token = Keys(session).create(
        body.client,
        [Scope(scope) for scope in body.scopes],
        by=administrator,
        own_only=body.own_only,
        expires_in=None if body.expires_in_days is None else timedelta(days=body.expires_in_days),
        requests_per_min=body.requests_per_min,
        submissions_per_day=body.submissions_per_day,
    )
    return {**_record(key), "key": token}


@router.get("", dependencies=[ADMINISTERS], responses=problems())
def list_keys(administrator: Administrator, session: ReadSession) -> KeyList:  # noqa: ARG001 - asked for is enough
    """List all keys, including revoked and expired ones."""
    return KeyList(items=[_record(key) for key in Keys(session).all()])


@router.patch("/{key_id}", dependencies=[ADMINISTERS], responses=problems(400, 404, 413, 422))
def change_key(key_id: KeyId, body: KeyChange, administrator: Administrator, session: WriteSession) -> KeyRecord:
    """Change the limits of a key. They apply from the next request on."""
    try:
        return _record(Keys(session).limit(key_id, body.model_dump(exclude_unset=True), by=administrator))
    except UnknownKey as error:
        raise NotFound(str(error)) from error


@router.delete("/{key_id}", dependencies=[ADMINISTERS], responses=problems(404, 422))
def revoke_key(key_id: KeyId, administrator: Administrator, session: WriteSession) -> KeyRecord:
    """Revoke a key, from the next request on. A key that was revoked before stays as it is."""
    try:
        return _record(Keys(session).revoke(key_id, by=administrator))
    except UnknownKey as error:
        raise NotFound(str(error)) from error


def _record(key: ApiKey) -> KeyRecord:
    return cast(
        KeyRecord,
        {
            "id": key.id,
            "prefix": key.prefix,
            "client": key.client,
            "scopes": key.scopes,
            "own_only": key.own_only,
            "created": to_text(key.created_at),
            "created_by": key.created_by,
            "expires": to_text(key.expires_at),
            "revoked": to_text(key.revoked_at),
            "last_used": to_text(key.last_used_at),
            "requests_per_min": key.requests_per_min,
            "submissions_per_day": key.submissions_per_day,
        },
    )
