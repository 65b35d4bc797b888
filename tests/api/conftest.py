"""A real application on SQLite: in memory, or behind a real web server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from api.app import create_app
from api.server import Server, make_server
from api.services.container import Services
from evaluator.problems.problem import Problem
from runtime.settings import Settings
from tests.api.inmemory import AppTransport, running
from tests.api.seeds import Seeds

PROBLEMS = Path(__file__).parents[2] / "reference_models"
PROBLEM_IDS = sorted(path.parent.name for path in PROBLEMS.glob("*/problem.toml"))
"""As they are listed."""
KNOWN = f"there are {', '.join(PROBLEM_IDS)}"
JSON_ERROR = "application/problem+json"


@pytest.fixture
def api_settings(tmp_path: Path) -> Settings:
    """Settings of an installation of its own, on SQLite."""
    return Settings(data_dir=tmp_path / "data", problems_dir=PROBLEMS, port=0)


@pytest.fixture
def app(api_settings: Settings, give_schema: Callable[[Settings], None]) -> FastAPI:
    """An application that is not started yet."""
    give_schema(api_settings)
    return create_app(api_settings)


@pytest.fixture
def transport(app: FastAPI) -> Iterator[AppTransport]:
    """The application, started."""
    with running(app) as transport:
        yield transport


@pytest.fixture
def http(transport: AppTransport) -> Iterator[httpx.Client]:
    """A client of the application, without a network."""
    with httpx.Client(transport=transport, base_url="http://testserver") as client:
        yield client


@pytest.fixture
def services(app: FastAPI) -> Services:
    """What the application is made of."""
    services: Services = app.state.services
    return services


@pytest.fixture
def seeds(transport: AppTransport, services: Services, problems: dict[str, Problem]) -> Seeds:
    """Puts submissions into the application's database."""
    return Seeds(services.sessions, problems)


class LiveServer:
    """The application behind a real web server on a free port."""

    def __init__(self, app: FastAPI, settings: Settings) -> None:
        self.app = app
        self.server: Server = make_server(settings, app=app)
        self.thread = threading.Thread(target=self.server.run, name="web server")

    def start(self) -> None:
        self.thread.start()
        while not self.server.started:
            self.thread.join(0.02)
            assert self.thread.is_alive(), "the server did not start"

    @property
    def url(self) -> str:
        host, port = self.server.servers[0].sockets[0].getsockname()[:2]
        return f"http://{host}:{port}"

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(20)
        assert not self.thread.is_alive(), "the server did not stop"


@pytest.fixture
def live(app: FastAPI, api_settings: Settings) -> Iterator[LiveServer]:
    """The application behind a real web server."""
    server = LiveServer(app, api_settings)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def live_seeds(live: LiveServer, services: Services, problems: dict[str, Problem]) -> Seeds:
    """Puts submissions into the served application's database."""
    return Seeds(services.sessions, problems)


Post = Callable[..., httpx.Response]


@pytest.fixture
def post(http: httpx.Client) -> Post:
    """Hands in a candidate for ``relu``, with changes to the body."""

    def post(
        params: dict[str, str] | None = None, headers: dict[str, str] | None = None, **body: object
    ) -> httpx.Response:
        content = {"problem": "relu", "code": "class ModelNew: ...\n"} | body
        return http.post("/api/v1/submissions", json=content, params=params, headers=headers)

    return post


def assert_problem(answer: httpx.Response, status: int) -> dict[str, object]:
    """``answer`` is a well-formed error of this status."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == JSON_ERROR
    body: dict[str, object] = answer.json()
    assert set(body) == {"type", "title", "status", "detail", "request_id", "errors"}
    assert body["status"] == status
    assert body["request_id"] == answer.headers["x-request-id"]
    return body


def fields(problem: dict[str, object]) -> set[str]:
    """The fields that an error names."""
    errors = problem["errors"]
    assert isinstance(errors, list)
    return {entry["field"] for entry in errors}
