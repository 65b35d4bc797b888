"""Signing in with a key. A browser gets a cookie that stands for the key for some hours; no scripts are needed.

The cookie is not the key, cannot be read by scripts, is not sent from other sites' pages, and ends with the key.
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse
from starlette.concurrency import run_in_threadpool

from api.http.errors import Unauthorized
from api.pages.forms import form_of
from api.pages.rendering import render
from api.services.auth import COOKIE, NO_SCOPE
from api.services.container import Services, ServicesDep
from storage.access.keys import Keys

__all__ = ["router", "sign_in_page"]

router = APIRouter()

_SIGNED_IN_FOR_S: Final = 12 * 3600
_UNKNOWN: Final = "This key is not known, or was revoked, or has expired."


@router.get("/sign-in", dependencies=[NO_SCOPE])
def sign_in(request: Request, then: Annotated[str, Query(max_length=500)] = "/") -> Response:
    """Show the form for a key."""
    return sign_in_page(request, then)


@router.post("/sign-in", dependencies=[NO_SCOPE])
async def take_key(request: Request, services: ServicesDep) -> Response:
    """Sign in, and redirect to the page that the visitor came from."""
    form = await form_of(request, ("key", "then"))
    token = await run_in_threadpool(_signed_in, services, form.get("key", "").strip())
    then = form.get("then", "/")
    if token is None:
        return sign_in_page(request, then, _UNKNOWN, Unauthorized(_UNKNOWN))
    answer = RedirectResponse(_own_address(then), 303)
    answer.set_cookie(
        COOKIE, token, max_age=_SIGNED_IN_FOR_S, secure=request.url.scheme == "https", httponly=True, samesite="strict"
    )
    return answer


@router.post("/sign-out", dependencies=[NO_SCOPE])
async def sign_out(request: Request, services: ServicesDep) -> Response:
    """Sign out: end the session of this browser."""
    await form_of(request, ())
    await run_in_threadpool(_signed_out, services, request.cookies.get(COOKIE, ""))
    answer = RedirectResponse("/", 303)
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict", secure=request.url.scheme == "https")
    return answer


def sign_in_page(request: Request, then: str, wrong: str = "", error: Unauthorized | None = None) -> Response:
    """Return the form, with the error of its input, or with the reason that it is shown."""
    status, headers = (200, None) if error is None else (error.status_code, error.headers)
    return render(request, "sign_in.html", status, headers, then=_own_address(then), error=wrong)


def _signed_in(services: Services, text: str) -> str | None:
    with services.sessions.begin() as session:
        keys = Keys(session)
        key = keys.good(text)
        return None if key is None else keys.sign_in(key)


def _signed_out(services: Services, token: str) -> None:
    with services.sessions.begin() as session:
        Keys(session).sign_out(token)


def _own_address(address: str) -> str:
    """Return ``address`` if it is one of our own pages. A link must not lead a visitor to another site."""
    ours = address.startswith("/") and not address.startswith("//") and address.isprintable() and "\\" not in address
    return address if ours else "/"
