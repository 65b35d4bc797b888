"""The leaderboard over many problems: authors, or the models that they are named for, by fast_1 and mean speedup."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response

from api.pages.fields import Word
from api.pages.rendering import render
from api.services.auth import READS, ViewerDep
from api.services.cached_route import SharedRoute
from api.services.container import ReadSession, ServicesDep
from evaluator.problems.problem import Problem
from kerneljudge.records import Track
from storage.leaderboards.history import author_figures, rankings_of
from storage.models import StoredRanking

__all__ = ["router"]

router = APIRouter(route_class=SharedRoute)

_ROWS: Final = 100
_EVERYTHING: Final = "all"


@router.get("/overall", dependencies=[READS])
def overall_page(
    request: Request,
    services: ServicesDep,
    session: ReadSession,
    viewer: ViewerDep,
    device: Word = None,
    track: Track = "inference",
    problems: Annotated[str, Query(max_length=100)] = _EVERYTHING,
) -> Response:
    """Show the authors over a set of problems on one device, by the share of all problems that they make faster."""
    known = services.catalogue(session, viewer)
    ranked = {problem.id: problem for problem in known.problems.values() if problem.id not in known.refusals}
    sets = _sets(ranked.values())
    name_of_set = problems if problems in sets else _EVERYTHING
    chosen = sets[name_of_set]
    rankings = [
        ranking for ranking in rankings_of(session, newest=True, viewer=viewer) if _usual(ranked, ranking, track)
    ]
    devices = _devices(rankings)
    name = device if device in devices else next(iter(devices), None)
    counted = [each for each in rankings if each.problem in chosen and _label(each) == name]
    figures = author_figures(session, [each.id for each in counted], _ROWS, viewer) if counted else []
    return render(
        request,
        "overall.html",
        rows=[
            {
                "author": each.author,
                "fast_1": each.faster / len(chosen),
                "mean": math.exp(each.log_speedup),
                "problems": each.problems,
                "coverage": each.problems / len(chosen),
            }
            for each in figures
        ],
        total=len(chosen),
        sets={label: len(ids) for label, ids in sets.items()},
        chosen=name_of_set,
        devices=devices,
        device=name,
        track=track,
    )


def _sets(problems: Collection[Problem]) -> dict[str, tuple[str, ...]]:
    """Return the sets of problems that have a leaderboard of this kind, by their names in addresses."""
    found: dict[str, list[str]] = {_EVERYTHING: []}
    for problem in problems:
        names = [_EVERYTHING, *problem.tags]
        if problem.kernelbench is not None:
            names.append(f"level {problem.kernelbench.level}")
        for name in dict.fromkeys(names):  # a problem may have a tag with the same name
            found.setdefault(name, []).append(problem.id)
    return {name: tuple(ids) for name, ids in sorted(found.items(), key=lambda each: (-len(each[1]), each[0]))}


def _usual(problems: Mapping[str, Problem], ranking: StoredRanking, track: Track) -> bool:
    """Whether this ranking counts for its problem: one counts for each device."""
    problem = problems.get(ranking.problem)
    return (
        problem is not None
        and ranking.track == track
        and ranking.baseline == "eager"
        and ranking.precision == problem.dtype
        and ranking.size == problem.default_size(ranking.device)
    )


def _devices(rankings: Sequence[StoredRanking]) -> list[str]:
    """Return the devices that have results, the one with the most entries first."""
    entries: dict[str, int] = {}
    for ranking in rankings:
        entries[_label(ranking)] = entries.get(_label(ranking), 0) + ranking.entries
    return sorted(entries, key=lambda name: (-entries[name], name))


def _label(ranking: StoredRanking) -> str:
    return ranking.device_name or ranking.device
