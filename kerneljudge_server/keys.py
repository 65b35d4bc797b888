"""Keys of the API, in the database of this server's settings."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from kerneljudge.cli.output import BadUsage
from runtime.settings import InvalidSettings, Settings
from storage.access.audit import OPERATOR
from storage.access.keys import Keys, Scope
from storage.database import DatabaseUnusable, create_engine_for, prepare_database, session_factory
from storage.models import ApiKey

__all__ = ["create", "listed", "revoke"]


def create(
    client: str,
    scopes: Sequence[str],
    *,
    own_only: bool,
    expires_in: timedelta | None,
    requests_per_min: int | None,
    submissions_per_day: int | None,
) -> tuple[dict[str, Any], str]:
    """Make a key. Return its record, and its text, which is not stored. Raises ``BadUsage``."""
    with _keys() as keys:
        key, token = keys.create(
            client,
            [Scope(name) for name in scopes],
            by=OPERATOR,
            own_only=own_only,
            expires_in=expires_in,
            requests_per_min=requests_per_min,
            submissions_per_day=submissions_per_day,
        )
        return _record(key), token


def listed() -> list[dict[str, Any]]:
    """Return the records of all keys, the newest first. Raises ``BadUsage``."""
    with _keys() as keys:
        return [_record(key) for key in keys.all()]


def revoke(name: str) -> dict[str, Any]:
    """Revoke the key with this id or beginning, and return its record. Raises ``BadUsage``."""
    with _keys() as keys:
        found = [each for each in keys.all() if name in (each.id, each.prefix) or name.startswith(each.prefix)]
        if len(found) != 1:
            raise BadUsage(f"{'several keys begin' if found else 'no key begins'} like this; name one by its id")
        return _record(keys.revoke(found[0].id, by=OPERATOR))


@contextlib.contextmanager
def _keys() -> Iterator[Keys]:
    """Open the keys in the database of the settings, in one transaction. Raises ``BadUsage``."""
    try:
        settings = Settings.load()
        prepare_database(settings)
        engine = create_engine_for(settings)
    except (InvalidSettings, DatabaseUnusable) as error:
        raise BadUsage(str(error)) from error
    try:
        with session_factory(engine).begin() as session:
            yield Keys(session)
    finally:
        engine.dispose()


def _record(key: ApiKey) -> dict[str, Any]:
    moments = {name: getattr(key, f"{name}_at") for name in ("created", "expires", "revoked", "last_used")}
    return {
        "id": key.id,
        "prefix": key.prefix,
        "client": key.client,
        "scopes": key.scopes,
        "own_only": key.own_only,
        "created_by": key.created_by,
        **{name: None if moment is None else moment.isoformat() for name, moment in moments.items()},
        "requests_per_min": key.requests_per_min,
        "submissions_per_day": key.submissions_per_day,
    }
