"""Error pages, which a browser gets instead of problem details."""

from __future__ import annotations

import http
from typing import Final

from fastapi import Request, Response
from starlette.exceptions import HTTPException

from api.http.context import request_id
from api.http.errors import Unauthorized
from api.pages.rendering import render
from api.pages.signing_in import sign_in_page

__all__ = ["error_page", "wants_page"]


_TITLES: Final = {
    403: "This is not allowed",
    404: "There is nothing here",
    405: "This address cannot be used in this way",
    413: "This is too large",
    415: "This is not of a kind that is read here",
    422: "This cannot be asked for",
    429: "This is too much at the moment",
    503: "This is not possible at the moment",
}


def wants_page(request: Request) -> bool:
    """Whether a browser asked for a page, so that an error is returned as a page."""
    return not request.url.path.startswith("/api/") and "text/html" in request.headers.get("accept", "")


def error_page(request: Request, error: HTTPException) -> Response:
    """Return ``error`` as a page. Where a key is needed, this is the form to sign in with one."""
    if isinstance(error, Unauthorized):
        typed = request.method != "GET"
        why = "This needs a key." + (" What was typed is not lost: go back, once you have signed in." if typed else "")
        return sign_in_page(request, "/" if typed else request.url.path, why, error)
    phrase = http.HTTPStatus(error.status_code).phrase
    return render(
        request,
        "error.html",
        error.status_code,
        error.headers,
        code=error.status_code,
        title=_TITLES.get(error.status_code, phrase),
        # The framework repeats the status phrase where it has no detail.
        detail="" if error.detail == phrase else error.detail,
        request_id=request_id.get(),
    )
