"""The readiness of this process: a test of everything that it needs."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from sqlalchemy import make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from api.records.queries import unserved
from api.services.container import Services
from runtime.settings import Settings
from storage.database import schema_fault
from storage.queue.celery_app import broker_fault

__all__ = ["degradations", "obstacles"]

_log = logging.getLogger(__name__)


def obstacles(services: Services) -> dict[str, str]:
    """Return the failures by name, in words; empty where this process can do its work.

    Strangers may read them. So the messages of drivers, which may contain addresses, are in the log alone.
    """
    found = dict(_obstacles(services))
    for name, reason in found.items():
        _log.warning("not ready, %s: %s", name, reason)
    return found


def degradations(services: Services, session: Session) -> list[str]:
    """Return the faults that are no reason to send requests to another process.

    An unreachable broker server is one of them. Submissions are in the database, and workers send their wake-ups once
    the broker is back. No other process of the API would do better.
    """
    found = [f"something waits in queue {queue}, and no living worker takes from it" for queue in unserved(session)]
    if _queue_folder(services.settings) is None and not _reaches_broker(services):
        found.append("the broker cannot be reached: what is submitted waits until it can")
    return found


def _obstacles(services: Services) -> Iterator[tuple[str, str]]:
    if not services.started:
        yield "problems", "the problems are not loaded yet"
    try:
        with services.readers() as session:
            wrong = schema_fault(session)
    except SQLAlchemyError as error:
        _log.warning("the database: %s", error)
        wrong = "the database cannot be reached"
    if wrong is not None:
        yield "database", wrong
    if _queue_folder(services.settings) is not None and not _reaches_broker(services):
        yield "broker", "the broker cannot be reached"
    for name, folder in _folders(services.settings):
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(b"\0")
        except OSError as error:
            yield name, f"the folder of the {name} cannot be written to: {error.strerror}"


def _folders(settings: Settings) -> Iterator[tuple[str, Path]]:
    """Yield the folders that this process writes to; none where database and broker are servers."""
    url = make_url(settings.database_url)
    if url.get_backend_name() == "sqlite":
        yield "data", Path(str(url.database)).parent
    queue = _queue_folder(settings)
    if queue is not None:
        yield "queue", queue


def _queue_folder(settings: Settings) -> Path | None:
    """Return the folder of the broker; ``None`` where the broker is a server."""
    broker = urlsplit(settings.broker_url)
    return Path(broker.path) if broker.scheme == "folder" else None


def _reaches_broker(services: Services) -> bool:
    fault = broker_fault(services.celery)
    if fault is not None:
        _log.warning("the broker: %s", fault)
    return fault is None
