"""Conversion of batches to the records of the API."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, cast

from sqlalchemy.orm import Session, sessionmaker

from api.records.encoding import to_json, to_text
from api.records.submissions import records_with_feedback
from evaluator.evaluation import Interval
from kerneljudge.records import (
    BatchLinks,
    BatchList,
    BatchRecord,
    ComparedBatch,
    ComparisonRecord,
    FastPDifferenceRecord,
    IntervalRecord,
    LineErrorRecord,
    PassAtKDifferenceRecord,
    ResultRecord,
    SummaryRecord,
    WebhookRecord,
)
from kerneljudge.summaries.summary import summarise
from storage.access.visibility import Viewer, Visibility
from storage.batches.batches import Batches, BatchPage
from storage.batches.comparison import compare_batches, device_names_of
from storage.models import Batch
from storage.submissions.parents import seen_ids

__all__ = ["batch_list", "batch_record", "comparison_record", "result_lines", "summary_record"]

_ERRORS_SHOWN: Final = 100
_RESULTS_PER_QUERY: Final = 100


def batch_record(session: Session, batch: Batch, viewer: Viewer, *, summary: bool = True) -> BatchRecord:
    """Return the current record of ``batch``."""
    batches = Batches(session)
    progress = batches.progress(batch)
    webhook = batches.webhook_of(batch.id) if viewer.owns(batch) else None
    errors = batches.errors_of(batch.id, _ERRORS_SHOWN) if viewer.sees_source(batch) else ()
    base = f"/api/v1/batches/{batch.id}"
    return BatchRecord(
        id=batch.id,
        name=batch.name,
        visibility=Visibility(batch.visibility).value,
        owner=batch.owner if viewer.owns(batch) else None,
        status=batch.state,
        message=batch.message,
        items=batch.items,
        errors_total=batch.errors,
        errors=[LineErrorRecord(line=error.line, message=error.message) for error in errors],
        statuses={status.value: count for status, count in progress.statuses.items()},
        verdicts={verdict.value: count for verdict, count in progress.verdicts.items()},
        finished_items=progress.finished,
        shared=progress.shared,
        rate_per_min=progress.rate_per_min,
        eta_s=progress.eta_s,
        created=to_text(batch.created_at),
        received=to_text(batch.received_at),
        finished=to_text(batch.finished_at),
        webhook=None
        if webhook is None
        else WebhookRecord(
            url=webhook.url, attempts=webhook.attempts, delivered=to_text(webhook.delivered_at), message=webhook.message
        ),
        summary=summary_record(session, batch.id, viewer) if summary else None,
        links=BatchLinks(
            self=base,
            results=f"{base}/results",
            events=f"{base}/events",
            summary=f"{base}/summary",
            comparison=f"{base}/comparison",
        ),
    )


def batch_list(session: Session, page: BatchPage, viewer: Viewer) -> BatchList:
    """Return the record of a page of batches."""
    items = [batch_record(session, batch, viewer, summary=False) for batch in page.items]
    return BatchList(items=items, next_cursor=page.next_cursor)


def summary_record(
    session: Session, batch_id: str, viewer: Viewer, problems: Collection[str] | None = None
) -> SummaryRecord:
    """Return the summary of a batch, over its own problems or over ``problems``."""
    batches = Batches(session)
    graded = batches.graded(batch_id, viewer)
    facts = batches.facts({each.problem for each in graded} if problems is None else set(problems))
    return cast(SummaryRecord, summarise(graded, facts, problems).to_dict())


def comparison_record(session: Session, batch: Batch, other: Batch, viewer: Viewer) -> ComparisonRecord:
    """Return the comparison of two batches. Raises ``NotComparable``."""
    found = compare_batches(session, batch.id, other.id, viewer)
    sides = [
        ComparedBatch(
            id=side.id,
            name=side.name,
            candidates=candidates,
            ungraded=ungraded,
            device_names=list(device_names_of(session, side.id)),
            only=list(only),
        )
        for side, candidates, ungraded, only in zip(
            (batch, other), found.candidates, found.ungraded, (found.first_only, found.second_only), strict=True
        )
    ]
    return ComparisonRecord(
        batch=sides[0],
        other=sides[1],
        problems=list(found.problems),
        waiting=list(found.waiting),
        unequal=found.unequal,
        fast_p=[
            FastPDifferenceRecord(
                p=each.p,
                batch=each.first,
                other=each.second,
                difference=each.difference,
                interval=_interval(each.interval),
                both=each.both,
                batch_only=each.first_only,
                other_only=each.second_only,
                neither=each.neither,
            )
            for each in found.fast_p
        ],
        pass_at_k=[
            PassAtKDifferenceRecord(
                k=each.k,
                p=each.p,
                batch=each.first,
                other=each.second,
                difference=each.difference,
                interval=_interval(each.interval),
            )
            for each in found.pass_at_k
        ],
    )


def _interval(interval: Interval) -> IntervalRecord:
    return IntervalRecord(low=interval.low, high=interval.high, level=interval.level)


def result_lines(readers: sessionmaker[Session], batch_id: str, after: int, viewer: Viewer) -> Iterator[str]:
    """Yield the finished items after the place ``after``, each as a line of JSON.

    No transaction is open between pages.
    """
    while True:
        with readers() as session:
            page = Batches(session).results(batch_id, after, _RESULTS_PER_QUERY, viewer)
            records = records_with_feedback(session, [submission for _, submission in page], viewer)
            parents = seen_ids(session, (item.parent for item, _ in page), viewer)
        for (item, _), record in zip(page, records, strict=True):
            assert item.place is not None
            after = item.place
            result = ResultRecord(
                cursor=item.place,
                line=item.line,
                label=item.label,
                metadata=item.user_metadata if record["source_shown"] else None,
                parent=item.parent if item.parent in parents else None,
                cancelled=item.cancelled,
                submission=record,
            )
            yield to_json(ResultRecord, result) + "\n"
        if len(page) < _RESULTS_PER_QUERY:
            return
