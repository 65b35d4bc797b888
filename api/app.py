"""The application, made from settings. Nothing of it exists before ``create_app`` is called."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path
from typing import Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.staticfiles import StaticFiles
from fastapi.telemetry import TelemetryConfig
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException

from api import pages
from api.http.errors import QueueIsFull, QuotaExceeded, ServiceUnavailable, from_validation, problem_response
from api.http.middleware import BodyLimit, RequestContext, SecurityHeaders
from api.http.openapi import openapi_of
from api.routes import audit, batches, keys, leaderboard, problems, service, submissions
from api.services.container import Services
from api.services.rate_limit import AllowanceHeaders
from runtime.settings import Settings
from storage.access.quotas import QuotaSpent
from storage.database import DatabaseUnusable, obstacle_of
from storage.queue.fair_order import QueueFull

__all__ = ["create_app"]

_VERSION: Final = "1"
_UNTRACED: Final = frozenset({"/healthz", "/readyz", "/metrics"})
# Traces of requests, where ``runtime.tracing`` has a target for them. Metrics and logs are collected separately.
_TELEMETRY: Final[TelemetryConfig] = {
    "auto_configure": False,
    "exclude": lambda scope: scope["path"] in _UNTRACED,
    "logs": False,
    "metrics": False,
    "operation_spans": False,
}
_STATIC: Final = Path(__file__).parent / "static"
_DESCRIPTION: Final = """\
Hand in the source of a `ModelNew`; it is compiled in a sandbox, its outputs and gradients are verified
against the reference `Model`, its speedup is measured, and what passes is ranked.

Errors are problem details (RFC 9457); those about the request name the fields. A verdict about a
candidate is never an HTTP error.
"""

_TAGS: Final = [
    {"name": "submissions", "description": "Candidates that are handed in one by one, and all that is known of them."},
    {"name": "batches", "description": "Candidates by the thousand, with a summary and a webhook."},
    {"name": "problems", "description": "The references that candidates are for."},
    {"name": "leaderboard", "description": "The fastest candidates of a problem."},
    {"name": "service", "description": "The state of the service and of its workers."},
    {"name": "keys", "description": "Keys of clients, for administrators."},
    {"name": "audit", "description": "Changes by administrators, in order."},
]

_log = logging.getLogger(__name__)


def create_app(settings: Settings) -> FastAPI:
    """Return the application for ``settings``. Its lifespan migrates the database and loads the problems."""
    services = Services(settings)
    app = FastAPI(
        title="kerneljudge",
        version=_VERSION,
        description=_DESCRIPTION,
        lifespan=_lifespan,
        # FastAPI's pages load scripts from other sites, which our headers forbid. ``api.pages`` has a page of its own
        # at /docs.
        docs_url=None,
        redoc_url=None,
        telemetry=_TELEMETRY,
        openapi_tags=_TAGS,
        # Short, so that a generator's functions have the names that ours have.
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.services = services
    app.openapi = openapi_of(app)  # type: ignore[method-assign]  # FastAPI's own way to change the document
    for module in (submissions, batches, problems, leaderboard, service, keys, audit, pages):
        app.include_router(module.router)
    app.mount("/static", StaticFiles(directory=_STATIC), name="static")
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    for fault in (OperationalError, InterfaceError, PoolTimeout):
        app.add_exception_handler(fault, _database_away)
    app.add_exception_handler(DatabaseUnusable, _database_away)
    app.add_exception_handler(QueueFull, _queue_full)
    app.add_exception_handler(QuotaSpent, _quota_spent)
    # The middleware that is added last is the outermost.
    app.add_middleware(
        BodyLimit, max_bytes=settings.max_body_bytes, streamed={batches.STREAMED: settings.max_batch_bytes}
    )
    app.add_middleware(AllowanceHeaders)
    app.add_middleware(RequestContext, metrics=services.http_metrics)
    app.add_middleware(SecurityHeaders)
    return app


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    services: Services = app.state.services
    await asyncio.to_thread(services.start)
    tasks = [
        asyncio.create_task(services.watcher.run()),
        asyncio.create_task(services.batch_watcher.run()),
        asyncio.create_task(services.meter.run()),
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        services.close()


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        error.headers = {**(error.headers or {}), **_allowed(request)}
    return pages.error_page(request, error) if pages.wants_page(request) else problem_response(request, error)


def _allowed(request: Request) -> dict[str, str]:
    """Return all methods of the path. The router names only those of the first route that it tried."""
    template = getattr(request.scope.get("route"), "path", None)
    methods = request.app.openapi()["paths"].get(template)
    return {"Allow": ", ".join(sorted(method.upper() for method in methods))} if methods else {}


async def _invalid_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return await _http_error(request, from_validation(error))


async def _queue_full(request: Request, error: Exception) -> Response:
    return await _http_error(request, QueueIsFull(str(error)))


async def _quota_spent(request: Request, error: Exception) -> Response:
    assert isinstance(error, QuotaSpent)
    return await _http_error(request, QuotaExceeded(str(error), retry_after_s=error.retry_after_s))


async def _database_away(request: Request, error: Exception) -> Response:
    _log.error("the database cannot be used: %s", error)
    reason = str(error) if isinstance(error, DatabaseUnusable) else obstacle_of(error)
    return await _http_error(request, ServiceUnavailable(reason))
