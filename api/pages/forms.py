"""The forms of pages: ordinary POSTs that come from our own pages."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from fastapi import Request

from api.http.errors import ApiError, InvalidRequest, UnsupportedMediaType
from api.http.middleware import media_type

__all__ = ["ForeignForm", "form_of"]

_FORM: Final = "application/x-www-form-urlencoded"
_MAX_FIELDS: Final = 20


class ForeignForm(ApiError):
    """The form was sent from a page of another site."""

    status = 403
    kind = "foreign-form"


async def form_of(request: Request, fields: Collection[str]) -> dict[str, str]:
    """Return the values of ``fields``. Raises ``ForeignForm``, ``UnsupportedMediaType``, ``InvalidRequest``."""
    _refuse_foreign(request)
    if media_type(request.headers) != _FORM:
        raise UnsupportedMediaType(f"this address takes a form ({_FORM}); programs use the API")
    body = await request.body()
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="replace", max_num_fields=_MAX_FIELDS)
    except ValueError as error:
        raise InvalidRequest("this is no form") from error
    return {name: value for name, value in pairs if name in fields}


def _refuse_foreign(request: Request) -> None:
    """Refuse a form from a page of another site, which would use the visitor's browser. Raises ``ForeignForm``.

    Programs send neither header. They have no visitor whose browser could be used.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        if site not in ("same-origin", "none"):
            raise ForeignForm("this form was sent from another site")
        return
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise ForeignForm("this form was sent from another site")
