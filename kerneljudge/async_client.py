"""The asynchronous client of the HTTP API, for programs with many submissions under way at a time.

It asks, retries and fails exactly as ``kerneljudge.client.Client`` does. Waiting for verdicts holds at most
``concurrency`` connections; some more are left for everything else, so that handing in never has to wait for a verdict.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack, cast

import httpx

from evaluator.evaluation import Status
from kerneljudge import _http
from kerneljudge._http import DEFAULT_CONCURRENCY, DEFAULT_URL
from kerneljudge.records import Board, NewSubmission, ProblemRecord, SubmissionRecord

__all__ = ["AsyncClient", "gather"]

_RETRIES: Final = 6
_OTHER_CONNECTIONS: Final = 16

T = TypeVar("T")


class AsyncClient:
    """Talks to one service. An asynchronous context manager; belongs to the event loop that it is first used on.

    ``api_key`` is for services that ask for one (default: ``KERNELJUDGE_API_KEY``; the empty text is none).
    ``concurrency`` is for how many verdicts the service is asked at a time. ``transport`` replaces the network (for
    tests); ``sleep`` is how it waits between retries.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        concurrency: int = DEFAULT_CONCURRENCY,
        transport: httpx.AsyncBaseTransport | None = None,
        retries: int = _RETRIES,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.url = url.rstrip("/")
        self._retries = retries
        self._sleep = sleep
        self._waiting = asyncio.Semaphore(concurrency)
        self._http = httpx.AsyncClient(
            base_url=self.url,
            transport=transport,
            timeout=_http.TIMEOUT_S,
            trust_env=_http.uses_proxies(self.url),
            headers=_http.headers(api_key),
            limits=httpx.Limits(
                max_connections=concurrency + _OTHER_CONNECTIONS, max_keepalive_connections=concurrency
            ),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def submit(self, **new: Unpack[NewSubmission]) -> SubmissionRecord:
        """Hand in a candidate; answers at once. Raises ``RequestRefused``, ``ServiceUnreachable``."""
        answer = await self._request("POST", "/api/v1/submissions", **_http.submission(new, 0))
        return cast(SubmissionRecord, answer)

    async def submit_many(self, submissions: Iterable[NewSubmission]) -> list[SubmissionRecord]:
        """Hand in all ``submissions``; their records in the same order, not graded yet.

        Raises what ``submit`` raises, and then lets go of the rest.
        """
        return await gather([self.submit(**new) for new in submissions])

    async def get(self, submission_id: str, *, wait_s: float = 0) -> SubmissionRecord:
        """The submission as it is now, or as soon as it is over within ``wait_s``."""
        params = {"wait": wait_s} if wait_s else {}
        path = f"/api/v1/submissions/{_http.segment(submission_id)}"
        return cast(SubmissionRecord, await self._request("GET", path, params=params, wait_s=wait_s))

    async def wait(self, submission_id: str, *, timeout_s: float | None = None) -> SubmissionRecord:
        """The submission once it is over. Raises ``TimeoutError`` after ``timeout_s``."""
        deadline = _http.Deadline(timeout_s)
        while True:
            async with self._waiting:
                record = await self.get(submission_id, wait_s=deadline.poll_s)
            if Status(record["status"]).final:
                return record
            deadline.check(record)

    async def as_completed(
        self, submission_ids: Iterable[str], *, timeout_s: float | None = None
    ) -> AsyncGenerator[SubmissionRecord, None]:
        """Each submission once it is over, whichever is first. Raises ``TimeoutError`` after ``timeout_s``.

        At most ``concurrency`` of them are waited for at a time, those first that are named first.
        """
        waiting = [asyncio.ensure_future(self.wait(each, timeout_s=timeout_s)) for each in submission_ids]
        try:
            for done in asyncio.as_completed(waiting):
                yield await done
        finally:
            await _cancel(waiting)

    async def cancel(self, submission_id: str) -> SubmissionRecord:
        """Cancel a submission; one that is over stays as it is."""
        answer = await self._request("DELETE", f"/api/v1/submissions/{_http.segment(submission_id)}")
        return cast(SubmissionRecord, answer)

    async def problems(self) -> list[ProblemRecord]:
        """Every problem, without its reference."""
        return cast(list[ProblemRecord], (await self._request("GET", "/api/v1/problems"))["items"])

    async def problem(self, problem_id: str) -> ProblemRecord:
        """A problem with its reference."""
        return cast(ProblemRecord, await self._request("GET", f"/api/v1/problems/{_http.segment(problem_id)}"))

    async def leaderboard(
        self, problem: str, *, device: str | None = None, track: str = "inference", limit: int = 50
    ) -> Board:
        """Who is fastest at a problem."""
        params: dict[str, str | int] = {"problem": problem, "track": track, "limit": limit}
        if device is not None:
            params["device"] = device
        return cast(Board, await self._request("GET", "/api/v1/leaderboard", params=params))

    async def _request(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        request = _http.build(self._http, method, path, **options)
        failures = 0
        while True:
            failures += 1
            try:
                answer = await self._http.send(request)
            except httpx.TransportError as error:
                pause = _http.pause_after(error, self.url, failures, self._retries)
            else:
                if answer.status_code not in _http.BUSY:
                    return _http.as_object(_http.checked(answer))
                pause = _http.pause_after(answer, self.url, failures, self._retries)
            await self._sleep(pause)


async def gather(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """What all of them return, in order; where one raises, the others are cancelled."""
    tasks = [asyncio.ensure_future(each) for each in coroutines]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        await _cancel(tasks)


async def _cancel(tasks: Sequence[asyncio.Future[Any]]) -> None:
    for task in tasks:
        task.cancel()
    # Whatever they end with has been heard of, or is of no interest any more.
    await asyncio.gather(*tasks, return_exceptions=True)
