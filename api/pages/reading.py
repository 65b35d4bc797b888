"""Pages to read: the API's calls, and the method in short."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fastapi import APIRouter, Request, Response

from api.pages.rendering import render
from api.services.auth import NO_SCOPE

__all__ = ["router"]

router = APIRouter()

_METHODS: Final = ("get", "post", "put", "patch", "delete")
_PREFIX: Final = "#/components/schemas/"


@router.get("/docs", dependencies=[NO_SCOPE])
def api_page(request: Request) -> Response:
    """Show every call of the API, from the same document that programs read."""
    document = request.app.openapi()
    calls: dict[str, list[dict[str, Any]]] = {}
    for path, operations in document["paths"].items():
        for method in _METHODS:
            if method in operations:
                operation = operations[method]
                calls.setdefault((operation.get("tags") or ["service"])[0], []).append(_call(method, path, operation))
    schemas = document["components"]["schemas"]
    shown = ("SubmissionRequest", "SubmissionRecord", "LeaderboardEntry", "BatchRecord")
    fields = {name: _fields(schemas[name]) for name in shown}
    return render(request, "docs.html", document=document, calls=calls, fields=fields)


@router.get("/method", dependencies=[NO_SCOPE])
def method_page(request: Request) -> Response:
    """Show in short how verdicts and speedups are determined."""
    return render(request, "method.html")


def _call(method: str, path: str, operation: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "method": method.upper(),
        "path": path,
        "id": operation["operationId"],
        "description": operation.get("description") or operation.get("summary", ""),
        "parameters": [
            (each["name"], each["in"], _type(each["schema"]), each.get("description", ""))
            for each in operation.get("parameters", ())
        ],
        "answers": {status: answer.get("description", "") for status, answer in operation["responses"].items()},
    }


def _fields(schema: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    return [(name, _type(field), field.get("description", "")) for name, field in schema["properties"].items()]


def _type(schema: Mapping[str, Any]) -> str:
    """Return a schema in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(_PREFIX)
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("type", "anything"))
