"""What a browser is shown instead of problem details."""

from __future__ import annotations

import http

from fastapi import Request, Response
from starlette.exceptions import HTTPException

from api.context import request_id
from api.pages.rendering import render

__all__ = ["error_page", "wants_page"]


def wants_page(request: Request) -> bool:
    """Whether a browser asked for a page, and so gets its error as one."""
    return not request.url.path.startswith("/api/") and "text/html" in request.headers.get("accept", "")


def error_page(request: Request, error: HTTPException) -> Response:
    """``error`` as a page."""
    title = http.HTTPStatus(error.status_code).phrase
    return render(
        request,
        "error.html",
        error.status_code,
        error.headers,
        code=error.status_code,
        title=title,
        detail=error.detail,
        request_id=request_id.get(),
    )
