"""The asynchronous client, and what both clients do with many submissions."""

from __future__ import annotations

import asyncio
import inspect
import json
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from typing import TypeVar, cast

import httpx
import pytest

import kerneljudge
from kerneljudge.async_client import AsyncClient, gather
from kerneljudge.client import Client
from kerneljudge.errors import NoAnswer, RequestRefused, ServiceUnreachable
from kerneljudge.records import SubmissionRecord
from tests.api.conftest import LiveServer
from tests.kerneljudge.graded import graded_service, source

T = TypeVar("T")


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A service that grades."""
    with graded_service(tmp_path_factory.mktemp("aio")) as live:
        yield live


class Failing(httpx.AsyncBaseTransport):
    """Fails a few times in a given way before it hands requests on."""

    def __init__(self, *failures: httpx.Response | Exception) -> None:
        self._inner = httpx.AsyncHTTPTransport()
        self._failures = list(failures)
        self.sent: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.sent.append(request)
        if not self._failures:
            return await self._inner.handle_async_request(request)
        failure = self._failures.pop(0)
        if isinstance(failure, Exception):
            raise failure
        await request.aread()
        return failure

    async def aclose(self) -> None:
        await self._inner.aclose()


def with_client(
    live: LiveServer, use: Callable[[AsyncClient], Awaitable[T]], transport: Failing | None = None, **options: int
) -> tuple[T, list[float]]:
    """What ``use`` returns, and how long the client would have slept."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async def run() -> T:
        async with AsyncClient(live.url, transport=transport, sleep=sleep, **options) as service:
            return await use(service)

    return asyncio.run(run()), pauses


def test_what_is_public_stays_so() -> None:
    assert kerneljudge.__all__ == [
        "AsyncClient",
        "BadKey",
        "Client",
        "ClientError",
        "Event",
        "KernelRewards",
        "NoAnswer",
        "RequestRefused",
        "RewardShape",
        "ServiceUnreachable",
        "__version__",
    ]


def test_both_clients_are_asked_in_the_same_way() -> None:
    for name in ("problems", "problem", "cancel", "wait", "get", "compare_batches", "batch_results", "cancel_batch"):
        ours, theirs = (inspect.signature(getattr(kind, name)) for kind in (AsyncClient, Client))
        assert ours.parameters == theirs.parameters, name


def test_a_submission_is_handed_in_and_awaited(live: LiveServer) -> None:
    async def use(service: AsyncClient) -> None:
        record = await service.submit(problem="relu", code=source("build: refuse"), device="cpu", label="l")
        assert (record["device"], record["label"]) == ("cpu", "l")
        done = await service.wait(str(record["id"]), timeout_s=60)
        assert done["verdict"] == "compile_error"
        assert (done["feedback"] or "").startswith("Verdict: compile error")
        assert (await service.cancel(str(record["id"])))["status"] == "done"
        problems = await service.problems()
        assert "relu" in [problem["id"] for problem in problems]
        assert "class Model" in (await service.problem("relu"))["reference"]
        assert (await service.leaderboard("relu", device="cpu"))["device"] == "cpu"
        with pytest.raises(RequestRefused, match="no submission"):
            await service.get("none")
        with pytest.raises(RequestRefused) as refused:
            await service.submit(problem="relu", code="", size="huge")
        assert set(refused.value.fields) == {"size"}

    with_client(live, use)


def test_two_batches_are_compared(live: LiveServer) -> None:
    line = b'{"problem": "relu", "device": "cpu", "code": "x = 1"}\n'
    with Client(live.url) as client:
        batch = client.submit_batch([line], idempotency_key="compared")["id"]
        expected = client.compare_batches(batch, batch)

    async def use(service: AsyncClient) -> None:
        assert await service.compare_batches(batch, batch) == expected
        with pytest.raises(RequestRefused, match="no batch 'none'"):
            await service.compare_batches(batch, "none")

    with_client(live, use)
    assert expected["problems"] == ["relu"]


def test_a_batch_is_handed_in_and_cancelled(live: LiveServer) -> None:
    line = b'{"problem": "relu", "device": "cpu", "code": "x = 1"}\n'
    slow = json.dumps({"problem": "relu", "device": "cpu", "code": source("build: sleep 20")}).encode() + b"\n"

    async def use(service: AsyncClient) -> None:
        batch = await service.submit_batch(line + b"{}\n" + slow, idempotency_key="handed in")
        assert (batch["items"], batch["errors_total"]) == (2, 1)
        again = await service.submit_batch(line + b"{}\n" + slow, idempotency_key="handed in")
        assert again["id"] == batch["id"]
        (result,) = await service.batch_results(batch["id"])
        assert (result["line"], result["submission"]["verdict"]) == (1, "invalid_source")
        assert (await service.cancel_batch(batch["id"]))["status"] == "cancelled"
        with pytest.raises(RequestRefused, match="no batch"):
            await service.batch_results("none")
        assert service.trouble == ""

    with_client(live, use)
    html = Failing(httpx.Response(200, text="<html>"))
    with pytest.raises(NoAnswer, match="NDJSON"):
        with_client(live, lambda service: service.batch_results("any"), html)


