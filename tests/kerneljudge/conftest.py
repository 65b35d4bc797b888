"""Clients of a real application, without a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from typer.testing import CliRunner, Result

import kerneljudge.cli.app
import kerneljudge.cli.service
from api.app import create_app
from evaluator.problems.problem import Problem
from kerneljudge.client import Client
from runtime.settings import Settings
from tests.api.inmemory import AppTransport, running
from tests.api.seeds import Seeds

ROOT = Path(__file__).parents[2]
PROBLEMS = ROOT / "reference_models"
PROBLEM_IDS = sorted(path.parent.name for path in PROBLEMS.glob("*/problem.toml"))
"""As they are listed."""
KNOWN = f"there are {', '.join(PROBLEM_IDS)}"
CANDIDATES = ROOT / "tests" / "candidates"
URL = "http://testserver"


@pytest.fixture
def app(tmp_path: Path, give_schema: Callable[[Settings], None]) -> FastAPI:
    """An application of its own, on SQLite."""
    settings = Settings(data_dir=tmp_path / "data", problems_dir=PROBLEMS)
    give_schema(settings)
    return create_app(settings)


@pytest.fixture
def transport(app: FastAPI) -> Iterator[AppTransport]:
    """The application, started."""
    with running(app) as transport:
        yield transport


@pytest.fixture
def seeds(transport: AppTransport, app: FastAPI, problems: dict[str, Problem]) -> Seeds:
    """Puts submissions into the application's database."""
    return Seeds(app.state.services.sessions, problems)


class Pauses(list[float]):
    """Instead of sleeping."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


@pytest.fixture
def pauses() -> Pauses:
    """How long the client would have slept."""
    return Pauses()


@pytest.fixture
def service(transport: AppTransport, pauses: Pauses) -> Iterator[Client]:
    """A client of the application."""
    with Client(URL, transport=transport, sleep=pauses) as service:
        yield service


Cli = Callable[..., Result]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    """Runs a command in an empty folder; returns status, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    # Whatever service this machine has is not for tests.
    monkeypatch.setattr(kerneljudge.cli.service, "DEFAULT_URL", "http://127.0.0.1:9")

    def run(*argv: object, stdin: str | bytes | None = None) -> Result:
        return CliRunner().invoke(kerneljudge.cli.app.app, [str(part) for part in argv], input=stdin)

    return run


@pytest.fixture
def online(transport: AppTransport, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> Cli:
    """As ``cli``, with the application for a service."""

    def connect(url: str) -> Client:
        return Client(URL, transport=transport)

    monkeypatch.setattr(kerneljudge.cli.service, "connect", connect)
    return cli


class Flaky(httpx.BaseTransport):
    """Fails a few times in a given way before it hands requests on."""

    def __init__(self, inner: httpx.BaseTransport, *failures: httpx.Response | Exception) -> None:
        self.inner = inner
        self.failures = list(failures)
        self.requests: list[httpx.Request] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if not self.failures:
            return self.inner.handle_request(request)
        failure = self.failures.pop(0)
        if isinstance(failure, Exception):
            raise failure
        request.read()
        return failure
