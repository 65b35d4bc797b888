"""The errors of the API, as problem details (RFC 9457).

    ApiError
    ├── Unauthorized         401, asks for a key
    ├── Forbidden            403
    ├── NotFound             404
    ├── Conflict             409
    ├── PayloadTooLarge      413
    ├── UnsupportedMediaType 415
    ├── InvalidRequest       422, names the fields
    ├── QueueIsFull          429, with a time to retry after
    ├── TooManyRequests      429, with a time to retry after
    │   └── QuotaExceeded    429, with a retry on the next day
    └── ServiceUnavailable   503, with a time to retry after

Each of them is a ``fastapi.HTTPException``. So one handler answers for our errors and for the framework's.
"""

from __future__ import annotations

import http
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from fastapi import HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException as StarletteHTTPException

from api.http.context import request_id
from storage.columns import clean_text

__all__ = [
    "PROBLEM_JSON",
    "ApiError",
    "Conflict",
    "FieldError",
    "Forbidden",
    "InvalidRequest",
    "NotFound",
    "PayloadTooLarge",
    "ProblemDetails",
    "QueueIsFull",
    "QuotaExceeded",
    "ServiceUnavailable",
    "TooManyRequests",
    "Unauthorized",
    "UnsupportedMediaType",
    "from_validation",
    "problem_response",
    "problems",
]

PROBLEM_JSON: Final = "application/problem+json"

_RETRY_FULL_QUEUE_S: Final = 30


class FieldError(BaseModel):
    """An error in one field of the request, or a fault in one thing that the answer needs."""

    field: str = Field(description="The field's name; a nested one with dots. A header or query parameter by its name.")
    message: str


class ProblemDetails(BaseModel):
    """An error in the format of RFC 9457."""

    type: str = Field(description="The kind of error; it stays the same over versions.")
    title: str
    status: int
    detail: str
    request_id: str | None = Field(description="The number to quote to the operator of the service.")
    errors: list[FieldError] = Field(default_factory=list, description="One entry for each invalid field.")


class ApiError(HTTPException):
    """The base of every error that the API itself returns."""

    status: ClassVar[int] = 500
    kind: ClassVar[str] = "internal"

    def __init__(
        self, detail: str, *, errors: Sequence[FieldError] = (), headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(self.status, detail, dict(headers or {}))
        self.errors = tuple(errors)


class Unauthorized(ApiError):
    """The request needs a key and has none, or its key is not valid."""

    status = 401
    kind = "unauthorized"

    def __init__(self, detail: str) -> None:
        super().__init__(detail, headers={"WWW-Authenticate": 'Bearer realm="kerneljudge"'})


class Forbidden(ApiError):
    """The caller is known, and lacks the permission."""

    status = 403
    kind = "forbidden"


class NotFound(ApiError):
    """Nothing has this name. The detail lists the names that exist, where the list is short."""

    status = 404
    kind = "not-found"


class Conflict(ApiError):
    """The request contradicts an earlier one."""

    status = 409
    kind = "conflict"


class PayloadTooLarge(ApiError):
    """The body is larger than this service accepts."""

    status = 413
    kind = "too-large"


class UnsupportedMediaType(ApiError):
    """The body has a media type that this route does not read. The detail names the types that it reads."""

    status = 415
    kind = "unsupported-media-type"


class InvalidRequest(ApiError):
    """The request is malformed; ``errors`` names the fields."""

    status = 422
    kind = "invalid-request"

    @classmethod
    def on(cls, field: str, message: str) -> InvalidRequest:
        """Return the error for a single field."""
        return cls(f"{field}: {message}", errors=[FieldError(field=field, message=message)])


class QueueIsFull(ApiError):
    """The queue has as many waiting submissions as it may hold."""

    status = 429
    kind = "queue-full"

    def __init__(self, detail: str) -> None:
        super().__init__(detail, headers={"Retry-After": str(_RETRY_FULL_QUEUE_S)})


class TooManyRequests(ApiError):
    """The caller has made as many requests as are allowed in a minute."""

    status = 429
    kind = "too-many-requests"

    def __init__(self, detail: str, *, retry_after_s: int) -> None:
        super().__init__(detail, headers={"Retry-After": str(retry_after_s)})


class QuotaExceeded(TooManyRequests):
    """The caller has handed in as many submissions, or stored as many versions of problems, as a day allows."""

    kind = "quota-exceeded"


class ServiceUnavailable(ApiError):
    """Something that the answer needs is not available at the moment."""

    status = 503
    kind = "unavailable"

    def __init__(self, detail: str, *, errors: Sequence[FieldError] = (), retry_after_s: int = 1) -> None:
        super().__init__(detail, errors=errors, headers={"Retry-After": str(retry_after_s)})


def from_validation(error: RequestValidationError | ValidationError) -> InvalidRequest:
    """Convert validation errors to ours. They name fields, and echo nothing of the input."""
    # FastAPI begins a location with the part of the request (body, query, header, path); pydantic does not.
    skipped = 1 if isinstance(error, RequestValidationError) else 0
    errors = [FieldError(field=_field(entry["loc"], skipped), message=entry["msg"]) for entry in error.errors()]
    return InvalidRequest("; ".join(f"{entry.field}: {entry.message}" for entry in errors), errors=errors)


def problem_response(request: Request, error: StarletteHTTPException) -> JSONResponse:
    """Return ``error`` as a response with problem details."""
    del request
    title = http.HTTPStatus(error.status_code).phrase
    kind = error.kind if isinstance(error, ApiError) else title.lower().replace(" ", "-")
    body = ProblemDetails(
        type=f"urn:kerneljudge:error:{kind}",
        title=title,
        status=error.status_code,
        detail=clean_text(str(error.detail)),
        request_id=request_id.get(),
        errors=[
            FieldError(field=clean_text(entry.field), message=clean_text(entry.message))
            for entry in getattr(error, "errors", ())
        ],
    )
    return JSONResponse(body.model_dump(), error.status_code, error.headers, PROBLEM_JSON)


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return ``responses=`` for a route with these errors, beside the errors that every route may return."""
    schema = {"$ref": f"#/components/schemas/{ProblemDetails.__name__}"}
    return {
        status: {"description": http.HTTPStatus(status).phrase, "content": {PROBLEM_JSON: {"schema": schema}}}
        for status in sorted({*statuses, 401, 403, 429, 503})
    }


def _field(location: tuple[int | str, ...], skipped: int) -> str:
    # Where a body is not JSON, the error has no location but the body itself.
    parts = [str(part) for part in location[skipped:] if not isinstance(part, int)]
    return ".".join(parts) or (str(location[0]) if location else "body")
