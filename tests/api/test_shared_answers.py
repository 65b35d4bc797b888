"""Answers that whoever has no key shares: what is made once, for how long, and that nothing private gets into one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import Response
from fastapi.responses import StreamingResponse

from api.http.errors import NotFound
from api.services.container import Services
from api.services.response_cache import ResponseCache
from runtime.settings import Settings
from storage.access.keys import Scope
from storage.access.visibility import Visibility
from tests.api.conftest import PROBLEMS
from tests.api.inmemory import AppTransport
from tests.api.keyring import Keyring
from tests.api.seeds import SOURCE, Seeds

BOARD = "/api/v1/leaderboard?problem=relu&device=cpu"
SHARED = (BOARD, "/problems/relu", "/", "/overall")


class Maker:
    """Makes answers, each with its number; each takes until ``go`` is set."""

    def __init__(self) -> None:
        self.made = 0
        self.go = asyncio.Event()
        self.go.set()

    async def __call__(self) -> Response:
        self.made += 1
        number = self.made
        await self.go.wait()
        return Response(str(number), headers={"X-Number": str(number)})


def on_a_loop(test: Callable[[Maker, list[float], ResponseCache], Coroutine[Any, Any, None]]) -> None:
    """``test`` with a maker, a clock that it sets, and answers of up to a second."""

    async def run() -> None:
        clock = [0.0]
        await test(Maker(), clock, ResponseCache(1.0, now=lambda: clock[0]))

    asyncio.run(run())


def test_an_answer_is_given_again_until_it_is_too_old() -> None:
    async def test(make: Maker, clock: list[float], answers: ResponseCache) -> None:
        first = await answers.get("board", make)
        first.headers["X-Request-ID"] = "of the first alone"
        clock[0] = 0.99
        again = await answers.get("board", make)
        assert (again.body, again.headers["x-number"]) == (b"1", "1")
        assert "x-request-id" not in again.headers
        assert (await answers.get("another board", make)).body == b"2"
        clock[0] = 1.0
        assert (await answers.get("board", make)).body == b"3"

    on_a_loop(test)


def test_an_answer_is_as_old_as_the_question() -> None:
    async def test(make: Maker, clock: list[float], answers: ResponseCache) -> None:
        make.go.clear()
        first = asyncio.create_task(answers.get("board", make))
        await asyncio.sleep(0)
        clock[0] = 0.9
        make.go.set()
        await first
        clock[0] = 1.0
        assert (await answers.get("board", make)).body == b"2"

    on_a_loop(test)


def test_whoever_asks_at_the_same_time_waits_for_the_one_answer() -> None:
    async def test(make: Maker, clock: list[float], answers: ResponseCache) -> None:
        make.go.clear()
        asking = [asyncio.create_task(answers.get("board", make)) for _ in range(5)]
        await asyncio.sleep(0)
        asking[1].cancel()
        make.go.set()
        found = await asyncio.gather(*asking, return_exceptions=True)
        assert isinstance(found[1], asyncio.CancelledError)
        bodies = [each.body for each in found if isinstance(each, Response)]
        assert (bodies, make.made) == ([b"1"] * 4, 1)

    on_a_loop(test)


@pytest.mark.parametrize("waiting", [1, 4])
def test_of_those_who_wait_for_an_answer_that_never_comes_one_makes_it(waiting: int) -> None:
    async def test(make: Maker, clock: list[float], answers: ResponseCache) -> None:
        make.go.clear()
        asking = [asyncio.create_task(answers.get("board", make)) for _ in range(1 + waiting)]
        await asyncio.sleep(0)
        asking[0].cancel()
        make.go.set()
        assert [(await each).body for each in asking[1:]] == [b"2"] * waiting

    on_a_loop(test)


def test_what_fails_fails_for_all_who_wait_and_is_tried_again_by_who_comes_later() -> None:
    async def test(make: Maker, clock: list[float], answers: ResponseCache) -> None:
        tried = 0

        async def fail() -> Response:
            nonlocal tried
            tried += 1
            await asyncio.sleep(0)
            raise NotFound("no database")

        found = await asyncio.gather(*(answers.get("board", fail) for _ in range(5)), return_exceptions=True)
        assert [type(each) for each in found] == [NotFound] * 5
        assert tried == 1
        assert (await answers.get("board", make)).body == b"1"

    on_a_loop(test)


@pytest.mark.parametrize(
    "answer",
    [
        Response("gone", 404),
        Response("x" * 600_000),
        StreamingResponse(iter(["line"])),
    ],
    ids=["not 200", "too large", "streamed"],
)
def test_what_is_not_for_all_is_made_each_time(answer: Response) -> None:
    async def test(make: Maker, clock: list[float], answers: ResponseCache) -> None:
        async def own() -> Response:
            await make()
            return answer

        assert [await answers.get("board", own), await answers.get("board", own)] == [answer, answer]
        assert make.made == 2

    on_a_loop(test)


def test_an_error_is_everybodys_own() -> None:
    async def test(make: Maker, clock: list[float], answers: ResponseCache) -> None:
        async def fail() -> Response:
            await make()
            raise NotFound("nothing")

        for _ in range(2):
            with pytest.raises(NotFound):
                await answers.get("board", fail)
        assert make.made == 2

    on_a_loop(test)


def test_only_so_many_are_kept() -> None:
    async def test(make: Maker, clock: list[float], answers: ResponseCache) -> None:
        keys: list[Hashable] = list(range(1000))
        for key in keys:
            await answers.get(key, make)
        # The latest first: each that is not there any more takes the place of another.
        again = [(await answers.get(key, make)).body for key in reversed(keys)]
        assert [body for body in again if int(body) <= 1000] == [str(1000 - number).encode() for number in range(64)]

    on_a_loop(test)


def test_without_an_age_each_is_made_anew() -> None:
    async def test() -> None:
        make = Maker()
        answers = ResponseCache(0.0)
        assert [(await answers.get("board", make)).body for _ in range(2)] == [b"1", b"2"]

    asyncio.run(test())


class TestOpen:
    """Nobody is asked who he is."""

    @pytest.fixture
    def api_settings(self, tmp_path: Path) -> Settings:
        return Settings(data_dir=tmp_path / "data", problems_dir=PROBLEMS, port=0, answer_age_s=60)

    @pytest.mark.parametrize("path", SHARED)
    def test_a_board_is_drawn_once(self, http: httpx.Client, seeds: Seeds, path: str) -> None:
        first = http.get(path)
        seeds.passed(author="ada")
        again = http.get(path)
        assert again.content == first.content
        assert again.headers["x-request-id"] != first.headers["x-request-id"]
        changing = {"x-request-id"}
        assert {k: v for k, v in again.headers.items() if k not in changing} == {
            k: v for k, v in first.headers.items() if k not in changing
        }

    def test_what_was_asked_for_otherwise_is_another_answer(self, http: httpx.Client, seeds: Seeds) -> None:
        seeds.passed(author="ada")
        assert http.get(BOARD).json()["entries"] != []
        assert http.get(f"{BOARD}&track=training&limit=1").json()["track"] == "training"
        assert http.get(BOARD, headers={"Accept": "text/csv"}).text.startswith("rank,")
        elsewhere = http.get("/problems/relu", headers={"Host": "kernels.example.org"}).text
        assert "http://kernels.example.org" in elsewhere
        assert "http://kernels.example.org" not in http.get("/problems/relu").text

    def test_an_address_in_other_letters_is_another_address(self, http: httpx.Client) -> None:
        assert http.get("/problems/relu?device=cpu").status_code == 200
        assert http.get("/problems/relu%3Fdevice=cpu").status_code == 404

    def test_submissions_are_as_they_are(self, http: httpx.Client, seeds: Seeds) -> None:
        submission = seeds.submit()
        for path in (f"/api/v1/submissions/{submission}", "/api/v1/submissions"):
            before = http.get(path).text
            assert "cancelled" not in before
        http.delete(f"/api/v1/submissions/{submission}")
        for path in (f"/api/v1/submissions/{submission}", "/api/v1/submissions"):
            assert "cancelled" in http.get(path).text


@pytest.fixture
def keys(transport: AppTransport, services: Services) -> Keyring:
    keys = Keyring(services.sessions)
    for client in ("ada", "bob"):
        keys.make(client)
    keys.make("root", [Scope.ADMIN])
    return keys


class TestRequired:
    """Keys are asked for, and reading is free."""

    @pytest.fixture
    def api_settings(self, tmp_path: Path) -> Settings:
        return Settings(
            data_dir=tmp_path / "data",
            problems_dir=PROBLEMS,
            port=0,
            auth="required",
            answer_age_s=60,
            anonymous_requests_per_min=5,
        )

    @pytest.mark.parametrize("path", SHARED)
    def test_what_only_its_owner_sees_is_in_nobody_elses_answer(
        self, http: httpx.Client, seeds: Seeds, keys: Keyring, path: str
    ) -> None:
        secret = seeds.submit(source=SOURCE, owner="ada", visibility=Visibility.PRIVATE, author="a secret author")
        owned = http.get("/", headers=keys["ada"]).text
        assert secret in owned
        # In every order: whoever has a key neither leaves an answer for others nor is given theirs.
        for client in ("ada", "root", None, "ada", "root", "bob", None):
            answer = http.get(path, headers=keys[client])
            assert answer.headers.get("cache-control") == (None if client is None else "no-store")
            if path == "/" and client in ("ada", "root"):
                assert secret in answer.text
            else:
                assert secret not in answer.text

    def test_whoever_has_a_key_finds_what_he_has_just_done(
        self, http: httpx.Client, seeds: Seeds, keys: Keyring
    ) -> None:
        assert http.get(BOARD).json()["entries"] == []
        best = seeds.passed(owner="ada")
        assert http.get(BOARD).json()["entries"] == []
        assert [entry["submission"] for entry in http.get(BOARD, headers=keys["ada"]).json()["entries"]] == [best]

    def test_every_request_counts(self, http: httpx.Client) -> None:
        answers = [http.get(BOARD) for _ in range(6)]
        assert [answer.status_code for answer in answers] == [200] * 5 + [429]
        left = [answer.headers["ratelimit"].partition(";t=")[0] for answer in answers]
        assert left == [f'"minute";r={each}' for each in (4, 3, 2, 1, 0, 0)]

    def test_a_key_that_is_good_for_nothing_is_refused(self, http: httpx.Client) -> None:
        assert http.get(BOARD).status_code == 200
        assert http.get(BOARD, headers={"Authorization": "Bearer kj_nobody"}).status_code == 401


class TestKeysForReading:
    """Whoever reads needs a key as well."""

    @pytest.fixture
    def api_settings(self, tmp_path: Path) -> Settings:
        return Settings(
            data_dir=tmp_path / "data",
            problems_dir=PROBLEMS,
            port=0,
            auth="required",
            public_read=False,
            answer_age_s=60,
        )

    @pytest.mark.parametrize("path", SHARED)
    def test_nobody_reads_what_a_key_was_given(self, http: httpx.Client, services: Services, path: str) -> None:
        ada = Keyring(services.sessions).make("ada")
        for _ in range(2):
            assert http.get(path, headers=ada).status_code == 200
            assert http.get(path).status_code == 401
