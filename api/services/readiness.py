"""Whether this process can do its work: all that it needs, tried out."""

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
    """What fails, in words, by what it is; nothing where this process can do its work.

    Strangers may read it: what drivers say, which may hold addresses, is in the log alone.
    """
    found = dict(_obstacles(services))
    for name, reason in found.items():
        _log.warning("not ready, %s: %s", name, reason)
    return found


def degradations(services: Services, session: Session) -> list[str]:
    """What is not as it should be, and no reason to send requests elsewhere.

    A server that is the broker is one: what is submitted is in the database, and workers send its wake-up once the
    broker is back. No other process of the API would do better.
    """
    found = [f"something waits in queue {queue}, and no living worker takes from it" for queue in unserved(session)]
    if _queue_folder(services.settings) is None and not _reaches_broker(services):
        found.append("the broker cannot be reached: what is submitted waits until it can")
    return found


def _obstacles(services: Services) -> Iterator[tuple[str, str]]:
    if not services.problems:
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
    """Where this process writes: with servers for database and broker, nowhere."""
    url = make_url(settings.database_url)
    if url.get_backend_name() == "sqlite":
        yield "data", Path(str(url.database)).parent
    queue = _queue_folder(settings)
    if queue is not None:
        yield "queue", queue


def _queue_folder(settings: Settings) -> Path | None:
    """The folder that is the broker, where no server is."""
    broker = urlsplit(settings.broker_url)
    return Path(broker.path) if broker.scheme == "folder" else None


def _reaches_broker(services: Services) -> bool:
    fault = broker_fault(services.celery)
    if fault is not None:
        _log.warning("the broker: %s", fault)
    return fault is None
