"""The parts of one application, which are built once from its settings and handed to the routes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import Depends, Query, Request
from prometheus_client import CollectorRegistry
from sqlalchemy.orm import Session

from api.http.errors import NotFound
from api.http.metrics import HttpMetrics, StateCollector
from api.records.queries import BatchSnapshot, StatusSnapshot, batch_snapshots, status_snapshots
from api.services.rate_limit import Meter
from api.services.response_cache import ResponseCache
from api.services.status_watcher import Watcher
from evaluator.problems.loading import load_problems
from evaluator.problems.problem import Problem
from runtime.settings import Settings
from storage.database import CommitMark, create_engine_for, migrate, session_factory
from storage.problems import sync_problems
from storage.queue.celery_app import make_celery, notify_after_commit
from storage.vettings import found_vettings, vettings_mark

__all__ = [
    "MAX_WAIT_S",
    "ReadSession",
    "Services",
    "ServicesDep",
    "Vetted",
    "WaitSeconds",
    "WriteSession",
]

MAX_WAIT_S = 300.0
_BATCH_INTERVAL_S = 0.5


@dataclass(frozen=True)
class Vetted:
    """Problems by id with the vetting results so far, and the refusals of those that are not ranked, by id."""

    problems: Mapping[str, Problem]
    refusals: Mapping[str, str]


class Services:
    """Database, queue, problems, metrics, shared answers, watchers and meter of one application.

    ``sessions`` notify the workers after their commit; ``readers`` refuse to write. ``problems`` are empty until
    ``start``.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.engine = create_engine_for(settings)
        self.sessions = session_factory(self.engine)
        self.read_engine = create_engine_for(settings, read_only=True)
        self.readers = session_factory(self.read_engine, read_only=True)
        self.celery = make_celery(settings, patient=False)
        notify_after_commit(self.sessions, self.celery)
        self.problems: Mapping[str, Problem] = {}
        self._vetted: tuple[Any, Vetted] = None, Vetted({}, {})
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
            self._vetted = None, Vetted({}, {})
            self.vetted(session)

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

    def problem(self, problem_id: str, session: Session | None = None) -> Problem:
        """Return a problem; with a ``session``, it has the vetting results so far.

        Raises ``NotFound``, which names the known problems.
        """
        problems = self.problems if session is None else self.vetted(session).problems
        problem = problems.get(problem_id)
        if problem is None:
            raise NotFound(f"no problem {problem_id!r}; there are {', '.join(self.problems)}")
        return problem

    def vetted(self, session: Session) -> Vetted:
        """Return the problems with the vetting results so far, including those from workers."""
        mark = vettings_mark(session)
        if mark != self._vetted[0]:
            found = found_vettings(session)
            problems = {
                each.id: replace(each, vettings=(*each.vettings, *found.get((each.id, each.version), ())))
                for each in self.problems.values()
            }
            # Computing this takes a hash of the whole problem, for which pages of all problems would wait.
            refusals = {each.id: each.refusal for each in problems.values() if each.refusal is not None}
            self._vetted = mark, Vetted(problems, refusals)
        return self._vetted[1]

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
