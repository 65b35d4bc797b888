"""The form that a candidate is handed in with: an ordinary POST, so that it works without scripts."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl, urlsplit

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from api.errors import ApiError, InvalidRequest, NotFound, TooManyRequests, UnsupportedMediaType, from_validation
from api.intake import submit
from api.middleware import media_type
from api.pages.home import home_page
from api.schemas import SubmissionRequest
from api.services import Services, ServicesDep
from evaluator.candidate import Candidate, parse_candidate
from storage.order import QueueFull

__all__ = ["ForeignForm", "router"]

router = APIRouter()

_FORM: Final = "application/x-www-form-urlencoded"
_FIELDS: Final = ("problem", "text", "author", "label", "device")
_MOST_FIELDS: Final = 20
_FENCES: Final = ("```", "~~~")


class ForeignForm(ApiError):
    """The form was sent from a page of somebody else's."""

    status = 403
    kind = "foreign-form"


@router.post("/submissions")
async def hand_in(request: Request, services: ServicesDep) -> Response:
    """Takes what was pasted, and leads to the page on which it can be watched."""
    _refuse_foreign(request)
    if media_type(request.headers) != _FORM:
        raise UnsupportedMediaType(f"this address takes a form ({_FORM}); programs use /api/v1/submissions")
    form = _form(await request.body())
    return await run_in_threadpool(_submitted, request, services, form)


def _submitted(request: Request, services: Services, form: dict[str, str]) -> Response:
    try:
        submission = submit(services, _request_of(form), None)
    except (InvalidRequest, NotFound) as error:
        return _refused(request, services, form, InvalidRequest(error.detail))
    except QueueFull as error:
        return _refused(request, services, form, TooManyRequests(str(error)))
    return RedirectResponse(f"/submissions/{submission.id}", 303)


def _refused(request: Request, services: Services, form: dict[str, str], error: ApiError) -> Response:
    """What was pasted comes back, with the reason."""
    with services.readers() as session:
        page = home_page(request, services, session, form=form, error=error.detail, status=error.status_code)
    page.headers.update(error.headers or {})
    return page


def _form(body: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="replace", max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise InvalidRequest("this is no form") from error
    return {name: value for name, value in pairs if name in _FIELDS}


def _request_of(form: dict[str, str]) -> SubmissionRequest:
    """Raises ``InvalidRequest``."""
    text = form.get("text", "")
    if not text.strip():
        raise InvalidRequest(
            "There is nothing to grade yet: paste the source of a ModelNew, or a model's whole answer."
        )
    given = {name: value.strip() for name in ("author", "label", "device") if (value := form.get(name, "")).strip()}
    try:
        return SubmissionRequest.model_validate(
            {"problem": form.get("problem", ""), "response" if _is_answer(text) else "code": text, **given}
        )
    except ValidationError as error:
        raise from_validation(error) from error


def _is_answer(text: str) -> bool:
    """Whether this is a model's answer around its source, and not the source itself."""
    if not any(line.lstrip().startswith(_FENCES) for line in text.splitlines()):
        return False
    return not isinstance(parse_candidate(code=text), Candidate)


def _refuse_foreign(request: Request) -> None:
    """Nobody else's page may hand something in with a visitor's browser. Programs say neither; they have no visitor."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        if site not in ("same-origin", "none"):
            raise ForeignForm("this form was sent from another site")
        return
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise ForeignForm("this form was sent from another site")
