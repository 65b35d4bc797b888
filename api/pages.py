"""Pages for people: leaderboards, a submission, a problem. Rendered here, escaped by Jinja, without scripts."""

from __future__ import annotations

import hashlib
import http
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.templating import Jinja2Templates
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.exceptions import HTTPException

from api import words
from api.boards import board
from api.context import request_id
from api.errors import NotFound
from api.records import (
    current_record,
    diagnosis_records,
    leaderboard_entry,
    problem_record,
    submission_records,
    worker_record,
)
from api.schemas import Board, DeviceKind, LeaderboardEntry, Track
from api.services import ReadSession, Services, ServicesDep
from evaluator.config import DEVICE_KINDS
from evaluator.problem import Problem
from evaluator.vetting import MEANING
from storage.leaderboard import Ranking, leaders
from storage.submissions import Filters, Submissions
from storage.workers import list_workers

__all__ = ["error_page", "router", "wants_page"]

router = APIRouter(include_in_schema=False)

_HERE: Final = Path(__file__).parent
_LATEST: Final = 15
_ALL: Final = 100
_KINDS: Final[tuple[DeviceKind, ...]] = ("cuda", "cpu")
assert sorted(_KINDS) == sorted(DEVICE_KINDS)


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in ("figure", "first_upper", "interval", "milliseconds", "moment", "size_of", "times"):
        environment.filters[name] = getattr(words, name)
    environment.filters["pretty"] = _pretty
    environment.filters["by_device"] = _by_device
    environment.globals.update(
        STYLE_VERSION=_digest(_HERE / "static" / "style.css"),
        VERDICTS=words.VERDICTS,
        STATUSES=words.STATUSES,
        GRADIENTS=words.GRADIENTS,
        FLAGS=words.FLAGS,
        DIAGNOSES=words.DIAGNOSES,
        LABELS=MEANING,
        tone=words.tone,
    )
    return environment


def _digest(path: Path) -> str:
    """Goes into the file's address: a browser that has kept an older one asks for the new one."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:8]


def _by_device(entries: Sequence[LeaderboardEntry]) -> list[tuple[str | None, list[LeaderboardEntry]]]:
    """The ranking of each device, by the device's name."""
    return [(name, list(ranked)) for name, ranked in itertools.groupby(entries, lambda entry: entry.device_name)]


def _pretty(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


_templates: Final = Jinja2Templates(env=_environment())

SizeName = Annotated[str | None, Query(max_length=100)]


@router.get("/")
def home(
    request: Request,
    services: ServicesDep,
    session: ReadSession,
    track: Track = "inference",
    size: SizeName = None,
) -> Response:
    """Who leads at each problem, the latest submissions, the workers."""
    problems = list(services.problems.values())
    leading = _leaders(session, problems, track, size)
    latest = Submissions(session).page(Filters(), None, _LATEST).items
    return _templates.TemplateResponse(
        request,
        "index.html",
        {
            "problems": [(problem, leading.get(problem.id, [])) for problem in problems],
            # For the line to hand something in with, which is of use as long as nobody has.
            "example": None if leading else next((each for each in problems if each.refusal is None), None),
            "track": track,
            "size": size,
            "sizes": _sizes(services),
            "submissions": submission_records(session, latest),
            "workers": [worker_record(worker) for worker in list_workers(session)],
            "base_url": str(request.base_url).rstrip("/"),
        },
    )


@router.get("/problems/{problem_id}")
def problem_page(
    request: Request,
    problem_id: str,
    services: ServicesDep,
    session: ReadSession,
    track: Track = "inference",
    size: SizeName = None,
) -> Response:
    """One problem: what it asks, who is fastest, its reference."""
    problem = services.problem(problem_id)
    return _templates.TemplateResponse(
        request,
        "problem.html",
        {
            "problem": problem_record(problem),
            "boards": _boards(session, problem, track, size, limit=_ALL),
            "track": track,
            "size": size,
            "sizes": list(problem.sizes),
            "base_url": str(request.base_url).rstrip("/"),
        },
    )


@router.get("/submissions/{submission_id}")
def submission_page(request: Request, submission_id: str, session: ReadSession) -> Response:
    """One submission: its verdict in words, figures, timeline, source and log."""
    submissions = Submissions(session)
    submission = submissions.get(submission_id)
    if submission is None:
        raise NotFound(f"no submission {submission_id!r}")
    return _templates.TemplateResponse(
        request,
        "submission.html",
        {
            "submission": current_record(session, submission),
            "diagnoses": diagnosis_records(session, submission_id),
            "source": submissions.source_of(submission_id),
            "log": submissions.log_of(submission_id),
            "base_url": str(request.base_url).rstrip("/"),
        },
    )


def wants_page(request: Request) -> bool:
    """Whether a browser asked for a page, and so gets its error as one."""
    return not request.url.path.startswith("/api/") and "text/html" in request.headers.get("accept", "")


def error_page(request: Request, error: HTTPException) -> Response:
    """``error`` as a page."""
    context = {
        "status": error.status_code,
        "title": http.HTTPStatus(error.status_code).phrase,
        "detail": error.detail,
        "request_id": request_id.get(),
    }
    return _templates.TemplateResponse(request, "error.html", context, error.status_code, error.headers)


def _boards(session: ReadSession, problem: Problem, track: Track, size: str | None, *, limit: int) -> list[Board]:
    """The boards that have entries, one for each kind of device."""
    boards = [
        board(
            session,
            problem,
            kind,
            track,
            size=_size_of(problem, kind, size),
            precision=problem.dtype,
            limit=limit,
        )
        for kind in _KINDS
    ]
    return [ranked for ranked in boards if ranked.entries]


def _leaders(
    session: ReadSession, problems: Sequence[Problem], track: Track, size: str | None
) -> dict[str, list[LeaderboardEntry]]:
    """Who leads at each of ``problems`` that is ranked, on each device, by the problem's id."""
    rankings = [
        Ranking(problem.id, kind, _size_of(problem, kind, size), problem.dtype)
        for problem in problems
        if problem.refusal is None
        for kind in _KINDS
    ]
    found = leaders(session, rankings, track)
    return {
        problem: [leaderboard_entry(entry) for entry in entries]
        for problem, entries in itertools.groupby(found, lambda entry: entry.problem)
    }


def _size_of(problem: Problem, kind: DeviceKind, size: str | None) -> str:
    """``size`` if the problem has it, else what is usual on a device of that kind."""
    return size if size is not None and size in problem.sizes else problem.default_size(kind)


def _sizes(services: Services) -> list[str]:
    return list(dict.fromkeys(size for problem in services.problems.values() for size in problem.sizes))
