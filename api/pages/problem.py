"""The page of one problem: its leaderboard under the filters of the address, its history, and its definition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Request, Response
from sqlalchemy.orm import Session

from api.pages.charts.curves import history
from api.pages.charts.intervals import bars_of, ends_of, places_of
from api.pages.fields import Word
from api.pages.rendering import query, render
from api.pages.source import listing
from api.records.problems import problem_record
from api.services.auth import READS, ViewerDep
from api.services.cached_route import SharedRoute
from api.services.container import ReadSession, ServicesDep
from evaluator.problems.problem import Problem
from evaluator.problems.shapes import split_name
from kerneljudge.records import Track
from storage.access.visibility import Viewer
from storage.leaderboards.history import rankings_of, records, sample, verdicts_of
from storage.leaderboards.read import Entry, ends_above, leaderboard_entries
from storage.models import StoredRanking

__all__ = ["router"]

router = APIRouter(route_class=SharedRoute)

_ROWS: Final = 50
_LAST_PLACE: Final = 1_000
_DOTS: Final = 300
_RECORDS_SHOWN: Final = 30


@dataclass(frozen=True)
class Filters:
    """The filters in the address. ``device`` is a kind, or a device's name. ``None`` stands for the usual value."""

    device: Word = None
    size: Word = None
    precision: Word = None
    track: Track = "inference"
    baseline: Word = None
    software: Word = None
    author: Word = None
    label: Word = None
    version: Word = None
    after: Annotated[int, Query(ge=0, le=_LAST_PLACE)] = 0

    def address(self, **changes: object) -> str:
        """Return the query string of these filters with ``changes``.

        It begins at the first row, unless they say otherwise.
        """
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        values["track"] = None if self.track == "inference" else self.track
        values |= {"after": None, **changes}
        return query(**{name: value for name, value in values.items() if value})


@router.get("/problems/{problem_id}", dependencies=[READS])
def problem_page(
    request: Request,
    problem_id: str,
    services: ServicesDep,
    session: ReadSession,
    viewer: ViewerDep,
    filters: Annotated[Filters, Depends()],
) -> Response:
    """Show one problem: its leaderboard, its description and its reference."""
    known = services.catalogue(session, viewer)
    problem = known.problem_in(session, problem_id, filters.version or None)
    private = known.is_private(problem.id)
    shown_version = None if problem.version == known.problem(problem_id).version else problem.version
    rankings = [] if problem.refusal else rankings_of(session, problem.id, version=shown_version, viewer=viewer)
    ranking = _chosen(problem, rankings, filters)
    entries = _entries(session, ranking, filters, viewer)
    shown, more = entries[:_ROWS], len(entries) > _ROWS
    best = [] if ranking is None else records(session, ranking, viewer)
    verdicts = verdicts_of(session, problem.id, problem.version, viewer, private=private)
    return render(
        request,
        "problem.html",
        problem=problem_record(session, problem, known, viewer),
        earlier=shown_version is not None,
        filters=filters,
        ranking=ranking,
        rankings=rankings,
        choices={name: _choices(rankings, name) for name in ("size", "precision", "baseline", "software")},
        devices=_choices(rankings, "device_name"),
        entries=shown,
        places=_places(session, ranking, shown, filters, viewer),
        bars=bars_of(shown),
        more=filters.after + _ROWS if more and filters.after + _ROWS <= _LAST_PLACE else None,
        cut=more and filters.after + _ROWS > _LAST_PLACE,
        history=None if ranking is None else history(best, sample(session, ranking, _DOTS, viewer)),
        records=list(reversed(best))[:_RECORDS_SHOWN],
        verdicts=sorted(verdicts.items(), key=lambda each: -each[1]),
        references=_references(rankings),
        reference=listing(problem.source),
        form={"problem": problem.id, "visibility": "private" if private else "public"},
        error="",
    )


def _chosen(problem: Problem, rankings: Sequence[StoredRanking], filters: Filters) -> StoredRanking | None:
    """Return the fullest of the rankings that meet the filters.

    Filters that are not given stand for the problem's own precision and for the eager baseline. Rankings of the same
    device and size differ in the versions of torch and CUDA alone; of these, the newest is returned.
    """

    def meets(ranking: StoredRanking) -> bool:
        return (
            ranking.track == filters.track
            and ranking.baseline == (filters.baseline or "eager")
            and ranking.precision == (filters.precision or problem.dtype)
            and (not filters.size or ranking.size == filters.size)
            and (not filters.device or filters.device in (ranking.device, ranking.device_name))
            and (not filters.software or ranking.software == filters.software)
        )

    # The size itself comes before its shapes, however many are ranked there.
    found = sorted((ranking for ranking in rankings if meets(ranking)), key=lambda each: bool(split_name(each.size)[1]))
    alike = [each for each in found if (each.device_name, each.size) == (found[0].device_name, found[0].size)]
    return max(alike, key=lambda ranking: (ranking.since, ranking.id), default=None)


def _choices(rankings: Sequence[StoredRanking], name: str) -> list[str]:
    """Return the values that can be chosen, that of the fullest ranking first."""
    return list(dict.fromkeys(value for ranking in rankings if (value := getattr(ranking, name))))


def _entries(session: Session, ranking: StoredRanking | None, filters: Filters, viewer: Viewer) -> list[Entry]:
    """Return the rows of one page, and one more if there is one."""
    if ranking is None:
        return []
    author, label = filters.author or None, filters.label or None
    return leaderboard_entries(
        session, ranking, author=author, label=label, limit=_ROWS + 1, cursor=filters.after, viewer=viewer
    )


def _places(
    session: Session, ranking: StoredRanking | None, shown: Sequence[Entry], filters: Filters, viewer: Viewer
) -> dict[str, tuple[int, bool]]:
    """Return for each submission its place, and whether other submissions share it.

    Submissions share a place where their interval reaches that of the first of them. With a filter by author or label,
    places count the shown entries only.
    """
    before: list[tuple[float, float]] = []
    if filters.after and shown and ranking is not None and not filters.author and not filters.label:
        before = ends_above(session, ranking, filters.after, viewer)
    ends = [*before, *(ends_of(entry) for entry in shown)]
    places = places_of(ends, 1 + filters.after - len(before))
    counts = Counter(places)
    own = places[len(before) :]
    return {entry.submission_id: (place, counts[place] > 1) for entry, place in zip(shown, own, strict=True)}


def _references(rankings: Sequence[StoredRanking]) -> list[Any]:
    """Return the latencies of the reference, for each device and size that it was measured on."""
    seen: dict[tuple[str, ...], StoredRanking] = {}
    for ranking in rankings:
        if ranking.baseline == "eager" and ranking.baseline_ms is not None:
            seen.setdefault((ranking.device_name, ranking.size, ranking.precision, ranking.track), ranking)
    return [seen[key] for key in sorted(seen)]
