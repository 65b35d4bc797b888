"""The parts of one application, which are built once from its settings and handed to the routes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from typing import Annotated

from fastapi import Depends, Query, Request
from prometheus_client import CollectorRegistry
from sqlalchemy.orm import Session

from api.http.metrics import HttpMetrics, StateCollector
from api.records.queries import BatchSnapshot, StatusSnapshot, batch_snapshots, status_snapshots
from api.services.catalogue import Catalogue, Catalogues
from api.services.rate_limit import Meter
from api.services.response_cache import ResponseCache
from api.services.shared_check import SharedCheck
from api.services.status_watcher import Watcher
from evaluator.problems.loading import load_problems
from evaluator.problems.problem import Problem
from kerneljudge.records import Health
from runtime.settings import Settings
from storage.access.visibility import Viewer
from storage.database import CommitMark, create_engine_for, migrate, refuse_foreign_schema, session_factory
from storage.problems import sync_problems
from storage.queue.celery_app import make_celery, notify_after_commit

__all__ = [
    "MAX_WAIT_S",
    "READY_S",
    "ReadSession",
    "Services",
    "ServicesDep",
    "WaitSeconds",
    "WriteSession",
]

MAX_WAIT_S = 300.0
_BATCH_INTERVAL_S = 0.5
READY_S = 3.5
"""The longest time of an answer about readiness, in seconds: less than Kubernetes waits for it."""


class Services:
    """Database, queue, problems, metrics, shared answers, watchers and meter of one application.

    ``sessions`` notify the workers after their commit; ``readers`` refuse to write. ``problems`` are those of folders,
    and empty until ``start``. ``started``: whether they are loaded.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.engine = create_engine_for(settings)
        self.sessions = session_factory(self.engine)
        refuse_foreign_schema(self.sessions)
        self.read_engine = create_engine_for(settings, read_only=True)
        self.readers = session_factory(self.read_engine, read_only=True)
        self.celery = make_celery(settings, patient=False)
        notify_after_commit(self.sessions, self.celery)
        self.problems: Mapping[str, Problem] = {}
        self.started = False
        self._catalogues = Catalogues({})
        self.readiness: SharedCheck[Health] = SharedCheck(READY_S)
        self.registry = CollectorRegistry()
        self.http_metrics = HttpMetrics(self.registry)
        self.registry.register(StateCollector(self.readers))
        self.meter = Meter(self.sessions)
        self.response_cache = ResponseCache(settings.answer_age_s)
        self.commit_mark = CommitMark(settings)
        self.watcher = Watcher(self._query, mark=self.commit_mark.read)
        self.batch_watcher = Watcher(self._query_batches, interval_s=_BATCH_INTERVAL_S)

    def start(self) -> None:
        """Bring the schema up to date and the problems into the database. Raises ``ProblemError``."""
        migrate(self.settings)
        problems = load_problems(self.settings.problems_dir, self.settings.extra_problems_dir)
        with self.sessions.begin() as session:
            sync_problems(session, problems)
            self.problems = problems
            self._catalogues = Catalogues(problems)
            self._catalogues.read(session)
        self.started = True

    def close(self) -> None:
        """Release all waiting requests, and close the connections."""
        self.release_waiting()
        self.celery.close()
        self.commit_mark.close()
        self.engine.dispose()
        self.read_engine.dispose()

    def release_waiting(self) -> None:
        """Release all waiting requests, now and from now on."""
        self.watcher.close()
        self.batch_watcher.close()

    def catalogue(self, session: Session, viewer: Viewer) -> Catalogue:
        """Return the problems that ``viewer`` sees, with the vetting results so far, including those from workers.

        ``session`` must not have changed any problem, because what it reads is kept.
        """
        return self._catalogues.read(session).seen_by(viewer)

    def _query(self, submission_ids: Collection[str]) -> Mapping[str, StatusSnapshot]:
        with self.readers() as session:
            return status_snapshots(session, submission_ids)

    def _query_batches(self, batch_ids: Collection[str]) -> Mapping[str, BatchSnapshot]:
        with self.readers() as session:
            return batch_snapshots(session, batch_ids)


# Dependencies that do not block are asynchronous, because they then need no thread.
async def _services(request: Request) -> Services:
    services = request.app.state.services
    assert isinstance(services, Services)
    return services


ServicesDep = Annotated[Services, Depends(_services)]


async def _read_session(services: ServicesDep) -> AsyncIterator[Session]:
    with services.readers() as session:
        yield session


def _write_session(services: ServicesDep) -> Iterator[Session]:
    with services.sessions.begin() as session:
        yield session


# A session is closed (and committed) before the answer is sent, so that a client with the answer finds the row.
ReadSession = Annotated[Session, Depends(_read_session, scope="function")]
WriteSession = Annotated[Session, Depends(_write_session, scope="function")]


WaitSeconds = Annotated[
    float,
    Query(
        ge=0,
        le=MAX_WAIT_S,
        allow_inf_nan=False,
        description="Answer only when the submission is over, or after so many seconds.",
    ),
]
