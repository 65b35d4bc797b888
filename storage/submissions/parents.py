"""Parents: the earlier submissions that candidates were derived from, as far as a viewer may know of them."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import ColumnElement, and_, exists, select
from sqlalchemy.orm import Session, aliased

from storage.access.visibility import Viewer
from storage.models import Batch, BatchItem, Submission

__all__ = ["derived_from", "seen_ids"]


def seen_ids(session: Session, ids: Iterable[str | None], viewer: Viewer) -> frozenset[str]:
    """Return those of ``ids``, some hundreds at most, that are submissions which ``viewer`` sees."""
    asked = {each for each in ids if each is not None}
    if not asked:
        return frozenset()
    return frozenset(session.scalars(select(Submission.id).where(Submission.id.in_(asked), viewer.visible(Submission))))


def derived_from(parent: str, viewer: Viewer) -> ColumnElement[bool]:
    """Return the SQL condition that ``viewer`` may know a submission as derived from ``parent``.

    It holds for submissions with this parent, and for those of a batch's line with this parent. It holds for none where
    the viewer does not see the parent.
    """
    original = aliased(Submission)
    known = exists().where(original.id == parent, viewer.visible(original))
    by_itself = select(Submission.id).where(Submission.parent == parent)
    by_line = (
        select(BatchItem.submission_id)
        .join(Batch, Batch.id == BatchItem.batch_id)
        .where(BatchItem.parent == parent, viewer.visible(Batch))
    )
    # A union, because databases use no index for an "or" of two tables.
    return and_(Submission.id.in_(by_itself.union(by_line)), known)
