"""The pages of batches: progress, summary and lines."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response

from api.pages.charts.curves import fast_p_curve
from api.pages.fields import ChosenVerdict, Word
from api.pages.rendering import render
from api.records.batches import batch_list, batch_record, comparison_record
from api.services.auth import READS, KnownBatch, ViewerDep, seen_batch
from api.services.container import ReadSession
from storage.batches.batches import Batches
from storage.batches.comparison import NotComparable
from storage.batches.export import batch_rows_after

__all__ = ["router"]

router = APIRouter()

_ROWS: Final = 100
_BATCHES: Final = 20
_MAX_PROBLEMS: Final = 60
_MAX_LINE: Final = 2**31 - 1


@router.get("/batches", dependencies=[READS])
def batches_page(
    request: Request,
    session: ReadSession,
    viewer: ViewerDep,
    cursor: Annotated[str | None, Query(max_length=100)] = None,
) -> Response:
    """List every batch, the latest first."""
    page = Batches(session).page(cursor, _BATCHES, viewer=viewer)
    return render(request, "batches.html", batches=batch_list(session, page, viewer))


@router.get("/batches/{batch_id}", dependencies=[READS])
def batch_page(
    request: Request,
    known: KnownBatch,
    session: ReadSession,
    viewer: ViewerDep,
    verdict: ChosenVerdict = None,
    problem: Word = None,
    label: Word = None,
    after: Annotated[int, Query(ge=0, le=_MAX_LINE)] = 0,
) -> Response:
    """Show one batch: progress, verdicts, fast_p, pass@k, and its lines under the filters of the address."""
    record = batch_record(session, Batches(session).get(known.id) or known, viewer)
    summary = record["summary"]
    assert summary is not None
    given = {"verdict": verdict or None, "problem": problem or None, "label": label or None}
    rows = batch_rows_after(session, known.id, after, _ROWS + 1, **given, viewer=viewer)
    speedups = [best["certain_speedup"] for best in summary["best"] if best["certain_speedup"] is not None]
    pass_at = sorted({each["k"] for each in summary["pass_at_k"]})
    return render(
        request,
        "batch.html",
        batch=record,
        summary=summary,
        curve=fast_p_curve(speedups, summary["overall"]["problems"]),
        thresholds=list(summary["overall"]["fast_p"]),
        pass_at=[(k, {f"{each['p']:g}": each for each in summary["pass_at_k"] if each["k"] == k}) for k in pass_at],
        best=summary["best"][:_MAX_PROBLEMS],
        problems=[each["problem"] for each in summary["best"]],
        given=given,
        rows=rows[:_ROWS],
        more=rows[_ROWS - 1]["line"] if len(rows) > _ROWS else None,
    )


@router.get("/batches/{batch_id}/comparison", dependencies=[READS])
def comparison_page(
    request: Request, known: KnownBatch, session: ReadSession, viewer: ViewerDep, other: Word = None
) -> Response:
    """Show the differences between a batch and another one; without ``other``, the batches to choose from."""
    page = Batches(session).page(None, _BATCHES, viewer=viewer)
    comparison, obstacle = None, ""
    if other:
        try:
            comparison = comparison_record(session, known, seen_batch(session, other, viewer), viewer)
        except NotComparable as error:
            obstacle = str(error)
    return render(
        request,
        "comparison.html",
        batch=known,
        other=other or "",
        batches=[each for each in page.items if each.id != known.id],
        comparison=comparison,
        ks=[] if comparison is None else sorted({each["k"] for each in comparison["pass_at_k"]}),
        obstacle=obstacle,
    )
