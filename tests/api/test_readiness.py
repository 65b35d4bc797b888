"""Ready means that the work can be done; what cannot is named."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text

from api.app import create_app
from api.services.container import Services
from api.services.readiness import obstacles
from api.services.shared_check import SharedCheck
from evaluator.problems.problem import Problem
from runtime.settings import Settings
from tests.api.conftest import PROBLEM_IDS, assert_problem
from tests.api.inmemory import running
from tests.api.seeds import Seeds
from tests.services import free_port, running_postgresql, running_redis


@pytest.fixture(autouse=True)
def check_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that follow each other share no result, because the tests change things between them."""
    monkeypatch.setattr("api.services.shared_check._AGE_S", 0.0)


def reasons(http: httpx.Client) -> dict[str, str]:
    """What is said to fail, by what it is."""
    problem = assert_problem(http.get("/readyz"), 503)
    errors = problem["errors"]
    assert isinstance(errors, list)
    found = {entry["field"]: entry["message"] for entry in errors}
    assert problem["detail"] == "; ".join(found.values())
    assert http.get("/healthz").status_code == 200, "it is alive all the same"
    return found


def test_a_schema_of_another_version_is_not_ready(settings: Settings) -> None:
    app = create_app(settings)
    with running(app) as transport, httpx.Client(transport=transport, base_url="http://testserver") as http:
        assert http.get("/readyz").json() == {"status": "ok", "problems": len(PROBLEM_IDS), "degraded": []}
        with app.state.services.engine.begin() as connection:
            needed = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
            connection.execute(text("UPDATE alembic_version SET version_num = '0001'"))
        assert reasons(http) == {"database": f"the schema is at version 0001, and {needed} is needed"}


