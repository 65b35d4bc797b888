"""A typed client of the HTTP API.

A request is sent again where the service was too busy (429, 503) or where it did not arrive. A submission carries an
idempotency key of its own, so that sending it twice makes one submission.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import as_completed as futures_as_completed
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final, cast

import httpx
from typing_extensions import Self

from kerneljudge import _http
from kerneljudge._http import DEFAULT_CONCURRENCY, DEFAULT_URL
from kerneljudge._problems import ProblemCalls
from kerneljudge.errors import ServiceUnreachable
from kerneljudge.records import (
    AttemptRecord,
    BatchRecord,
    Board,
    ComparisonRecord,
    DiagnosisRecord,
    ResultRecord,
    RulesRecord,
    SeriesRecord,
    SubmissionPage,
    SubmissionRecord,
    WorkerRecord,
)
from kerneljudge.requests import NewSubmission, Reference, Requirements
from kerneljudge.terms.outcomes import Status

__all__ = ["DEFAULT_URL", "Client", "Event"]

_EVENT_SILENCE_S: Final = 45.0  # three heartbeats of the service
_UP_TIMEOUT_S: Final = 2.0
_RETRIES: Final = 6


@dataclass(frozen=True)
class Event:
    """A server-sent event: ``progress`` or ``done``, with the record of that moment."""

    name: str
    record: SubmissionRecord


class Client(ProblemCalls):
    """A client of one service. It is a context manager, and several threads may use it.

    ``api_key`` is for services that need one (default: ``KERNELJUDGE_API_KEY``; the empty text is none). ``transport``
    replaces the network (for tests); ``sleep`` is the wait between retries.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        transport: httpx.BaseTransport | None = None,
        retries: int = _RETRIES,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.url = url.rstrip("/")
        self._retries = retries
        self._sleep = sleep
        self._http = httpx.Client(
            base_url=self.url,
            transport=transport,
            timeout=_http.TIMEOUT_S,
            trust_env=_http.uses_proxies(self.url),
            headers=_http.headers(api_key),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def submit(
        self,
        problem: str | None = None,
        *,
        reference: Reference | None = None,
        code: str | None = None,
        response: str | None = None,
        device: str | None = None,
        size: str | None = None,
        precision: str | None = None,
        require_gradients: bool | None = None,
        baseline: str | None = None,
        limits: Mapping[str, float] | None = None,
        tier: str | None = None,
        rules: RulesRecord | None = None,
        label: str | None = None,
        author: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        parent: str | None = None,
        requirements: Requirements | None = None,
        visibility: str | None = None,
        idempotency_key: str | None = None,
        wait_s: float = 0,
    ) -> SubmissionRecord:
        """Hand in a candidate. Return its record at once, or as soon as it is over within ``wait_s``.

        In place of a ``problem`` it may bring a ``reference``, where the service takes any: ``{"source": text}``.

        ``requirements`` are conditions for the device that evaluates it. ``limits`` are by name, and lower those of the
        service: ``{"call_s": 5}``. ``tier`` is ``check`` (the verdict alone), ``quick`` or ``full``. ``rules`` about
        the source add to the problem's: ``{"languages": ["triton"]}``. ``metadata`` is a JSON object of yours, and
        ``parent`` the id of the submission that the candidate was derived from. ``None`` leaves an option to the
        service. Raises ``RequestRefused``, ``ServiceUnreachable``.
        """
        new: NewSubmission = {
            "problem": problem,
            "reference": reference,
            "code": code,
            "response": response,
            "device": device,
            "size": size,
            "precision": precision,
            "require_gradients": require_gradients,
            "baseline": baseline,
            "limits": limits,
            "tier": tier,
            "rules": rules,
            "label": label,
            "author": author,
            "metadata": metadata,
            "parent": parent,
            "requirements": requirements,
            "visibility": visibility,
            "idempotency_key": idempotency_key,
        }
        answer = self._request("POST", "/api/v1/submissions", wait_s=wait_s, **_http.submission(new, wait_s))
        return cast(SubmissionRecord, answer)

    def submit_many(
        self, submissions: Iterable[NewSubmission], *, concurrency: int = DEFAULT_CONCURRENCY
    ) -> list[SubmissionRecord]:
        """Hand in all ``submissions``, ``concurrency`` at a time.

        Return their records in the same order, not graded yet.

        Raises the errors of ``submit``, after the requests under way have ended.
        """
        with ThreadPoolExecutor(concurrency) as pool:
            return list(pool.map(lambda new: self.submit(**new), submissions))

    def as_completed(
        self,
        submission_ids: Iterable[str],
        *,
        timeout_s: float | None = None,
        concurrency: int = DEFAULT_CONCURRENCY,
    ) -> Iterator[SubmissionRecord]:
        """Yield each submission once it is over, in the order of completion.

        Raises ``TimeoutError`` after ``timeout_s``.

        It waits for ``concurrency`` of them at a time, in the order of ``submission_ids``.
        """
        deadline = _http.Deadline(timeout_s)
        pool = ThreadPoolExecutor(concurrency)
        try:
            waiting = [pool.submit(self._wait_until, each, deadline) for each in submission_ids]
            for done in futures_as_completed(waiting):
                yield done.result()
        finally:
            # A caller that stops early does not wait for the requests that are still open.
            deadline.expire()
            pool.shutdown(wait=False, cancel_futures=True)

    def get(self, submission_id: str, *, wait_s: float = 0) -> SubmissionRecord:
        """Return the submission as it is now, or as soon as it is over within ``wait_s``."""
        params = {"wait": wait_s} if wait_s else {}
        answer = self._request(
            "GET", f"/api/v1/submissions/{_http.segment(submission_id)}", params=params, wait_s=wait_s
        )
        return cast(SubmissionRecord, answer)

    def wait(self, submission_id: str, *, timeout_s: float | None = None) -> SubmissionRecord:
        """Return the submission once it is over. Raises ``TimeoutError`` after ``timeout_s``."""
        return self._wait_until(submission_id, _http.Deadline(timeout_s))

    def events(self, submission_id: str) -> Iterator[Event]:
        """Yield every change of a submission until it is over. A stream that breaks off is requested again."""
        failures = 0
        while True:
            try:
                for event in self._stream(submission_id):
                    failures = 0
                    yield event
                    if event.name == "done":
                        return
            except (httpx.TransportError, ServiceUnreachable) as error:
                failures += 1
                if failures > self._retries:
                    raise ServiceUnreachable(f"the stream from {self.url} keeps breaking: {error}") from error
            self._sleep(_http.pause_s(failures))

    def cancel(self, submission_id: str) -> SubmissionRecord:
        """Cancel a submission. A submission that is over stays as it is."""
        return cast(SubmissionRecord, self._request("DELETE", f"/api/v1/submissions/{_http.segment(submission_id)}"))

    def publish(self, submission_id: str, visibility: str = "public") -> SubmissionRecord:
        """Show others more of a submission of yours. Raises ``RequestRefused`` if they see more already."""
        path = f"/api/v1/submissions/{_http.segment(submission_id)}"
        return cast(SubmissionRecord, self._request("PATCH", path, body={"visibility": visibility}))

    def retry(self, submission_id: str) -> SubmissionRecord:
        """Queue a failed submission again. Raises ``RequestRefused`` if it has not failed."""
        return cast(
            SubmissionRecord, self._request("POST", f"/api/v1/submissions/{_http.segment(submission_id)}/retry")
        )

    def submissions(self, *, limit: int = 50, cursor: str | None = None, **filters: str) -> SubmissionPage:
        """Return a page of submissions, newest first.

        ``filters``: problem, device, status, verdict, author, label, parent, tier.
        """
        params: dict[str, str | int] = {"limit": limit, **filters}
        if cursor is not None:
            params["cursor"] = cursor
        return cast(SubmissionPage, self._request("GET", "/api/v1/submissions", params=params))

    def submit_batch(self, lines: bytes | Iterable[bytes], *, idempotency_key: str) -> BatchRecord:
        """Hand in a batch as NDJSON. It stays one batch, even where it has to be sent several times.

        ``lines`` must be iterable more than once. So a generator is not suitable.
        """
        answer = self._request("POST", "/api/v1/batches", **_http.batch(lines, idempotency_key))
        return cast(BatchRecord, answer)

    def batch(self, batch_id: str) -> BatchRecord:
        """Return a batch with its progress and its summary."""
        return cast(BatchRecord, self._request("GET", f"/api/v1/batches/{_http.segment(batch_id)}"))

    def compare_batches(self, batch_id: str, other: str) -> ComparisonRecord:
        """Compare two batches on the problems that both have. Raises ``RequestRefused`` if their conditions differ."""
        path = f"/api/v1/batches/{_http.segment(batch_id)}/comparison"
        return cast(ComparisonRecord, self._request("GET", path, params={"other": other}))

    def batch_results(self, batch_id: str, cursor: int = 0) -> list[ResultRecord]:
        """Return the finished items after ``cursor``, in the order of completion."""
        path = f"/api/v1/batches/{_http.segment(batch_id)}/results"
        return _http.as_results(self._send("GET", path, params={"cursor": cursor}, wait_s=_http.BATCH_S))

    def stream_batch_results(self, batch_id: str, cursor: int = 0) -> Iterator[ResultRecord]:
        """Yield the items of ``batch_results`` one after another. After a break, it continues with the next item."""
        path = f"/api/v1/batches/{_http.segment(batch_id)}/results"
        failures = 0
        while True:
            request = _http.build(self._http, "GET", path, params={"cursor": cursor}, wait_s=_http.BATCH_S)
            failures += 1
            try:
                answer = self._http.send(request, stream=True)
                with contextlib.closing(answer):
                    if answer.status_code == HTTPStatus.OK:
                        for line in _lines(answer.iter_bytes()):
                            result = cast(ResultRecord, json.loads(line))
                            cursor, failures = result["cursor"], 0
                            yield result
                        return
                    answer.read()
                if answer.status_code not in _http.BUSY:
                    _http.checked(answer)
                pause = _http.pause_after(answer, self.url, failures, self._retries)
            except httpx.TransportError as error:
                pause = _http.pause_after(error, self.url, failures, self._retries)
            self._sleep(pause)

    def cancel_batch(self, batch_id: str) -> BatchRecord:
        """Cancel the submissions of a batch that have not begun."""
        return cast(BatchRecord, self._request("DELETE", f"/api/v1/batches/{_http.segment(batch_id)}"))

    def is_up(self) -> bool:
        """Whether a service answers, at once, that it is ready."""
        try:
            return self._http.get("/readyz", timeout=_UP_TIMEOUT_S).status_code == HTTPStatus.OK
        except (httpx.TransportError, httpx.InvalidURL):
            return False

    def source(self, submission_id: str) -> str:
        """Return the graded source."""
        return self._send("GET", f"/api/v1/submissions/{_http.segment(submission_id)}/source").text

    def log(self, submission_id: str) -> str:
        """Return the output of compiler and candidate."""
        return self._send("GET", f"/api/v1/submissions/{_http.segment(submission_id)}/log").text

    def samples(self, submission_id: str) -> dict[str, SeriesRecord]:
        """Return the raw samples by track. Raises ``RequestRefused`` while there are none, or if nothing was timed."""
        answer = self._request("GET", f"/api/v1/submissions/{_http.segment(submission_id)}/samples")
        return cast(dict[str, SeriesRecord], answer["tracks"])

    def attempts(self, submission_id: str) -> list[AttemptRecord]:
        """Return every attempt of a worker on the submission, the first one first."""
        answer = self._request("GET", f"/api/v1/submissions/{_http.segment(submission_id)}/attempts")
        return cast(list[AttemptRecord], answer["items"])

    def request_diagnosis(self, submission_id: str, tool: str | None = None) -> DiagnosisRecord:
        """Run a tool on the candidate (``None``: memcheck). Raises ``RequestRefused`` where that is not possible."""
        path, params = f"/api/v1/submissions/{_http.segment(submission_id)}/diagnosis", {"tool": tool} if tool else {}
        return cast(DiagnosisRecord, self._request("POST", path, params=params))

    def diagnosis(self, submission_id: str, tool: str | None = None) -> DiagnosisRecord:
        """Return the result of a tool (``None``: the one that was requested last).

        Raises ``RequestRefused`` without one.
        """
        path, params = f"/api/v1/submissions/{_http.segment(submission_id)}/diagnosis", {"tool": tool} if tool else {}
        return cast(DiagnosisRecord, self._request("GET", path, params=params))

    def leaderboard(
        self,
        problem: str,
        *,
        device: str | None = None,
        track: str = "inference",
        size: str | None = None,
        shape: str | None = None,
        precision: str | None = None,
        device_name: str | None = None,
        problem_version: str | None = None,
        limit: int = 50,
    ) -> Board:
        """Return the leaderboard of a problem. With ``device_name``, it has only results from devices of that name.

        ``shape`` is a timed shape of the size, or ``*`` for the mean of the size and these.
        """
        choices = {"device": device, "size": size, "precision": precision, "device_name": device_name}
        choices |= {"shape": shape, "problem_version": problem_version}
        params: dict[str, str | int] = {"problem": problem, "track": track, "limit": limit}
        params.update({name: value for name, value in choices.items() if value is not None})
        return cast(Board, self._request("GET", "/api/v1/leaderboard", params=params))

    def workers(self) -> list[WorkerRecord]:
        """Return the workers with their queues and devices."""
        return cast(list[WorkerRecord], self._request("GET", "/api/v1/workers")["items"])

    def _wait_until(self, submission_id: str, deadline: _http.Deadline) -> SubmissionRecord:
        while True:
            record = self.get(submission_id, wait_s=deadline.poll_s)
            if Status(record["status"]).final:
                return record
            deadline.check(record)

    def _request(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        return _http.as_object(self._send(method, path, **options))

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        request = _http.build(self._http, method, path, **options)
        failures = 0
        while True:
            failures += 1
            try:
                answer = self._http.send(request)
            except httpx.TransportError as error:
                pause = _http.pause_after(error, self.url, failures, self._retries)
            else:
                if answer.status_code not in _http.BUSY:
                    return _http.checked(answer)
                pause = _http.pause_after(answer, self.url, failures, self._retries)
            self._sleep(pause)

    def _stream(self, submission_id: str) -> Iterator[Event]:
        path = f"/api/v1/submissions/{_http.segment(submission_id)}/events"
        timeout = httpx.Timeout(_http.TIMEOUT_S, read=_EVENT_SILENCE_S)
        with self._http.stream("GET", path, timeout=timeout, headers={"Accept": "text/event-stream"}) as answer:
            if answer.status_code != HTTPStatus.OK:
                answer.read()
                _http.checked(answer)
            # ``iter_lines`` would also split at the other line separators that texts may contain.
            yield from _parse_events(line.decode().removesuffix("\r") for line in _lines(answer.iter_bytes()))


def _lines(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines without their ends. A last part without an end is not a line."""
    pending = b""
    for part in parts:
        *ended, pending = (pending + part).split(b"\n")
        yield from ended


def _parse_events(lines: Iterator[str]) -> Iterator[Event]:
    name, data = "message", ""
    for line in lines:
        field, _, value = line.partition(":")
        if not line:
            if data:
                yield Event(name, json.loads(data))
            name, data = "message", ""
        elif field == "event":
            name = value.removeprefix(" ")
        elif field == "data":
            data += value.removeprefix(" ")
