"""The OpenAPI document: FastAPI's, with problem details for errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from api.errors import FieldError, ProblemDetails

__all__ = ["openapi_of"]

_TEMPLATE: Final = "#/components/schemas/{model}"
_UNUSED: Final = ("HTTPValidationError", "ValidationError")


def openapi_of(app: FastAPI) -> Callable[[], dict[str, Any]]:
    """For ``app.openapi``: the document, made once."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    return openapi


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes, tags=app.openapi_tags
    )
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for name in _UNUSED:
        schemas.pop(name, None)
    _, errors = models_json_schema(
        [(ProblemDetails, "serialization"), (FieldError, "serialization")], ref_template=_TEMPLATE
    )
    schemas.update(errors["$defs"])
    return document
