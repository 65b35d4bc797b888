"""The rendering of pages: templates, which Jinja escapes, and the functions that all of them may use."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from fastapi import Request, Response
from fastapi.templating import Jinja2Templates
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from api import labels
from api.pages.charts import drawing
from api.services.auth import Caller
from api.services.container import Services
from api.services.exports import parquet_is_there
from evaluator.problems.requested import is_requested
from evaluator.problems.shapes import split_name
from evaluator.problems.vetting import MEANING
from kerneljudge.terms.rules import Rules, rules_text
from runtime.settings import Settings
from storage.access.keys import Scope

__all__ = ["base_url", "query", "render"]

_API: Final = Path(__file__).parents[1]
_STATIC: Final = _API / "static"
_FILTERS: Final = (
    "as_time", "figure", "first_upper", "interval", "machine", "milliseconds", "moment", "points", "seconds", "share",
    "share_range", "size_of", "thousands", "times",
)  # fmt: skip
_MAX_PRETTY: Final = 4000


def render(request: Request, name: str, status: int = 200, headers: Any = None, **context: Any) -> Response:
    """Render the template ``name`` as a page."""
    caller: Caller | None = getattr(request.state, "caller", None)
    settings: Settings = request.app.state.services.settings
    address = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    known = {
        "base_url": base_url(request),
        "canonical": base_url(request) + address,
        "asks_for_keys": settings.auth == "required",
        "client": None if caller is None else caller.client,
        "may_submit": caller is not None and Scope.SUBMIT in caller.scopes,
        "may_bring": caller is not None and settings.request_references and Scope.REFERENCES in caller.scopes,
        **context,
    }
    return _TEMPLATES.TemplateResponse(request, name, known, status, headers)


def base_url(request: Request) -> str:
    """Return the address of this service as the visitor sees it, without a slash at the end."""
    services: Services = request.app.state.services
    return services.settings.public_url or str(request.base_url).rstrip("/")


def query(**values: object) -> str:
    """Return a query string of the given values, ``?`` included; empty where there are none."""
    given = {name: str(value) for name, value in values.items() if value not in (None, "")}
    return f"?{urlencode(given)}" if given else ""


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_API / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in _FILTERS:
        environment.filters[name] = getattr(labels, name)
    environment.filters["pretty"] = _pretty
    environment.filters["rules_text"] = lambda rules: rules_text(Rules.from_dict(rules))
    environment.filters["path"] = lambda value: quote(str(value), safe="")
    environment.globals.update(
        is_requested=is_requested,
        split_name=split_name,
        STYLE=_address("style.css"),
        SCRIPT=_address("main.js"),
        PREVIEW=_address("preview.png"),
        VERDICTS=labels.VERDICTS,
        MEANINGS=labels.MEANINGS,
        STATUSES=labels.STATUSES,
        GRADIENTS=labels.GRADIENTS,
        FLAGS=labels.FLAGS,
        DIAGNOSES=labels.DIAGNOSES,
        BATCHES=labels.BATCHES,
        VERIFICATIONS=labels.VERIFICATIONS,
        WORKER_STATES=labels.WORKER_STATES,
        LABELS=MEANING,
        CHART=drawing,
        PARQUET=parquet_is_there(),
        query=query,
        measured=labels.measured,
        tone=labels.tone,
    )
    return environment


def _address(name: str) -> str:
    """Return the address with the content's digest in it, so that a browser with an older copy fetches the new one."""
    digest = hashlib.sha256((_STATIC / name).read_bytes()).hexdigest()[:8]
    return f"/static/{name}?v={digest}"


def _pretty(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    return text if len(text) <= _MAX_PRETTY else f"{text[:_MAX_PRETTY]} […]"


_TEMPLATES: Final = Jinja2Templates(env=_environment())
