"""The asynchronous client of the HTTP API, for programs with many submissions under way at a time.

Its requests, retries and errors are exactly those of ``kerneljudge.client.Client``. Waiting for verdicts takes at most
``concurrency`` connections. Some more are left for other requests, so that handing in never has to wait for a verdict.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, TypeVar, cast

import httpx
from typing_extensions import Self, Unpack

from kerneljudge import _http
from kerneljudge._http import DEFAULT_CONCURRENCY, DEFAULT_URL
from kerneljudge._problems import AsyncProblemCalls
from kerneljudge.records import BatchRecord, Board, ComparisonRecord, ResultRecord, SubmissionRecord
from kerneljudge.requests import NewSubmission
from kerneljudge.terms.outcomes import Status

__all__ = ["AsyncClient", "gather"]

_RETRIES: Final = 6
_OTHER_CONNECTIONS: Final = 16
_BATCH_S: Final = 60.0  # a batch that is in memory is stored sooner than one of any length

T = TypeVar("T")


class AsyncClient(AsyncProblemCalls):
    """A client of one service. It is an asynchronous context manager, and belongs to the event loop of its first use.

    ``api_key`` is for services that need one (default: ``KERNELJUDGE_API_KEY``; the empty text is none).
    ``concurrency`` is the number of verdicts that it waits for at a time. ``transport`` replaces the network (for
    tests); ``sleep`` is the wait between retries.

    ``trouble`` is the latest failure of a request that is tried again, and empty after an answer.
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
        self.trouble = ""
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
        """Hand in a candidate, without waiting for its verdict. Raises ``RequestRefused``, ``ServiceUnreachable``."""
        answer = await self._request("POST", "/api/v1/submissions", **_http.submission(new, 0))
        return cast(SubmissionRecord, answer)

    async def submit_many(self, submissions: Iterable[NewSubmission]) -> list[SubmissionRecord]:
        """Hand in all ``submissions``. Return their records in the same order, not graded yet.

        Raises the errors of ``submit``, and then cancels the other requests.
        """
        return await gather([self.submit(**new) for new in submissions])

    async def get(self, submission_id: str, *, wait_s: float = 0) -> SubmissionRecord:
        """Return the submission as it is now, or as soon as it is over within ``wait_s``."""
        params = {"wait": wait_s} if wait_s else {}
        path = f"/api/v1/submissions/{_http.segment(submission_id)}"
        return cast(SubmissionRecord, await self._request("GET", path, params=params, wait_s=wait_s))

    async def wait(self, submission_id: str, *, timeout_s: float | None = None) -> SubmissionRecord:
        """Return the submission once it is over. Raises ``TimeoutError`` after ``timeout_s``."""
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
        """Yield each submission once it is over, in the order of completion.

        Raises ``TimeoutError`` after ``timeout_s``.

        It waits for at most ``concurrency`` of them at a time, in the order of ``submission_ids``.
        """
        waiting = [asyncio.ensure_future(self.wait(each, timeout_s=timeout_s)) for each in submission_ids]
        try:
            for done in asyncio.as_completed(waiting):
                yield await done
        finally:
            await _cancel(waiting)

    async def cancel(self, submission_id: str) -> SubmissionRecord:
        """Cancel a submission. A submission that is over stays as it is."""
        answer = await self._request("DELETE", f"/api/v1/submissions/{_http.segment(submission_id)}")
        return cast(SubmissionRecord, answer)

    async def submit_batch(self, lines: bytes, *, idempotency_key: str) -> BatchRecord:
        """Hand in a batch as NDJSON. It stays one batch, even where it has to be sent several times."""
        answer = await self._request("POST", "/api/v1/batches", **_http.batch(lines, idempotency_key, _BATCH_S))
        return cast(BatchRecord, answer)

    async def batch_results(self, batch_id: str, cursor: int = 0) -> list[ResultRecord]:
        """Return the finished items after ``cursor``, in the order of completion."""
        path = f"/api/v1/batches/{_http.segment(batch_id)}/results"
        return _http.as_results(await self._send("GET", path, params={"cursor": cursor}))

    async def cancel_batch(self, batch_id: str) -> BatchRecord:
        """Cancel the submissions of a batch that have not begun."""
        answer = await self._request("DELETE", f"/api/v1/batches/{_http.segment(batch_id)}")
        return cast(BatchRecord, answer)

    async def compare_batches(self, batch_id: str, other: str) -> ComparisonRecord:
        """Compare two batches on the problems that both have. Raises ``RequestRefused`` if their conditions differ."""
        path = f"/api/v1/batches/{_http.segment(batch_id)}/comparison"
        return cast(ComparisonRecord, await self._request("GET", path, params={"other": other}))

    async def leaderboard(
        self, problem: str, *, device: str | None = None, track: str = "inference", limit: int = 50
    ) -> Board:
        """Return the leaderboard of a problem."""
        params: dict[str, str | int] = {"problem": problem, "track": track, "limit": limit}
        if device is not None:
            params["device"] = device
        return cast(Board, await self._request("GET", "/api/v1/leaderboard", params=params))

    async def _request(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        return _http.as_object(await self._send(method, path, **options))

    async def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        request = _http.build(self._http, method, path, **options)
        failures = 0
        while True:
            failures += 1
            try:
                answer = await self._http.send(request)
            except httpx.TransportError as error:
                pause = _http.pause_after(error, self.url, failures, self._retries)
                self.trouble = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            else:
                if answer.status_code not in _http.BUSY:
                    self.trouble = ""
                    return _http.checked(answer)
                pause = _http.pause_after(answer, self.url, failures, self._retries)
                self.trouble = f"{answer.status_code} {answer.reason_phrase}"
            await self._sleep(pause)


async def gather(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of all coroutines, in order. Where one raises, the others are cancelled."""
    tasks = [asyncio.ensure_future(each) for each in coroutines]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        await _cancel(tasks)


async def _cancel(tasks: Sequence[asyncio.Future[Any]]) -> None:
    for task in tasks:
        task.cancel()
    # Their exceptions have been raised already, or are of no interest any more.
    await asyncio.gather(*tasks, return_exceptions=True)
