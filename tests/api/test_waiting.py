"""Long polls and event streams, many at a time, and when the server stops."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from collections.abc import Collection, Iterator

import anyio.to_thread
import fastapi.routing
import httpx
import pytest

from api.records.queries import StatusSnapshot
from api.services.status_watcher import Watcher
from tests.api.conftest import LiveServer, Post
from tests.api.seeds import Seeds, passed

WAITERS = 100


def later(seconds: float, action: object, *args: object) -> threading.Timer:
    assert callable(action)
    timer = threading.Timer(seconds, action, args)
    timer.start()
    return timer


def events(answer: httpx.Response) -> Iterator[tuple[str, dict[str, object]]]:
    name = ""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def test_a_long_poll_on_post_answers_as_soon_as_there_is_a_verdict(http: httpx.Client, seeds: Seeds) -> None:
    body = {"problem": "relu", "code": "class ModelNew: ...\n", "label": "awaited"}

    def grade() -> None:
        while not (found := http.get("/api/v1/submissions", params={"label": "awaited"}).json()["items"]):
            time.sleep(0.02)
        seeds.evaluate(found[0]["id"], passed(seeds.problems["relu"]))

    timer = later(0.2, grade)
    begin = time.monotonic()
    record = http.post("/api/v1/submissions", params={"wait": 60}, json=body).json()
    timer.join()
    assert record["verdict"] == "passed"
    assert time.monotonic() - begin < 10


def test_a_long_poll_ends_after_its_time(post: Post) -> None:
    begin = time.monotonic()
    record = post({"wait": "0.5"}).json()
    assert record["status"] == "queued"
    assert 0.5 <= time.monotonic() - begin < 5


def test_a_long_poll_on_get_answers_at_once_when_it_is_over(http: httpx.Client, seeds: Seeds) -> None:
    begin = time.monotonic()
    assert http.get(f"/api/v1/submissions/{seeds.passed()}", params={"wait": 60}).json()["status"] == "done"
    assert time.monotonic() - begin < 5


def test_cancelling_ends_a_long_poll(http: httpx.Client, seeds: Seeds) -> None:
    submission_id = seeds.submit()
    timer = later(0.3, http.delete, f"/api/v1/submissions/{submission_id}")
    record = http.get(f"/api/v1/submissions/{submission_id}", params={"wait": 60}).json()
    timer.join()
    assert record["status"] == "cancelled"


def test_events_of_a_finished_submission_are_one_done(http: httpx.Client, seeds: Seeds) -> None:
    answer = http.get(f"/api/v1/submissions/{seeds.passed()}/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    ((name, record),) = events(answer)
    assert (name, record["verdict"]) == ("done", "passed")


def test_events_follow_every_change_until_done(live: LiveServer, live_seeds: Seeds) -> None:
    submission_id = live_seeds.submit()
    with (
        httpx.Client(base_url=live.url) as client,
        client.stream("GET", f"/api/v1/submissions/{submission_id}/events") as answer,
    ):
        stream = events(answer)
        name, record = next(stream)
        assert (name, record["status"]) == ("progress", "queued")
        claim = live_seeds.claim_build(submission_id)
        assert next(stream)[1]["status"] == "building"
        live_seeds.show(claim, "building", "kernel.cpp", 0.5)
        assert next(stream)[1]["progress"] == {"stage": "building", "message": "kernel.cpp", "share": 0.5}
        client.delete(f"/api/v1/submissions/{submission_id}")
        name, record = next(stream)
        assert (name, record["status"]) == ("done", "cancelled")
        assert next(stream, None) is None


def test_a_silent_stream_carries_heartbeats(
    live: LiveServer, live_seeds: Seeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fastapi.routing, "_PING_INTERVAL", 0.1)
    url = f"{live.url}/api/v1/submissions/{live_seeds.submit()}/events"
    with httpx.Client() as client, client.stream("GET", url) as answer:
        comments = (line for line in answer.iter_lines() if line.startswith(":"))
        assert next(comments) == ": ping"
        assert next(comments) == ": ping"


def test_a_hundred_waiting_clients_leave_the_service_responsive(live: LiveServer, live_seeds: Seeds) -> None:
    """More than there are threads (40) or connections to the database (15)."""
    polled, streamed = live_seeds.submit(), live_seeds.submit()

    async def wait_for_all() -> tuple[list[str], float]:
        limits = httpx.Limits(max_connections=2 * WAITERS)
        async with httpx.AsyncClient(base_url=live.url, timeout=60, limits=limits) as client:
            polls = [
                asyncio.create_task(client.get(f"/api/v1/submissions/{polled}", params={"wait": 60}))
                for _ in range(WAITERS // 2)
            ]
            streams = [
                asyncio.create_task(client.get(f"/api/v1/submissions/{streamed}/events")) for _ in range(WAITERS // 2)
            ]
            await asyncio.sleep(1.5)
            assert not any(task.done() for task in polls + streams)
            begin = time.monotonic()
            assert (await client.get("/readyz")).status_code == 200
            latency_s = time.monotonic() - begin
            for submission_id in (polled, streamed):
                await anyio.to_thread.run_sync(live_seeds.evaluate, submission_id, passed(live_seeds.problems["relu"]))
            answers = await asyncio.gather(*polls, *streams)
        return [answer.text for answer in answers], latency_s

    texts, latency_s = asyncio.run(wait_for_all())
    assert latency_s < 2
    assert all('"verdict":"passed"' in text for text in texts)


def test_stopping_does_not_wait_for_open_streams_and_polls(live: LiveServer, live_seeds: Seeds) -> None:
    submission_id = live_seeds.submit()
    url = f"{live.url}/api/v1/submissions/{submission_id}"
    with httpx.Client(timeout=60) as client, client.stream("GET", f"{url}/events") as answer:
        stream = events(answer)
        next(stream)
        answers: list[httpx.Response] = []
        poll = threading.Thread(target=lambda: answers.append(httpx.get(url, params={"wait": 60}, timeout=60)))
        poll.start()
        time.sleep(0.5)
        begin = time.monotonic()
        live.stop()
        poll.join()
        assert time.monotonic() - begin < 4
        assert next(stream, None) is None
    assert answers[0].json()["status"] == "queued"


def test_a_watcher_survives_a_look_that_fails() -> None:
    looks = 0

    def look(_ids: object) -> dict[str, StatusSnapshot]:
        nonlocal looks
        looks += 1
        if looks == 1:
            raise OSError("the database is away")
        return {"a": StatusSnapshot("done", "evaluate", None, None, None, 1)}

    async def wait() -> None:
        watcher = Watcher(look, interval_s=0.01)
        running = asyncio.create_task(watcher.run())
        await asyncio.wait_for(watcher.until_final("a", 30), 10)
        running.cancel()

    asyncio.run(wait())
    assert looks >= 2


def test_a_watcher_looks_once_for_everybody() -> None:
    looks: list[int] = []

    def look(ids: object) -> dict[str, StatusSnapshot]:
        assert isinstance(ids, list)
        looks.append(len(ids))
        status = "done" if len(looks) == 3 else "queued"
        return {submission_id: StatusSnapshot(status, "build", None, None, None, 0) for submission_id in ids}

    async def wait() -> None:
        watcher = Watcher(look, interval_s=0.05)
        running = asyncio.create_task(watcher.run())
        await asyncio.gather(*(watcher.until_final(f"s{number % 10}", 30) for number in range(200)))
        running.cancel()

    asyncio.run(wait())
    assert looks == [10, 10, 10]


def test_a_watcher_looks_again_once_something_was_committed_and_for_whoever_is_new() -> None:
    looks: list[list[str]] = []
    committed, asked = 1, 0

    def mark() -> int:
        nonlocal asked
        asked += 1
        return committed

    def look(ids: Collection[str]) -> dict[str, StatusSnapshot]:
        looks.append(sorted(ids))
        status = "done" if committed == 3 else "queued"
        return {submission_id: StatusSnapshot(status, "build", None, None, None, 0) for submission_id in ids}

    async def until(count: int, more_glances: int) -> None:
        """So many looks are made, and none after them."""
        while len(looks) < count:
            await asyncio.sleep(0.001)
        seen = asked
        while asked < seen + more_glances:
            await asyncio.sleep(0.001)

    async def watch() -> None:
        nonlocal committed
        watcher = Watcher(look, interval_s=0.01, mark=mark)
        running = asyncio.create_task(watcher.run())
        first = asyncio.create_task(watcher.until_final("a", 60))
        await until(1, 20)
        committed = 2
        await until(2, 20)
        second = asyncio.create_task(watcher.until_final("b", 60))
        await until(3, 20)
        committed = 3
        await asyncio.gather(first, second)
        running.cancel()

    asyncio.run(watch())
    assert looks == [["a"], ["a"], ["a", "b"], ["a", "b"]]


def test_a_slow_look_makes_looks_rarer_and_a_stall_keeps_nobody_for_long() -> None:
    looks: list[float] = []

    def look(identities: Collection[str]) -> dict[str, StatusSnapshot]:
        looks.append(time.monotonic())
        time.sleep({1: 0.03, 2: 1.0}.get(len(looks), 0.0))
        return {}

    async def watch() -> None:
        watcher = Watcher(look)
        running = asyncio.create_task(watcher.run())
        with watcher.watch("sub"):
            while len(looks) < 6:
                await asyncio.sleep(0.01)
        running.cancel()

    asyncio.run(watch())
    first, stalled, third, *quick = (later - earlier for earlier, later in itertools.pairwise(looks))
    # A tenth of the time at the most goes into looking, unless one look takes seconds.
    assert first >= 0.3
    assert 1.5 <= stalled < 5
    assert third < first
    assert all(gap >= 0.025 for gap in (third, *quick))
