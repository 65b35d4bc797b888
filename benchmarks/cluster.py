"""The distributed form on this machine: PostgreSQL, Redis, and a given number of processes of each kind.

A process that ends is started again, as a container engine would do.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx
import psycopg

from benchmarks.waiting import until
from evaluator.interpreter import python_command, python_environment
from runtime.process_supervisor import ChildSpec, Supervisor
from tests.processes import Process, children
from tests.services import PostgresqlServer, RedisServer, free_port, running_postgresql, running_redis

__all__ = ["KINDS", "Cluster", "Shape", "running_cluster"]

KINDS: Final = {"api": "api", "builder": "worker --queue build", "evaluator": "worker --queue evaluate"}
"""The part of a process's command that identifies its kind."""

_ROOT: Final = Path(__file__).parent.parent
_READY_S: Final = 180.0
_POLL_S: Final = 0.1


@dataclass(frozen=True)
class Shape:
    """The number of processes of each kind. ``settings`` are environment variables of all of them."""

    apis: int = 2
    builders: int = 2
    evaluators: int = 2
    settings: Mapping[str, str] = field(default_factory=dict)


class Cluster:
    """A running cluster. ``urls`` are those of the APIs."""

    def __init__(self, database: PostgresqlServer, broker: RedisServer, urls: Sequence[str], folder: Path) -> None:
        self.database = database
        self.broker = broker
        self.urls = tuple(urls)
        self.folder = folder

    def processes(self, kind: str) -> list[Process]:
        """Return the living processes of a kind, in no order."""
        return [each for each in children(os.getpid()) if f"runtime.parent_death {KINDS[kind]}" in each.command]

    def is_ready(self, url: str) -> bool:
        """Whether the API there answers, and its database does."""
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{url}/readyz", timeout=2.0, trust_env=False).is_success
        return False

    def await_ready(self) -> None:
        """Wait until every API answers. Raises ``TimeoutError``."""
        for url in self.urls:
            until(lambda url=url: self.is_ready(url), f"{url} to be ready", _READY_S)  # type: ignore[misc]

    def query(self, statement: str) -> list[tuple[object, ...]]:
        """Return the database's answer to a query. Raises ``psycopg.Error`` where it does not answer."""
        with psycopg.connect(self.database.conninfo, connect_timeout=2) as connection:
            return connection.execute(statement.encode()).fetchall()

    def workers(self, kind: str) -> set[str]:
        """Return the ids of all registered workers of a kind, alive or not."""
        stage = "build" if kind == "builder" else "evaluate"
        return {str(row[0]) for row in self.query(f"SELECT id FROM workers WHERE kind = '{stage}'")}  # noqa: S608


@contextmanager
def running_cluster(
    shape: Shape, folder: Path, *, durable: bool, prepare: Callable[[str], object] = lambda _: None
) -> Iterator[Cluster]:
    """Run a cluster with all files in ``folder``, and yield it once it is ready. Call it in the main thread.

    It is stopped at the end. ``durable`` says whether PostgreSQL waits for the disk. ``prepare`` gets the database's
    URL before any of our processes starts.
    """
    with ExitStack() as running:
        database = running.enter_context(running_postgresql(durable=durable))
        broker = running.enter_context(running_redis())
        url = f"{database.url}/postgres"
        prepare(url)
        ports = [free_port() for _ in range(shape.apis)]
        environment = python_environment(
            {
                **{name: value for name, value in os.environ.items() if not name.startswith("KERNELJUDGE_")},
                **{name: os.environ[name] for name in ("KERNELJUDGE_PREPARED_DIR",) if name in os.environ},
                "KERNELJUDGE_DATA_DIR": str(folder / "data"),
                "KERNELJUDGE_PROBLEMS_DIR": str(_ROOT / "reference_models"),
                "KERNELJUDGE_VERIFY_RECORDS": "off",  # only submissions that were handed in are graded and counted
                "KERNELJUDGE_DATABASE_URL": url,
                "KERNELJUDGE_BROKER_URL": broker.url,
                **shape.settings,
            }
        )
        supervisor = Supervisor(_specs(shape, ports, folder), environment, _ignore)
        running.enter_context(supervisor)
        running.enter_context(_kept_running(supervisor))
        cluster = Cluster(database, broker, [f"http://127.0.0.1:{port}" for port in ports], folder)
        cluster.await_ready()
        for kind, count in (("builder", shape.builders), ("evaluator", shape.evaluators)):
            until(_registered(cluster, kind, count), f"{count} of the kind {kind}", _READY_S)
        yield cluster


def _specs(shape: Shape, ports: Sequence[int], folder: Path) -> list[ChildSpec]:
    python = python_command("-m", "runtime.parent_death")
    logs = folder / "logs"
    return [
        *(
            ChildSpec(f"api-{number}", ["env", f"KERNELJUDGE_PORT={port}", *python, "api"], logs / f"api-{number}.log")
            for number, port in enumerate(ports)
        ),
        *(
            ChildSpec(f"builder-{number}", [*python, "worker", "--queue", "build"], logs / f"builder-{number}.log")
            for number in range(shape.builders)
        ),
        *(
            ChildSpec(
                f"evaluator-{number}",
                [*python, "worker", "--queue", "evaluate.cpu", "--device", "cpu"],
                logs / f"evaluator-{number}.log",
            )
            for number in range(shape.evaluators)
        ),
    ]


def _registered(cluster: Cluster, kind: str, count: int) -> Callable[[], bool]:
    return lambda: len(cluster.workers(kind)) >= count


@contextmanager
def _kept_running(supervisor: Supervisor) -> Iterator[None]:
    ended = threading.Event()

    def check() -> None:
        while not ended.wait(_POLL_S):
            supervisor.check()

    thread = threading.Thread(target=check)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _ignore(_line: str) -> None:
    """Ignore a line. It is in the logs, and the supervisor counts it."""
