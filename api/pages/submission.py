"""The page of one submission: its verdict in words, and all its evidence."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Request, Response
from sqlalchemy.orm import Session

from api.pages.charts.evidence import calls_in_order, error_pattern, latencies, roofline_plot
from api.pages.fields import ChosenTier, ChosenVerdict, Word
from api.pages.rendering import render
from api.pages.source import bounded, changes, line_of_error, listing
from api.records.submissions import current_record, diagnosis_records, samples_record, submission_records
from api.services.auth import READS, ViewerDep, seen_submission
from api.services.container import ReadSession, ServicesDep
from evaluator.config import TIERS
from evaluator.evaluation import SpeedupStatus, Status, Verdict
from kerneljudge.records import SubmissionRecord
from storage.access.visibility import Viewer
from storage.models import DiagnosisStatus, Submission
from storage.submissions.listing import Filters, page_of_submissions
from storage.submissions.related import previous_submission, ranking_leader
from storage.submissions.submissions import COMPLETE, whole_log

__all__ = ["router"]

router = APIRouter()

_ROWS: Final = 50
_CHILDREN: Final = 20
_MAX_MESSAGE: Final = 6000
_NOT_SHOWN: Final = frozenset({"mismatch", "kernels", "gradient_max_abs"})


@router.get("/submissions", dependencies=[READS])
def submissions_page(
    request: Request,
    services: ServicesDep,
    session: ReadSession,
    viewer: ViewerDep,
    problem: Word = None,
    author: Word = None,
    label: Word = None,
    parent: Word = None,
    verdict: ChosenVerdict = None,
    tier: ChosenTier = None,
    cursor: Annotated[str | None, Query(max_length=100)] = None,
) -> Response:
    """List submissions under the filters of the address, the latest first."""
    words = {"problem": problem, "author": author, "label": label, "parent": parent, "verdict": verdict, "tier": tier}
    given = {name: value or None for name, value in words.items()}
    page = page_of_submissions(session, Filters(**given), cursor, _ROWS, viewer=viewer)
    return render(
        request,
        "submissions.html",
        submissions=submission_records(session, page.items, viewer),
        next_cursor=page.next_cursor,
        given=given,
        problems=list(services.catalogue(session, viewer).problems),
        tiers=TIERS,
    )


@router.get("/submissions/{submission_id}", dependencies=[READS])
def submission_page(
    request: Request,
    submission_id: str,
    session: ReadSession,
    viewer: ViewerDep,
    against: Literal["previous", "leader"] | None = None,
) -> Response:
    """Show one submission: its verdict in words, figures, timeline, source and log."""
    submission = seen_submission(session, submission_id, viewer, COMPLETE)
    record = current_record(session, submission, viewer, source=submission.source.text)
    source = submission.source.text if record["source_shown"] else ""
    verdict, text, details = record["verdict"], record["message"], record["details"]
    line = None if verdict in (None, Verdict.PASSED) else line_of_error(Verdict(verdict), text, source)
    mismatch = details.get("mismatch")
    final = Status(record["status"]).final
    return render(
        request,
        "submission.html",
        submission=record,
        message=bounded(text, _MAX_MESSAGE),
        diagnoses=[] if record["diagnosis"] is None else diagnosis_records(session, submission.id),
        line=line,
        listing=listing(source, None if line is None else (line, text.partition("\n")[0]), record["flags"]),
        log=bounded(whole_log(submission) if record["source_shown"] else ""),
        stages=_stages(record),
        waited_s=_waited_s(record),
        charts=_charts(submission, record),
        pattern=None if mismatch is None else error_pattern(mismatch),
        gradients=details.get("gradient_max_abs", {}),
        details={name: value for name, value in details.items() if name not in _NOT_SHOWN},
        children=_children(session, submission, viewer),
        comparison=_comparison(session, submission, source, against, viewer) if record["source_shown"] else None,
        final=final,
        under_way=not final or _being_diagnosed(record),
    )


def _children(session: Session, submission: Submission, viewer: Viewer) -> dict[str, Any]:
    """Return the latest submissions that were derived from ``submission``, and whether there are more."""
    page = page_of_submissions(session, Filters(parent=submission.id), limit=_CHILDREN, viewer=viewer)
    return {"items": submission_records(session, page.items, viewer), "more": page.next_cursor is not None}


def _being_diagnosed(record: SubmissionRecord) -> bool:
    diagnosis = record["diagnosis"]
    return diagnosis is not None and not DiagnosisStatus(diagnosis["status"]).final


def _stages(record: SubmissionRecord) -> list[tuple[str, float, float]]:
    """Return each stage with its seconds and its share of all of them."""
    stages = {name: seconds for name, seconds in record["stage_s"].items() if name != "total"}
    total = sum(stages.values())
    return [(name, seconds, seconds / total) for name, seconds in stages.items()] if total > 0 else []


def _waited_s(record: SubmissionRecord) -> float | None:
    """Return how long it waited for workers; ``None`` while it may still wait."""
    timeline = record["timeline"]
    begun = timeline["started"] or timeline["finished"]
    if begun is None:
        return None
    waited = datetime.fromisoformat(begun) - datetime.fromisoformat(timeline["submitted"])
    return max(waited.total_seconds() - record["stage_s"].get("building", 0.0), 0.0)


def _charts(submission: Submission, record: SubmissionRecord) -> list[Any]:
    """Return the charts that this submission's samples allow.

    Calls are drawn even without a speedup, where noise is the reason for the missing one. The chart shows the noise.
    """
    is_drawn = record["latency_ms"] is not None or record["speedup_status"] == SpeedupStatus.UNSETTLED
    samples = samples_record(submission) if is_drawn else None
    series = None if samples is None else samples["tracks"].get("inference")
    drawn = []
    if series is not None:
        sides = series["candidate_device_ms"], series["baseline_device_ms"]
        drawn += [latencies(*sides), calls_in_order(*sides)]
    roofline, latency = record["roofline"].get("inference"), record["latency_ms"]
    if roofline is not None and latency is not None:
        drawn.append(roofline_plot(roofline, latency["candidate"], latency["baseline"]))
    return [chart for chart in drawn if chart is not None]


def _comparison(
    session: Session,
    submission: Submission,
    source: str,
    against: Literal["previous", "leader"] | None,
    viewer: Viewer,
) -> dict[str, Any] | None:
    """Return the differences to the author's earlier source or to the leader's, whichever is requested or there."""
    if submission.state is Status.CANCELLED:
        return None
    others = {
        "previous": previous_submission(session, submission, viewer),
        "leader": ranking_leader(session, submission, viewer),
    }
    there = {name: other for name, other in others.items() if other is not None}
    if not there:
        return None
    name = against if against in there else next(iter(there))
    other = there[name]
    return {"with": name, "choices": list(there), "other": other, "lines": changes(other.source, source)}