def test_nothing_is_taken_while_the_schema_is_of_another_version(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.database._VERSION_READ_S", 0.0)
    app = create_app(settings)
    body = {"problem": "relu", "device": "cpu", "code": "class ModelNew: pass"}
    with running(app) as transport, httpx.Client(transport=transport, base_url="http://testserver") as http:
        assert http.post("/api/v1/submissions", json=body).status_code == 202
        with app.state.services.engine.begin() as connection:
            needed = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
            connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        refused = assert_problem(http.post("/api/v1/submissions", json=body), 503)
        assert refused["detail"] == f"the schema is at version 9999, and {needed} is needed"
        assert_problem(http.post("/api/v1/batches", json={"submissions": [body]}), 503)
        assert len(http.get("/api/v1/submissions").json()["items"]) == 1
        with app.state.services.engine.begin() as connection:
            connection.execute(text("UPDATE alembic_version SET version_num = :needed"), {"needed": needed})
        assert http.post("/api/v1/submissions", json=body).status_code == 202


def test_a_broker_that_is_away_is_named_without_its_address_and_requests_are_answered(tmp_path: Path) -> None:
    port = free_port()
    settings = Settings(
        data_dir=tmp_path / "data",
        problems_dir=Path("reference_models"),
        broker_url=f"redis://:secret@127.0.0.1:{port}/0",
    )
    app = create_app(settings)
    with running(app) as transport, httpx.Client(transport=transport, base_url="http://testserver") as http:
        answer = http.get("/readyz")
        assert answer.status_code == 200
        assert answer.json()["degraded"] == ["the broker cannot be reached: what is submitted waits until it can"]
        assert "secret" not in answer.text
        assert str(port) not in answer.text


def test_a_broker_that_hangs_keeps_nobody(tmp_path: Path) -> None:
    with running_redis() as server:
        settings = Settings(data_dir=tmp_path / "data", problems_dir=Path("reference_models"), broker_url=server.url)
        with (
            running(create_app(settings)) as transport,
            httpx.Client(transport=transport, base_url="http://testserver") as http,
        ):
            assert http.get("/readyz").json()["degraded"] == []
            body = {"problem": "relu", "device": "cpu", "size": "smoke", "code": "class ModelNew: pass"}
            with server.paused():
                begin = time.monotonic()
                assert len(http.get("/readyz").json()["degraded"]) == 1
                assert time.monotonic() - begin < 4, "as long as Kubernetes waits for an answer"
                assert http.post("/api/v1/submissions", json=body).status_code == 202
            told = http.get("/readyz").json()["degraded"]
            assert not any("broker" in each for each in told)


def test_while_a_database_takes_no_changes_it_is_read_and_the_rest_is_503(tmp_path: Path) -> None:
    """As one that another server has taken the place of."""
    with running_postgresql() as server:
        url = f"{server.url}/postgres"
        settings = Settings(data_dir=tmp_path / "data", problems_dir=Path("reference_models"), database_url=url)
        body = {"problem": "relu", "device": "cpu", "size": "smoke", "code": "class ModelNew: pass"}
        app = create_app(settings)
        with running(app) as transport, httpx.Client(transport=transport, base_url="http://testserver") as http:
            assert http.post("/api/v1/submissions", json=body).status_code == 202
            with app.state.services.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.execute(text("ALTER SYSTEM SET default_transaction_read_only = on"))
                connection.execute(text("SELECT pg_reload_conf()"))
            time.sleep(0.3)
            refused = assert_problem(http.post("/api/v1/submissions", json=body), 503)
            assert refused["detail"] == "the database takes no changes at the moment"
            assert len(http.get("/api/v1/submissions").json()["items"]) == 1


def test_a_database_that_stops_answering_keeps_no_answer_about_it(tmp_path: Path) -> None:
    with running_postgresql() as server:
        settings = Settings(
            data_dir=tmp_path / "data",
            problems_dir=Path("reference_models"),
            database_url=f"{server.url}/postgres",
        )
        app = create_app(settings)
        with running(app) as transport, httpx.Client(transport=transport, base_url="http://testserver") as http:
            assert http.get("/readyz").status_code == 200
            with server.paused():
                begin = time.monotonic()
                for _ in range(2):
                    assert set(reasons(http)) in ({"time"}, {"database"})
                assert http.get("/static/style.css").status_code == 200
                assert time.monotonic() - begin < 3 * 4
            time.sleep(1.5)  # until the threads that were given up have their answers
            assert http.get("/readyz").status_code == 200


@pytest.fixture
def queue_folder(api_settings: Settings) -> Iterator[Path]:
    folder = api_settings.data_dir / "queue"
    yield folder
    folder.unlink(missing_ok=True)


def test_many_requests_at_once_share_one_check(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.services.shared_check._AGE_S", 60.0)
    checked: list[float] = []

    def slow(services: Services) -> dict[str, str]:
        checked.append(time.monotonic())
        time.sleep(0.2)
        return obstacles(services)

    monkeypatch.setattr("api.routes.service.obstacles", slow)
    app = create_app(settings)

    async def ask() -> list[int]:
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://testserver", timeout=60) as client:
                leaves = asyncio.create_task(client.get("/readyz"))
                await asyncio.sleep(0.1)
                leaves.cancel()
                answers = await asyncio.gather(*(client.get("/readyz") for _ in range(100)))
                answers.append(await client.get("/readyz"))
                return [answer.status_code for answer in answers]

    assert asyncio.run(ask()) == [200] * 101
    assert len(checked) == 1


def test_a_shared_result_is_of_the_last_second_and_a_failure_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.services.shared_check._AGE_S", 0.2)
    count = 0

    def fail() -> None:
        nonlocal count
        count += 1
        raise ValueError(str(count))

    async def told() -> list[str]:
        check: SharedCheck[None] = SharedCheck(1.0)
        found: list[str] = []
        for pause_s in (0.0, 0.3, 0.0):
            await asyncio.sleep(pause_s)
            faults = await asyncio.gather(*(check.result(fail) for _ in range(3)), return_exceptions=True)
            found += map(str, faults)
        return found

    assert asyncio.run(told()) == ["1"] * 3 + ["2"] * 6


def test_a_check_that_hangs_is_given_up_and_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.services.shared_check._AGE_S", 0.0)
    over = threading.Event()

    async def results() -> str:
        check: SharedCheck[str] = SharedCheck(0.2)
        with pytest.raises(TimeoutError):
            await check.result(lambda: str(over.wait(20)))
        return await check.result(lambda: "made anew")

    try:
        assert asyncio.run(results()) == "made anew"
    finally:
        over.set()


def test_a_folder_that_cannot_be_written_to_is_named(
    http: httpx.Client, api_settings: Settings, queue_folder: Path
) -> None:
    assert http.get("/readyz").status_code == 200
    shutil.rmtree(queue_folder)
    queue_folder.write_text("in the way")
    found = reasons(http)
    assert set(found) == {"broker", "queue"}
    assert found["queue"] == "the folder of the queue cannot be written to: Not a directory"


def test_a_service_without_folders_of_problems_is_ready(http: httpx.Client, services: Services) -> None:
    services.problems = {}  # its clients may have created some
    assert http.get("/readyz").json()["problems"] == 0
    services.started = False
    assert set(reasons(http)) == {"problems"}


def test_everything_that_fails_is_named_at_once(http: httpx.Client, services: Services, api_settings: Settings) -> None:
    services.engine.dispose()
    services.read_engine.dispose()
    services.started = False
    shutil.rmtree(api_settings.data_dir)
    api_settings.data_dir.write_text("in the way")
    assert set(reasons(http)) == {"problems", "database", "broker", "data", "queue"}


def test_a_queue_that_nobody_serves_is_told_and_no_reason_to_go_elsewhere(
    http: httpx.Client, seeds: Seeds, problems: dict[str, Problem]
) -> None:
    def degraded() -> list[str]:
        answer = http.get("/readyz")
        assert answer.status_code == 200
        told: list[str] = answer.json()["degraded"]
        return told

    seeds.submit()
    assert degraded() == ["something waits in queue build, and no living worker takes from it"]
    seeds.worker("w1", "build", "build", None)
    assert degraded() == []
