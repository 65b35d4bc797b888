"""The common parts of both clients: requests, the meaning of answers, and retries. It does no input or output."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final, cast
from urllib.parse import quote, urlsplit

import httpx

from kerneljudge.errors import BadKey, NoAnswer, RequestRefused, ServiceUnreachable
from kerneljudge.records import ResultRecord, SubmissionRecord
from kerneljudge.requests import NewSubmission

__all__ = [
    "API_KEY_VARIABLE",
    "BATCH_S",
    "BUSY",
    "DEFAULT_CONCURRENCY",
    "DEFAULT_URL",
    "TIMEOUT_S",
    "Deadline",
    "as_object",
    "as_results",
    "batch",
    "build",
    "checked",
    "headers",
    "pause_after",
    "pause_s",
    "segment",
    "submission",
    "uses_proxies",
]

DEFAULT_URL: Final = "http://127.0.0.1:8000"
DEFAULT_CONCURRENCY: Final = 64
API_KEY_VARIABLE: Final = "KERNELJUDGE_API_KEY"
TIMEOUT_S: Final = 30.0
BUSY: Final = (
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)
"""A request with such an answer is sent again. Proxies give two of them while a service starts anew."""
BATCH_S: Final = 600.0
"""The time in which a batch of any length is taken or returned, beside that of other requests."""

_HEADERS: Final = {"User-Agent": "kerneljudge", "Accept": "application/json"}
_POLL_S: Final = 30.0
_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 30.0
_LONGEST_WORTH_WAITING_S: Final = 300.0


class Deadline:
    """The end of waiting for a verdict: ``timeout_s`` from now, or never."""

    def __init__(self, timeout_s: float | None) -> None:
        self._timeout_s = timeout_s
        self._at = None if timeout_s is None else time.monotonic() + timeout_s

    @property
    def poll_s(self) -> float:
        """The longest time in seconds that the service may hold the next request."""
        return _POLL_S if self._at is None else max(0.0, min(_POLL_S, self._at - time.monotonic()))

    def check(self, record: SubmissionRecord) -> None:
        """Raise ``TimeoutError`` where ``record`` should have been over by now."""
        if self._at is not None and time.monotonic() >= self._at:
            raise TimeoutError(f"{record['id']} is still {record['status']} after {self._timeout_s} s")

    def expire(self) -> None:
        """End the waiting now."""
        self._at = time.monotonic()


def headers(api_key: str | None) -> dict[str, str]:
    """Return the headers of every request, with ``api_key`` or the key of the environment. Raises ``BadKey``."""
    key = (os.environ.get(API_KEY_VARIABLE, "") if api_key is None else api_key).strip()
    if not key:
        return dict(_HEADERS)
    if not key.isascii() or not key.isprintable() or " " in key:
        raise BadKey(f"this is no key of the API: look at {API_KEY_VARIABLE}")
    return {**_HEADERS, "Authorization": f"Bearer {key}"}


def submission(new: NewSubmission, wait_s: float) -> dict[str, Any]:
    """Return body, parameters and headers that hand in ``new``.

    Its idempotency key makes a repeated request harmless.
    """
    key = new.get("idempotency_key") or secrets.token_hex(16)
    return {
        "body": {name: value for name, value in new.items() if value is not None and name != "idempotency_key"},
        "params": {"wait": wait_s} if wait_s else {},
        "headers": {"Idempotency-Key": key},
    }


def batch(lines: bytes | Iterable[bytes], idempotency_key: str, wait_s: float = BATCH_S) -> dict[str, Any]:
    """Return content, headers and time of the request that hands in a batch as NDJSON."""
    return {
        "content": lines,
        "headers": {"Idempotency-Key": idempotency_key, "Content-Type": "application/x-ndjson"},
        # The service reads it while it is sent, and stores it before the answer.
        "wait_s": wait_s,
    }


def build(
    client: httpx.Client | httpx.AsyncClient,
    method: str,
    path: str,
    *,
    body: Mapping[str, Any] | None = None,
    content: bytes | Iterable[bytes] | None = None,
    params: Mapping[str, str | int | float] | None = None,
    headers: Mapping[str, str] | None = None,
    wait_s: float = 0,
) -> httpx.Request:
    """Return the request, which may be sent more than once. ``content`` is a body other than a JSON object.

    Raises ``ServiceUnreachable`` where the address is not valid.
    """
    try:
        return client.build_request(
            method,
            path,
            # The body is encoded here, so that lone surrogates, which httpx would refuse, become JSON escapes.
            content=content if body is None else json.dumps(body).encode(),
            params=params,
            headers={**(headers or {}), **({"Content-Type": "application/json"} if body is not None else {})},
            # The pool's connections are used in turn. So waiting for one is not a failure.
            timeout=httpx.Timeout(TIMEOUT_S, read=TIMEOUT_S + wait_s, pool=None),
        )
    except httpx.InvalidURL as error:
        raise ServiceUnreachable(f"{client.base_url} is no address of a service: {error}") from error


def pause_after(failure: httpx.Response | httpx.TransportError, url: str, failures: int, retries: int) -> float:
    """Return the pause before the next try, in seconds.

    Raises ``ServiceUnreachable`` after ``retries``. Raises ``RequestRefused`` where the service will refuse for long,
    because the quota of the day is spent.
    """
    if isinstance(failure, httpx.TransportError):
        if failures > retries:
            raise ServiceUnreachable(f"cannot reach {url}: {failure}") from failure
        return pause_s(failures)
    asked_s = _retry_after(failure)
    if failure.status_code == HTTPStatus.TOO_MANY_REQUESTS and (asked_s or 0) > _LONGEST_WORTH_WAITING_S:
        raise RequestRefused(failure.status_code, *_details(failure))
    if failures > retries:
        raise ServiceUnreachable(f"{url} is busy: {_details(failure)[0]}")
    return pause_s(failures) if not asked_s else min(_LONGEST_PAUSE_S, asked_s)


def pause_s(failures: int) -> float:
    """Return the pause after so many failures in a row. Each pause is twice the one before."""
    return min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** max(0, failures - 1))


def checked(answer: httpx.Response) -> httpx.Response:
    """Return ``answer``, if it is a success. Raises ``RequestRefused``, ``ServiceUnreachable``."""
    if answer.is_success:
        return answer
    detail, fields = _details(answer)
    if answer.status_code == HTTPStatus.UNAUTHORIZED:
        given = "Authorization" in answer.request.headers
        detail += f"; put {'another' if given else 'a'} key into {API_KEY_VARIABLE}, or pass it as api_key"
    if answer.is_client_error:
        raise RequestRefused(answer.status_code, detail, fields)
    raise ServiceUnreachable(f"the service failed with status {answer.status_code}: {detail}")


def as_object(answer: httpx.Response) -> dict[str, Any]:
    """Return the JSON object of ``answer``. Raises ``NoAnswer``."""
    try:
        data = answer.json()
    except ValueError as error:
        raise NoAnswer(f"{answer.url} does not answer in JSON: is it a kerneljudge service?") from error
    if not isinstance(data, dict):
        raise NoAnswer(f"{answer.url} does not answer with an object: is it a kerneljudge service?")
    return data


def as_results(answer: httpx.Response) -> list[ResultRecord]:
    """Return the results of a batch that ``answer`` holds. Raises ``NoAnswer``."""
    try:
        # ``splitlines`` would also split at the other line separators that texts may contain.
        return [cast(ResultRecord, json.loads(line)) for line in answer.content.split(b"\n") if line]
    except ValueError as error:
        raise NoAnswer(f"{answer.url} does not answer in NDJSON: is it a kerneljudge service?") from error


def segment(text: str) -> str:
    """Return ``text`` as one segment of a path."""
    return quote(text, safe="", errors="replace")


def uses_proxies(url: str) -> bool:
    """Whether requests to ``url`` go through a proxy from the environment. Those to this machine do not."""
    return urlsplit(url).hostname not in ("localhost", "127.0.0.1", "::1")


def _details(answer: httpx.Response) -> tuple[str, dict[str, str]]:
    try:
        problem = answer.json()
        fields = {entry["field"]: entry["message"] for entry in problem["errors"]}
        return str(problem["detail"]), fields
    except (ValueError, KeyError, TypeError):
        return f"{answer.status_code} {answer.reason_phrase}", {}


def _retry_after(answer: httpx.Response) -> float | None:
    """Return the pause that the service asks for, in seconds; ``None`` where it gives none, or a date.

    A gateway before it may say in ``RateLimit`` alone when a limit begins anew that is used up.
    """
    text: str = answer.headers.get("Retry-After", "")
    if text.isdecimal() and text.isascii():
        return float(text)
    resets = [_reset_s(item) for item in answer.headers.get("RateLimit", "").split(",")]
    return max((reset for reset in resets if reset is not None), default=None)


def _reset_s(limit: str) -> float | None:
    """Return the seconds until ``limit``, as ``"minute";r=0;t=30``, begins anew; ``None`` where some of it is left."""
    parameters = dict(part.strip().partition("=")[::2] for part in limit.split(";")[1:])
    time_s = parameters.get("t", "")
    return float(time_s) if parameters.get("r") == "0" and time_s.isdecimal() and time_s.isascii() else None
