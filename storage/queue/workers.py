"""The register of workers and their heartbeats."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from sqlalchemy import CursorResult, delete, select, update
from sqlalchemy.orm import Session

from storage.clock import database_now, is_recent
from storage.columns import json_safe
from storage.models import StoredWorker, WorkerState

__all__ = [
    "STALE_AFTER",
    "Condition",
    "Place",
    "Worker",
    "delete_stale",
    "heartbeat",
    "list_workers",
    "place_of",
    "register",
    "serving_ids",
    "unregister",
    "worker_name",
]

STALE_AFTER: Final = timedelta(seconds=20)
"""A worker without a heartbeat for this long counts as gone."""

_FORGOTTEN_AFTER: Final = timedelta(hours=1)


class Place(NamedTuple):
    """The host and the device of a worker; for builders, ``device`` is the queue."""

    host: str
    device: str


@dataclass(frozen=True)
class Condition:
    """Whether a worker takes submissions, and why not.

    ``unchecked``: the parts of its device's health that cannot be checked.
    """

    state: WorkerState = WorkerState.READY
    reason: str = ""
    unchecked: tuple[str, ...] = ()


@dataclass(frozen=True)
class Worker:
    """A worker process. ``kind`` is ``build`` or ``evaluate``; ``device`` is ``None`` for builders.

    ``busy_s``: the seconds for which it has had work since its start.
    """

    id: str
    kind: str
    queues: tuple[str, ...]
    device: str | None
    capabilities: Mapping[str, Any]
    started_at: datetime
    heartbeat_at: datetime
    current_submission: str | None
    busy_s: float
    alive: bool
    state: WorkerState
    reason: str
    unchecked: tuple[str, ...]


def worker_name(host: str, device_or_queue: str) -> str:
    """Return a unique name for this process."""
    return f"{host}-{device_or_queue}-{os.getpid()}-{secrets.token_hex(2)}"


def place_of(worker_id: str) -> Place:
    """Return the place of the worker with this name; a name of another form is taken for a host's."""
    parts = worker_id.rsplit("-", 3)
    return Place(parts[0], parts[1]) if len(parts) == 4 else Place(worker_id, "")


def register(
    session: Session,
    worker_id: str,
    *,
    kind: str,
    queues: Sequence[str],
    device: str | None,
    capabilities: Mapping[str, Any],
    condition: Condition | None = None,
) -> None:
    """Register a worker; an id is used once."""
    now = database_now(session)
    session.add(
        StoredWorker(
            id=worker_id,
            kind=kind,
            queues=list(queues),
            device=device,
            capabilities=json_safe(capabilities),
            started_at=now,
            heartbeat_at=now,
            current_submission=None,
            **_columns(condition or Condition()),
        )
    )
    session.flush()


def heartbeat(
    session: Session,
    worker_id: str,
    current_submission: str | None,
    condition: Condition | None = None,
    busy_s: float = 0.0,
) -> bool:
    """Record a worker's heartbeat, with its submission, its condition and its busy time.

    Returns ``False`` where the worker was struck off and has to register again.
    """
    known = session.execute(
        update(StoredWorker)
        .where(StoredWorker.id == worker_id)
        .values(
            heartbeat_at=database_now(session),
            current_submission=current_submission,
            busy_s=busy_s,
            **_columns(condition or Condition()),
        )
    )
    assert isinstance(known, CursorResult)
    return known.rowcount == 1


def unregister(session: Session, worker_id: str) -> None:
    """Strike off a worker that ends."""
    session.execute(delete(StoredWorker).where(StoredWorker.id == worker_id))


def delete_stale(session: Session) -> None:
    """Strike off workers without a heartbeat for an hour."""
    known = is_recent(StoredWorker.heartbeat_at, _FORGOTTEN_AFTER, database_now(session))
    session.execute(delete(StoredWorker).where(~known))


def serving_ids(session: Session, queue: str, now: datetime | None = None) -> frozenset[str]:
    """Return the ids of the workers that are alive and take from ``queue``."""
    now = now or database_now(session)
    taking = [state for state in WorkerState if state.takes]
    alive = select(StoredWorker.id, StoredWorker.queues).where(
        is_recent(StoredWorker.heartbeat_at, STALE_AFTER, now), StoredWorker.state.in_(taking)
    )
    return frozenset(worker_id for worker_id, queues in session.execute(alive) if queue in queues)


def list_workers(session: Session) -> list[Worker]:
    """Return every registered worker, the oldest first."""
    now = database_now(session)
    rows = session.scalars(select(StoredWorker).order_by(StoredWorker.started_at, StoredWorker.id))
    return [
        Worker(
            id=row.id,
            kind=row.kind,
            queues=tuple(row.queues),
            device=row.device,
            capabilities=row.capabilities,
            started_at=row.started_at,
            heartbeat_at=row.heartbeat_at,
            current_submission=row.current_submission,
            busy_s=row.busy_s,
            alive=abs(now - row.heartbeat_at) <= STALE_AFTER,
            state=WorkerState(row.state),
            reason=row.reason,
            unchecked=tuple(row.unchecked),
        )
        for row in rows
    ]


def _columns(condition: Condition) -> dict[str, Any]:
    return {"state": condition.state, "reason": condition.reason, "unchecked": list(condition.unchecked)}