def test_waiting_has_an_end(live: LiveServer) -> None:
    async def use(service: AsyncClient) -> None:
        record = await service.submit(problem="relu", code=source("evaluate: sleep 60"), device="cpu")
        with pytest.raises(TimeoutError, match=r"is still .* after 0\.2 s"):
            await service.wait(str(record["id"]), timeout_s=0.2)
        await service.cancel(str(record["id"]))

    with_client(live, use)


def test_a_busy_or_absent_service_is_asked_again_and_a_submission_stays_one(live: LiveServer) -> None:
    transport = Failing(
        httpx.ConnectError("refused"),
        httpx.Response(429, headers={"Retry-After": "7"}),
        httpx.Response(503),
        httpx.ReadError("gone"),
    )

    async def use(service: AsyncClient) -> str:
        return (await service.submit(problem="relu", code=source(), device="cpu"))["status"]

    status, pauses = with_client(live, use, transport)
    assert status == "queued"
    assert pauses == [0.25, 7.0, 1.0, 2.0]
    assert len({request.headers["Idempotency-Key"] for request in transport.sent}) == 1


def test_a_service_that_stays_away_is_given_up(live: LiveServer) -> None:
    for failure in (httpx.ConnectError("refused"), httpx.Response(502), httpx.Response(503), httpx.Response(504)):
        transport = Failing(*[failure] * 9)
        with pytest.raises(ServiceUnreachable):
            with_client(live, lambda service: service.problems(), transport, retries=2)
        assert len(transport.sent) == 3


def test_another_service_is_recognised(live: LiveServer) -> None:
    for text in ("<html>hello</html>", "[]"):
        with pytest.raises(NoAnswer, match="is it a kerneljudge service"):
            with_client(live, lambda service: service.problems(), Failing(httpx.Response(200, text=text)))
    with pytest.raises(ServiceUnreachable, match="500"):
        with_client(live, lambda service: service.problems(), Failing(httpx.Response(500, text="oops")))


def test_many_are_handed_in_in_order_and_come_back_as_they_finish(live: LiveServer) -> None:
    steps = ["evaluate: sleep 1", "build: refuse", "build: refuse"]

    async def use(service: AsyncClient) -> None:
        records = await service.submit_many(
            {"problem": "relu", "code": source(step), "device": "cpu", "label": step} for step in steps
        )
        assert [record["label"] for record in records] == steps
        ids = [str(record["id"]) for record in records]
        done = [record async for record in service.as_completed(ids, timeout_s=60)]
        assert sorted(str(record["id"]) for record in done) == sorted(ids)
        assert [record["verdict"] for record in done] == ["compile_error", "compile_error", "passed"]

    with_client(live, use)

    with Client(live.url) as service:
        records = service.submit_many(
            ({"problem": "relu", "code": source(step), "device": "cpu", "label": step} for step in steps),
            concurrency=2,
        )
        assert [record["label"] for record in records] == steps
        done = list(service.as_completed([str(record["id"]) for record in records], timeout_s=60))
        assert [record["verdict"] for record in done] == ["compile_error", "compile_error", "passed"]


def test_one_at_a_time_gets_all_of_them(live: LiveServer) -> None:
    async def use(service: AsyncClient) -> list[str]:
        records = await service.submit_many(
            {"problem": "relu", "code": source("", str(number)), "device": "cpu"} for number in range(20)
        )
        ids = [str(record["id"]) for record in records]
        assert {str(record["id"]) async for record in service.as_completed(ids)} == set(ids)
        return ids

    assert len(set(with_client(live, use, concurrency=1)[0])) == 20


def test_who_stops_listening_waits_for_nobody(live: LiveServer) -> None:
    async def use(service: AsyncClient) -> None:
        # In this order, should one worker do both.
        refused = await service.submit(problem="relu", code=source("build: refuse"), device="cpu")
        slow = await service.submit(problem="relu", code=source("build: sleep 20"), device="cpu")
        ids = [str(refused["id"]), str(slow["id"])]
        completed = service.as_completed(ids)
        assert (await anext(completed))["verdict"] == "compile_error"
        await completed.aclose()
        await service.cancel(ids[1])

    begin = time.monotonic()
    with_client(live, use)
    with Client(live.url) as service:
        steps = ("build: refuse", "build: sleep 20")
        ids = [str(service.submit("relu", code=source(step), device="cpu")["id"]) for step in steps]
        completed = service.as_completed(ids)
        assert next(iter(completed))["verdict"] == "compile_error"
        cast(Generator[SubmissionRecord, None, None], completed).close()
        # Ends the request that is still waiting, and with it the thread.
        service.cancel(ids[1])
    assert time.monotonic() - begin < 18


def test_a_refusal_among_many_ends_the_others() -> None:
    ended = []

    async def lasting() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    async def refused() -> None:
        await asyncio.sleep(0.01)
        raise RequestRefused(422, "no", {})

    with pytest.raises(RequestRefused):
        asyncio.run(gather([lasting(), refused()]))
    assert ended == [True]
