"""The middleware of every request: its id, its line in log and metrics, safe headers, and a limit for its body."""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.http.context import request_id
from api.http.errors import ApiError, PayloadTooLarge, problem_response
from api.http.metrics import HttpMetrics
from evaluator import logs
from runtime import tracing

__all__ = ["BodyLimit", "RequestContext", "SecurityHeaders", "media_type"]

_ID_TAKEN_OVER: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

_SECURITY_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not no-referrer: with it, browsers would send our own forms without an origin.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

_access = logging.getLogger("api.access")
_log = logging.getLogger(__name__)


class RequestContext:
    """A middleware that gives each request an id, logs it, counts it, and answers 500 for an uncaught exception."""

    def __init__(self, app: ASGIApp, metrics: HttpMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        identity = given if _ID_TAKEN_OVER.fullmatch(given) else secrets.token_hex(8)
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-ID"] = identity
                tracing.describe({**logs.current_fields(), **_named(scope)})
            await send(message)

        token = request_id.set(identity)
        started = time.perf_counter()
        with logs.about(request_id=identity, **tracing.current_trace()):
            try:
                await self._app(scope, receive, send_with_id)
            except Exception:
                if status:
                    raise
                logs.add_fields(**_named(scope))
                _log.exception("unhandled error")
                fault = ApiError("this is our fault; the log has it by its request_id")
                await problem_response(Request(scope), fault)(scope, receive, send_with_id)
            finally:
                seconds = time.perf_counter() - started
                method = scope["method"] if scope["method"] in _METHODS else "OTHER"
                self._metrics.observe(method, _route(scope), status, seconds)
                logs.add_fields(**_named(scope))
                # The path is quoted, so that a visitor cannot write lines into the log.
                path = quote(scope["path"], safe="/")
                _access.info("%s %s %d %.1f ms", method, path, status, 1000 * seconds)
                request_id.reset(token)


class SecurityHeaders:
    """A middleware that sets headers against foreign scripts in our pages, and against framing these."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_SECURITY_HEADERS)
            await send(message)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)


class BodyLimit:
    """A middleware that refuses a body of more than ``max_bytes``.

    It goes by the declared length or, without one, counts the bytes while they come in. ``streamed`` has the limits of
    bodies that are read as they come, by path and media type.
    """

    def __init__(self, app: ASGIApp, max_bytes: int, streamed: Mapping[tuple[str, str], int]) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._streamed = streamed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        max_bytes = self._streamed.get((scope["path"], media_type(headers)), self._max_bytes)
        declared = headers.get("content-length", "")
        if declared.isdecimal() and (len(declared) > 18 or int(declared) > max_bytes):
            await problem_response(Request(scope), _too_large(max_bytes))(scope, receive, send)
            return
        received = 0

        async def receive_limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > max_bytes:
                raise _too_large(max_bytes)
            return message

        await self._app(scope, receive_limited, send)


def media_type(headers: Headers) -> str:
    """Return the media type of the body without its parameters; empty where none is given."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _too_large(max_bytes: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"the body has more than {max_bytes} bytes, the most that is taken")


def _route(scope: Scope) -> str:
    """Return the route's template, so that metrics have one series for each route and not one for each id."""
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else "(none)"


def _named(scope: Scope) -> dict[str, str]:
    """Return the submission or batch in the request's path, as fields of its log lines."""
    given = scope.get("path_params", {})
    named = {name: str(given[f"{name}_id"]) for name in ("submission", "batch") if f"{name}_id" in given}
    return {name: quote(identity) for name, identity in named.items()}
