"""The form that hands in a candidate: an ordinary POST, so that it works without scripts."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from api.http.errors import ApiError, InvalidRequest, NotFound, QueueIsFull, QuotaExceeded, from_validation
from api.pages.forms import form_of
from api.pages.home import home_page
from api.schemas.submissions import SubmissionRequest
from api.services.auth import SUBMITS, Caller, CallerDep
from api.services.container import Services, ServicesDep
from api.services.submit import submit
from evaluator.candidates.candidate import Candidate, parse_candidate
from storage.access.quotas import QuotaSpent
from storage.queue.fair_order import QueueFull

__all__ = ["router"]

router = APIRouter()

_FIELDS: Final = ("problem", "reference", "text", "author", "label", "device", "tier", "visibility")
_OPTIONS: Final = ("author", "label", "device", "tier", "visibility")
_FENCES: Final = ("```", "~~~")


@router.post("/submissions", dependencies=[SUBMITS])
async def hand_in(request: Request, services: ServicesDep, caller: CallerDep) -> Response:
    """Take a pasted candidate, and redirect to the page that shows its progress."""
    form = await form_of(request, _FIELDS)
    return await run_in_threadpool(_submitted, request, services, caller, form)


def _submitted(request: Request, services: Services, caller: Caller, form: dict[str, str]) -> Response:
    try:
        submission = submit(services, _request_of(form), caller, None)
    except (InvalidRequest, NotFound) as error:
        return _refused(request, services, caller, form, InvalidRequest(error.detail))
    except QueueFull as error:
        return _refused(request, services, caller, form, QueueIsFull(str(error)))
    except QuotaSpent as error:
        refusal = QuotaExceeded(str(error), retry_after_s=error.retry_after_s)
        return _refused(request, services, caller, form, refusal)
    return RedirectResponse(f"/submissions/{submission.id}", 303)


def _refused(request: Request, services: Services, caller: Caller, form: dict[str, str], error: ApiError) -> Response:
    """Return the form with the pasted text and the reason of the refusal."""
    with services.readers() as session:
        page = home_page(
            request, services, session, caller.viewer, form=form, error=error.detail, status=error.status_code
        )
    page.headers.update(error.headers or {})
    return page


def _request_of(form: dict[str, str]) -> SubmissionRequest:
    """Return the request of a form. Raises ``InvalidRequest``."""
    text = form.get("text", "")
    if not text.strip():
        raise InvalidRequest(
            "There is nothing to grade yet: paste the source of a ModelNew, or a model's whole answer."
        )
    given = {name: value.strip() for name in _OPTIONS if (value := form.get(name, "")).strip()}
    reference = form.get("reference", "")
    # A form always names a problem, because one of the list is chosen in it.
    problem = {"reference": {"source": reference}} if reference.strip() else {"problem": form.get("problem", "")}
    try:
        return SubmissionRequest.model_validate({**problem, "response" if _is_answer(text) else "code": text, **given})
    except ValidationError as error:
        raise from_validation(error) from error


def _is_answer(text: str) -> bool:
    """Whether this is a model's answer around its source, and not the source itself."""
    if not any(line.lstrip().startswith(_FENCES) for line in text.splitlines()):
        return False
    return not isinstance(parse_candidate(code=text), Candidate)
