"""The whole way through the API, on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import httpx

from api.app import create_app
from evaluator.problems.problem import Problem
from runtime.settings import Settings
from tests.api.conftest import PROBLEMS, assert_problem
from tests.api.inmemory import running
from tests.api.seeds import SOURCE, Seeds

HOSTILE = "a\x00b<script>'; DROP TABLE submissions; --\U0001f4a9"


def test_from_handing_in_to_the_leaderboard(settings: Settings, problems: dict[str, Problem]) -> None:
    app = create_app(settings)
    with running(app) as transport, httpx.Client(transport=transport, base_url="http://testserver") as http:
        seeds = Seeds(app.state.services.sessions, problems)
        body = {"problem": "relu", "code": SOURCE, "label": HOSTILE, "author": HOSTILE}
        key = {"Idempotency-Key": HOSTILE.encode("ascii", "replace").replace(b"\x00", b"0").decode()}
        first = http.post("/api/v1/submissions", json=body, headers=key)
        assert (first.status_code, first.json()["status"]) == (202, "queued")
        assert http.post("/api/v1/submissions", json=body, headers=key).json()["id"] == first.json()["id"]
        assert_problem(http.post("/api/v1/submissions", json=body | {"label": "x"}, headers=key), 409)
        assert http.post("/api/v1/submissions", json=body | {"code": HOSTILE}).json()["verdict"] == "invalid_source"

        graded = seeds.passed(author=HOSTILE, label=HOSTILE)
        assert http.get(f"/api/v1/submissions/{graded}", params={"wait": 5}).json()["speedup"] == 2.0
        assert "event: done" in http.get(f"/api/v1/submissions/{graded}/events").text
        assert http.get(f"/api/v1/submissions/{graded}/log").text == "compiled\nit ran\n"
        board = http.get("/api/v1/leaderboard", params={"problem": "relu"}).json()
        assert [entry["submission"] for entry in board["entries"]] == [graded]

        for name in ("author", "label", "problem"):
            assert http.get("/api/v1/submissions", params={name: "\x00"}).json()["items"] == []
        assert_problem(http.get("/api/v1/submissions/%00"), 404)
        assert http.delete(f"/api/v1/submissions/{first.json()['id']}").json()["status"] == "cancelled"
        assert 'status="cancelled",verdict=""} 1.0' in http.get("/metrics").text
        assert http.get("/readyz").status_code == 200
        assert http.get("/", headers={"Accept": "text/html"}).status_code == 200


def test_simultaneous_requests_with_one_key_make_one_submission(settings: Settings) -> None:
    app = create_app(settings)

    async def post_all() -> list[httpx.Response]:
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://testserver", timeout=60) as client:
                body = {"problem": "relu", "code": SOURCE}
                headers = {"Idempotency-Key": "one"}
                return await asyncio.gather(
                    *(client.post("/api/v1/submissions", json=body, headers=headers) for _ in range(12))
                )

    answers = asyncio.run(post_all())
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sum("idempotency-replayed" not in answer.headers for answer in answers) == 1


def test_equal_requests_at_once_create_one_problem(settings: Settings) -> None:
    app = create_app(settings.model_copy(update={"request_references": True}))
    source = (PROBLEMS / "relu" / "reference.py").read_text(encoding="utf-8")
    with running(app) as transport, httpx.Client(transport=transport, base_url="http://testserver") as http:

        def create(number: int) -> httpx.Response:
            key = {"Idempotency-Key": f"key {number % 3}"}
            return http.post("/api/v1/problems", json={"source": source}, headers=key)

        with ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(create, range(12)))
        assert [answer.status_code for answer in answers] == [201] * 12, [answer.text for answer in answers]
        assert len({answer.json()["id"] for answer in answers}) == 3
        assert sum("idempotency-replayed" not in answer.headers for answer in answers) == 3
        problem = answers[0].json()["id"]
        changed = [
            http.put(f"/api/v1/problems/{problem}", json={"source": f"{source}# {number % 2}\n"}) for number in range(4)
        ]
        assert [answer.status_code for answer in changed] == [200] * 4
        assert len(changed[-1].json()["versions"]) == 3
        assert http.delete(f"/api/v1/problems/{problem}").status_code == 204
        assert_problem(create(0), 409)
