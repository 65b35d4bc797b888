"""What both clients share: how a request is made, what an answer means, and when to ask again. No input or output."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote, urlsplit

import httpx

from kerneljudge.errors import BadKey, NoAnswer, RequestRefused, ServiceUnreachable
from kerneljudge.records import NewSubmission, SubmissionRecord

__all__ = [
    "API_KEY_VARIABLE",
    "BUSY",
    "DEFAULT_CONCURRENCY",
    "DEFAULT_URL",
    "TIMEOUT_S",
    "Deadline",
    "as_object",
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
BUSY: Final = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)

_HEADERS: Final = {"User-Agent": "kerneljudge", "Accept": "application/json"}
_POLL_S: Final = 30.0
_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 30.0
_LONGEST_WORTH_WAITING_S: Final = 300.0


class Deadline:
    """Until when a verdict is waited for: ``timeout_s`` from now, or without end."""

    def __init__(self, timeout_s: float | None) -> None:
        self._timeout_s = timeout_s
        self._at = None if timeout_s is None else time.monotonic() + timeout_s

    @property
    def poll_s(self) -> float:
        """How long the next request may be held by the service."""
        return _POLL_S if self._at is None else max(0.0, min(_POLL_S, self._at - time.monotonic()))

    def check(self, record: SubmissionRecord) -> None:
        """Raises ``TimeoutError`` where ``record`` should have been over by now."""
        if self._at is not None and time.monotonic() >= self._at:
            raise TimeoutError(f"{record['id']} is still {record['status']} after {self._timeout_s} s")

    def expire(self) -> None:
        """Nobody waits any longer."""
        self._at = time.monotonic()


def headers(api_key: str | None) -> dict[str, str]:
    """What every request has; the key is ``api_key``, or that of the environment. Raises ``BadKey``."""
    key = (os.environ.get(API_KEY_VARIABLE, "") if api_key is None else api_key).strip()
    if not key:
        return dict(_HEADERS)
    if not key.isascii() or not key.isprintable() or " " in key:
        raise BadKey(f"this is no key of the API: look at {API_KEY_VARIABLE}")
    return {**_HEADERS, "Authorization": f"Bearer {key}"}


def submission(new: NewSubmission, wait_s: float) -> dict[str, Any]:
    """Body, parameters and headers that hand in ``new``. Its key makes sending it again harmless."""
    key = new.get("idempotency_key") or secrets.token_hex(16)
    return {
        "body": {name: value for name, value in new.items() if value is not None and name != "idempotency_key"},
        "params": {"wait": wait_s} if wait_s else {},
        "headers": {"Idempotency-Key": key},
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
    """The request, which may be sent more than once; ``content`` is a body that is no JSON object.

    Raises ``ServiceUnreachable`` for what is no address.
    """
    try:
        return client.build_request(
            method,
            path,
            # Encoded here: lone surrogates, which httpx would refuse, go as JSON escapes.
            content=content if body is None else json.dumps(body).encode(),
            params=params,
            headers={**(headers or {}), **({"Content-Type": "application/json"} if body is not None else {})},
            # Of a pool's connections each is used in turn: waiting for one is no failure.
            timeout=httpx.Timeout(TIMEOUT_S, read=TIMEOUT_S + wait_s, pool=None),
        )
    except httpx.InvalidURL as error:
        raise ServiceUnreachable(f"{client.base_url} is no address of a service: {error}") from error


def pause_after(failure: httpx.Response | httpx.TransportError, url: str, failures: int, retries: int) -> float:
    """How long to wait before asking again, in seconds. Raises ``ServiceUnreachable`` after ``retries``, and
    ``RequestRefused`` where the service will say no for long: the quota of the day is spent."""
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
    """The pause after so many failures in a row, each twice the one before."""
    return min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** max(0, failures - 1))


def checked(answer: httpx.Response) -> httpx.Response:
    """``answer``, if it is one. Raises ``RequestRefused``, ``ServiceUnreachable``."""
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
    """The object that ``answer`` holds. Raises ``NoAnswer``."""
    try:
        data = answer.json()
    except ValueError as error:
        raise NoAnswer(f"{answer.url} does not answer in JSON: is it a kerneljudge service?") from error
    if not isinstance(data, dict):
        raise NoAnswer(f"{answer.url} does not answer with an object: is it a kerneljudge service?")
    return data


def segment(text: str) -> str:
    """``text`` as one part of a path."""
    return quote(text, safe="", errors="replace")


def uses_proxies(url: str) -> bool:
    """Whether a proxy from the environment leads to ``url``: to this machine none does."""
    return urlsplit(url).hostname not in ("localhost", "127.0.0.1", "::1")


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
    return float(text) if text.isdecimal() and text.isascii() else None
