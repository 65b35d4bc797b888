"""A typed client of the HTTP API.

Requests that the service was too busy for (429, 503) or that never arrived are sent again; a submission
carries an idempotency key of its own, so that sending it twice makes one.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final, Self, cast
from urllib.parse import quote, urlsplit

import httpx

from client.errors import NoAnswer, RequestRefused, ServiceUnreachable
from client.records import Attempt, Board, Diagnosis, ProblemRecord, Series, SubmissionPage, SubmissionRecord
from evaluator.evaluation import Status

__all__ = ["DEFAULT_URL", "Client", "Event"]

DEFAULT_URL: Final = "http://127.0.0.1:8000"

_POLL_S: Final = 30.0
_TIMEOUT_S: Final = 30.0
_EVENT_SILENCE_S: Final = 45.0  # three heartbeats of the service
_RETRIES: Final = 6
_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 30.0
_BUSY: Final = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)


@dataclass(frozen=True)
class Event:
    """One server-sent event: ``progress`` or ``done``, with the record as it was then."""

    name: str
    record: SubmissionRecord


class Client:
    """Talks to one service. A context manager; not for use by several threads at once.

    ``transport`` replaces the network (for tests); ``sleep`` is how it waits between retries.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
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
            timeout=_TIMEOUT_S,
            # A proxy from the environment does not lead to this machine.
            trust_env=not _is_loopback(self.url),
            headers={"User-Agent": "kerneljudge", "Accept": "application/json"},
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
        problem: str,
        *,
        code: str | None = None,
        response: str | None = None,
        device: str | None = None,
        size: str | None = None,
        precision: str | None = None,
        require_gradients: bool | None = None,
        baseline: str | None = None,
        label: str | None = None,
        author: str | None = None,
        idempotency_key: str | None = None,
        wait_s: float = 0,
    ) -> SubmissionRecord:
        """Hand in a candidate; answers at once, or as soon as it is over within ``wait_s``.

        ``None`` leaves it to the service. Raises ``RequestRefused``, ``ServiceUnreachable``.
        """
        given = {
            "problem": problem,
            "code": code,
            "response": response,
            "device": device,
            "size": size,
            "precision": precision,
            "require_gradients": require_gradients,
            "baseline": baseline,
            "label": label,
            "author": author,
        }
        answer = self._request(
            "POST",
            "/api/v1/submissions",
            body={name: value for name, value in given.items() if value is not None},
            params={"wait": wait_s} if wait_s else {},
            headers={"Idempotency-Key": idempotency_key or secrets.token_hex(16)},
            wait_s=wait_s,
        )
        return cast(SubmissionRecord, answer)

    def get(self, submission_id: str, *, wait_s: float = 0) -> SubmissionRecord:
        """The submission as it is now, or as soon as it is over within ``wait_s``."""
        params = {"wait": wait_s} if wait_s else {}
        answer = self._request("GET", f"/api/v1/submissions/{_segment(submission_id)}", params=params, wait_s=wait_s)
        return cast(SubmissionRecord, answer)

    def wait(self, submission_id: str, *, timeout_s: float | None = None) -> SubmissionRecord:
        """The submission once it is over. Raises ``TimeoutError`` after ``timeout_s``."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            remaining = _POLL_S if deadline is None else min(_POLL_S, deadline - time.monotonic())
            record = self.get(submission_id, wait_s=max(0.0, remaining))
            if Status(record["status"]).final:
                return record
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"{submission_id} is still {record['status']} after {timeout_s} s")

    def events(self, submission_id: str) -> Iterator[Event]:
        """Every change of a submission until it is over; a stream that breaks is asked for again."""
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
            self._sleep(_pause(failures))

    def cancel(self, submission_id: str) -> SubmissionRecord:
        """Cancel a submission; one that is over stays as it is."""
        return cast(SubmissionRecord, self._request("DELETE", f"/api/v1/submissions/{_segment(submission_id)}"))

    def retry(self, submission_id: str) -> SubmissionRecord:
        """Queue a submission that failed anew. Raises ``RequestRefused`` if it has not failed."""
        return cast(SubmissionRecord, self._request("POST", f"/api/v1/submissions/{_segment(submission_id)}/retry"))

    def submissions(self, *, limit: int = 50, cursor: str | None = None, **filters: str) -> SubmissionPage:
        """A page of submissions, newest first. ``filters``: problem, device, status, verdict, author, label."""
        params: dict[str, str | int] = {"limit": limit, **filters}
        if cursor is not None:
            params["cursor"] = cursor
        return cast(SubmissionPage, self._request("GET", "/api/v1/submissions", params=params))

    def source(self, submission_id: str) -> str:
        """The source that is graded."""
        return self._send("GET", f"/api/v1/submissions/{_segment(submission_id)}/source").text

    def log(self, submission_id: str) -> str:
        """What the compiler and the candidate printed."""
        return self._send("GET", f"/api/v1/submissions/{_segment(submission_id)}/log").text

    def samples(self, submission_id: str) -> dict[str, Series]:
        """The raw samples by track. Raises ``RequestRefused`` while there are none, or if nothing was timed."""
        answer = self._request("GET", f"/api/v1/submissions/{_segment(submission_id)}/samples")
        return cast(dict[str, Series], answer["tracks"])

    def attempts(self, submission_id: str) -> list[Attempt]:
        """Every time that a worker took the submission up, the first one first."""
        answer = self._request("GET", f"/api/v1/submissions/{_segment(submission_id)}/attempts")
        return cast(list[Attempt], answer["items"])

    def request_diagnosis(self, submission_id: str, tool: str | None = None) -> Diagnosis:
        """Have a tool run over the candidate (``None``: memcheck). Raises ``RequestRefused`` where that cannot be."""
        path, params = f"/api/v1/submissions/{_segment(submission_id)}/diagnosis", {"tool": tool} if tool else {}
        return cast(Diagnosis, self._request("POST", path, params=params))

    def diagnosis(self, submission_id: str, tool: str | None = None) -> Diagnosis:
        """What a tool has found (``None``: the one that was asked for last). Raises ``RequestRefused`` without one."""
        path, params = f"/api/v1/submissions/{_segment(submission_id)}/diagnosis", {"tool": tool} if tool else {}
        return cast(Diagnosis, self._request("GET", path, params=params))

    def problems(self) -> list[ProblemRecord]:
        """Every problem, without its reference."""
        return cast(list[ProblemRecord], self._request("GET", "/api/v1/problems")["items"])

    def problem(self, problem_id: str) -> ProblemRecord:
        """A problem with its reference."""
        return cast(ProblemRecord, self._request("GET", f"/api/v1/problems/{_segment(problem_id)}"))

    def leaderboard(
        self,
        problem: str,
        *,
        device: str | None = None,
        track: str = "inference",
        size: str | None = None,
        precision: str | None = None,
        device_name: str | None = None,
        limit: int = 50,
    ) -> Board:
        """Who is fastest at a problem; with ``device_name``, on machines with that device only."""
        choices = {"device": device, "size": size, "precision": precision, "device_name": device_name}
        params: dict[str, str | int] = {"problem": problem, "track": track, "limit": limit}
        params.update({name: value for name, value in choices.items() if value is not None})
        return cast(Board, self._request("GET", "/api/v1/leaderboard", params=params))

    def workers(self) -> list[dict[str, Any]]:
        """Who can grade what."""
        return cast(list[dict[str, Any]], self._request("GET", "/api/v1/workers")["items"])

    def _request(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        answer = self._send(method, path, **options)
        try:
            data = answer.json()
        except ValueError as error:
            raise NoAnswer(f"{answer.url} does not answer in JSON: is it a kerneljudge service?") from error
        if not isinstance(data, dict):
            raise NoAnswer(f"{answer.url} does not answer with an object: is it a kerneljudge service?")
        return data

    def _send(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        params: Mapping[str, str | int | float] | None = None,
        headers: Mapping[str, str] | None = None,
        wait_s: float = 0,
    ) -> httpx.Response:
        failures = 0
        while True:
            pause = _pause(failures + 1)
            try:
                answer = self._http.request(
                    method,
                    path,
                    # Encoded here: lone surrogates, which httpx would refuse, go as JSON escapes.
                    content=None if body is None else json.dumps(body).encode(),
                    params=params,
                    headers={**(headers or {}), **({"Content-Type": "application/json"} if body is not None else {})},
                    timeout=httpx.Timeout(_TIMEOUT_S, read=_TIMEOUT_S + wait_s),
                )
            except httpx.TransportError as error:
                fault = f"cannot reach {self.url}: {error}"
                cause: Exception | None = error
            except httpx.InvalidURL as error:
                raise ServiceUnreachable(f"{self.url} is no address of a service: {error}") from error
            else:
                if answer.status_code not in _BUSY:
                    return _checked(answer)
                fault = f"{self.url} is busy: {_details(answer)[0]}"
                cause = None
                pause = _retry_after(answer) or pause
            failures += 1
            if failures > self._retries:
                raise ServiceUnreachable(fault) from cause
            self._sleep(pause)

    def _stream(self, submission_id: str) -> Iterator[Event]:
        path = f"/api/v1/submissions/{_segment(submission_id)}/events"
        timeout = httpx.Timeout(_TIMEOUT_S, read=_EVENT_SILENCE_S)
        with self._http.stream("GET", path, timeout=timeout, headers={"Accept": "text/event-stream"}) as answer:
            if answer.status_code != HTTPStatus.OK:
                answer.read()
                _checked(answer)
            yield from _parse_events(answer.iter_lines())


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


def _checked(answer: httpx.Response) -> httpx.Response:
    if answer.is_success:
        return answer
    detail, fields = _details(answer)
    if answer.is_client_error:
        raise RequestRefused(answer.status_code, detail, fields)
    raise ServiceUnreachable(f"the service failed with status {answer.status_code}: {detail}")


def _details(answer: httpx.Response) -> tuple[str, dict[str, str]]:
    try:
        problem = answer.json()
        fields = {entry["field"]: entry["message"] for entry in problem["errors"]}
        return str(problem["detail"]), fields
    except (ValueError, KeyError, TypeError):
        return f"{answer.status_code} {answer.reason_phrase}", {}


def _retry_after(answer: httpx.Response) -> float | None:
    """The pause that the service asks for, in seconds; ``None`` where it gives none, or a date."""
    text: str = answer.headers.get("Retry-After", "")
    return min(_LONGEST_PAUSE_S, float(text)) if text.isdecimal() and text.isascii() else None


def _pause(failures: int) -> float:
    return min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** max(0, failures - 1))


def _segment(text: str) -> str:
    """``text`` as one part of a path."""
    return quote(text, safe="", errors="replace")


def _is_loopback(url: str) -> bool:
    return urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")
