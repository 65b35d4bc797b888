"""The OpenAPI document: FastAPI's, with problem details for errors, and with the bodies that are read as they come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from api.http.errors import FieldError, ProblemDetails
from api.http.field_docs import field_docs
from api.schemas.batches import BatchRequest
from kerneljudge.records import ResultRecord
from runtime.settings import Settings

__all__ = ["openapi_of"]

_TEMPLATE: Final = "#/components/schemas/{model}"
_NAMED: Final[dict[JsonSchemaMode, tuple[type, ...]]] = {
    "validation": (BatchRequest,),
    "serialization": (ProblemDetails, FieldError, ResultRecord),
}
"""Models that routes refer to by name alone, by how they are used."""

_UNUSED: Final = ("HTTPValidationError", "ValidationError")


def openapi_of(app: FastAPI) -> Callable[[], dict[str, Any]]:
    """Return the function for ``app.openapi``, which makes the document once."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    return openapi


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes, tags=app.openapi_tags
    )
    _say_who_needs_a_key(document, app.state.services.settings)
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for name in _UNUSED:
        schemas.pop(name, None)
    for mode, models in _NAMED.items():
        adapters = [(model, mode, TypeAdapter[Any](model)) for model in models]
        _, named = TypeAdapter.json_schemas(adapters, ref_template=_TEMPLATE)
        schemas.update(named["$defs"])
    for name, docs in field_docs().items():
        for field, doc in docs.items():
            schemas[name]["properties"][field]["description"] = doc
    return document


def _say_who_needs_a_key(document: dict[str, Any], settings: Settings) -> None:
    """Declare the need for a key by the settings. Operations that need one in any case declare it themselves."""
    operations = [each for path in document["paths"].values() for each in path.values()]
    if settings.auth == "open":
        document["components"].pop("securitySchemes", None)
        for operation in operations:
            operation.pop("security", None)
    elif not settings.public_read:
        document["security"] = next(each["security"] for each in operations if each.get("security"))
