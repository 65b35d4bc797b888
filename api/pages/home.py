"""The home page: an introduction, the leaders of each problem, the work under way, and a form for a candidate."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response
from sqlalchemy.orm import Session

from api.pages.rendering import render
from api.records.queries import queue_depths
from api.records.submissions import submission_records
from api.records.workers import worker_records
from api.services.auth import READS, ViewerDep
from api.services.cached_route import SharedRoute
from api.services.container import ReadSession, Services, ServicesDep
from evaluator.config import DEVICE_KINDS
from evaluator.problems.problem import Problem
from kerneljudge.records import DeviceKind, Track
from storage.access.visibility import Viewer
from storage.leaderboards.read import Entry, Ranking, leaders
from storage.queue.workers import list_workers
from storage.submissions.listing import Filters, page_of_submissions

__all__ = ["home_page", "router"]

router = APIRouter(route_class=SharedRoute)

_LATEST: Final = 10
_KINDS: Final[tuple[DeviceKind, ...]] = ("cuda", "cpu")
assert sorted(_KINDS) == sorted(DEVICE_KINDS)


@router.get("/", dependencies=[READS])
def home(
    request: Request,
    services: ServicesDep,
    session: ReadSession,
    viewer: ViewerDep,
    track: Track = "inference",
    size: Annotated[str | None, Query(max_length=100)] = None,
) -> Response:
    """Show the leaders of each problem, the latest submissions, the queue and the workers."""
    return home_page(request, services, session, viewer, track, size)


def home_page(
    request: Request,
    services: Services,
    session: Session,
    viewer: Viewer,
    track: Track = "inference",
    size: str | None = None,
    *,
    form: Mapping[str, str] | None = None,
    error: str = "",
    status: int = 200,
) -> Response:
    """Return the page, with the values that were typed into its form and their error."""
    known = services.catalogue(session, viewer)
    problems, refusals = list(known.problems.values()), known.refusals
    ranked = [problem for problem in problems if problem.id not in refusals]
    leading = _leaders(session, ranked, track, size, viewer)
    latest = page_of_submissions(session, Filters(), None, _LATEST, viewer=viewer).items
    return render(
        request,
        "home.html",
        status,
        problems=problems,
        # Problems that have a leader come first, because they have something to show.
        listed=[
            (problem, leading.get(problem.id, []))
            for problem in sorted(problems, key=lambda each: each.id not in leading)
            if problem.id in leading or problem.id in refusals
        ],
        open_problems=[problem for problem in ranked if problem.id not in leading],
        refusals=refusals,
        private={name for name in known.created if known.is_private(name)},
        track=track,
        size=size,
        sizes=list(dict.fromkeys(size for problem in problems for size in problem.sizes)),
        submissions=submission_records(session, latest, viewer),
        workers=[worker for worker in worker_records(session, list_workers(session), viewer) if worker["alive"]],
        queues=queue_depths(session),
        form=form or {},
        error=error,
    )


def _leaders(
    session: Session, problems: Sequence[Problem], track: Track, size: str | None, viewer: Viewer
) -> dict[str, list[Entry]]:
    """Return the leaders at each of ``problems``, on each device, by the problem's id."""
    rankings = [
        Ranking(problem.id, kind, _size_of(problem, kind, size), problem.dtype)
        for problem in problems
        for kind in _KINDS
    ]
    found = leaders(session, rankings, track, viewer)
    return {problem: list(entries) for problem, entries in itertools.groupby(found, lambda entry: entry.problem)}


def _size_of(problem: Problem, kind: DeviceKind, size: str | None) -> str:
    """Return ``size`` if the problem has it, else the usual size on a device of that kind."""
    return size if size is not None and size in problem.sizes else problem.default_size(kind)
