"""The effects on batches when submissions end.

Called in the transaction that ends the submissions. An item gets its place in its batch's order of completion under the
lock of the batch's row. Places therefore appear in the order in which they are committed, and a reader that has read
up to a place has missed nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from itertools import groupby, islice

from sqlalchemy import exists, select, update
from sqlalchemy.orm import Session

from storage.models import Batch, BatchItem, Webhook

__all__ = ["completed", "finish_if_over", "reopened", "take_places"]

_IDS_PER_QUERY = 500


def completed(session: Session, submission_ids: Collection[str], now: datetime) -> None:
    """End the items that wait for the submissions that have just ended, and their batches where all items are over."""
    waiting: list[tuple[str, int]] = []
    for ids in _chunks(submission_ids):
        items = select(BatchItem.batch_id, BatchItem.line).where(
            BatchItem.submission_id.in_(ids), BatchItem.place.is_(None)
        )
        waiting.extend((batch_id, line) for batch_id, line in session.execute(items))
    # In the order of their ids, in which all callers lock batches.
    for batch_id, items_of_batch in groupby(sorted(waiting), key=lambda item: item[0]):
        _place(session, batch_id, [line for _, line in items_of_batch], now)
        finish_if_over(session, batch_id, now)


def take_places(session: Session, batch_id: str, count: int) -> int:
    """Reserve ``count`` places of a batch, whose row is locked until the transaction ends; return the first."""
    more = update(Batch).where(Batch.id == batch_id).values(last_place=Batch.last_place + count)
    last: int | None = session.scalar(more.returning(Batch.last_place))
    assert last is not None
    return last - count + 1


def finish_if_over(session: Session, batch_id: str, now: datetime) -> bool:
    """End the batch if it was received in full and every item has its place. Returns whether it ended.

    Its webhook, where there is one, is due from then on.
    """
    waits = exists().where(BatchItem.batch_id == batch_id, BatchItem.place.is_(None))
    finished = session.scalar(
        update(Batch)
        .where(Batch.id == batch_id, Batch.received_at.is_not(None), Batch.finished_at.is_(None), ~waits)
        .values(finished_at=now)
        .returning(Batch.id)
        .execution_options(synchronize_session=False)
    )
    if finished is None:
        return False
    untold = update(Webhook).where(Webhook.batch_id == batch_id, Webhook.delivered_at.is_(None))
    session.execute(untold.values(due_at=now, attempts=0))
    return True


def reopened(session: Session, submission_id: str) -> None:
    """Make the items that ended with the submission's failure wait again, because the submission is retried."""
    same = (BatchItem.submission_id == submission_id, BatchItem.cancelled.is_(False))
    batches = session.scalars(select(BatchItem.batch_id).where(*same).distinct().order_by(BatchItem.batch_id)).all()
    session.execute(update(BatchItem).where(*same).values(place=None, finished_at=None))
    session.execute(update(Batch).where(Batch.id.in_(batches)).values(finished_at=None))


def _place(session: Session, batch_id: str, lines: list[int], now: datetime) -> None:
    first = take_places(session, batch_id, len(lines))
    placed = [
        {"batch_id": batch_id, "line": line, "place": first + number, "finished_at": now}
        for number, line in enumerate(lines)
    ]
    session.execute(update(BatchItem), placed)


def _chunks(ids: Collection[str]) -> Iterable[list[str]]:
    remaining = iter(ids)
    while chunk := list(islice(remaining, _IDS_PER_QUERY)):
        yield chunk
