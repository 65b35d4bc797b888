"""The lines of a batch as a table of requests and results, without whole records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Select, Text, and_, case, func, select, type_coerce
from sqlalchemy.orm import Session, aliased, sessionmaker

from evaluator.evaluation import Status
from storage.access.visibility import ADMIN_VIEWER, Viewer
from storage.models import BatchItem, StoredEvaluation, Submission

__all__ = ["BATCH_COLUMNS", "batch_rows", "batch_rows_after"]

BATCH_COLUMNS: Final[Mapping[str, type]] = {
    "line": int, "label": str, "submission": str, "problem": str, "author": str, "device": str, "size": str,
    "precision": str, "tier": str, "rules": str, "status": str, "verdict": str, "gradients": str, "speedup": float,
    "speedup_low": float, "speedup_status": str, "speedup_training": float, "speedup_training_status": str,
    "device_name": str, "shared": bool, "message": str, "parent": str, "metadata": str,
    "submitted": datetime, "finished": datetime,
}  # fmt: skip
"""The columns of a row and their types; a value that is not known is ``None``. ``metadata`` is JSON as text.

``rules`` are those of the submission, besides those of its problem, as ``--rules`` takes them.
"""

_AT_ONCE: Final = 1000


def batch_rows_after(
    session: Session,
    batch_id: str,
    line: int,
    limit: int,
    *,
    verdict: str | None = None,
    problem: str | None = None,
    label: str | None = None,
    viewer: Viewer = ADMIN_VIEWER,
) -> list[Mapping[str, Any]]:
    """Return up to ``limit`` rows after ``line`` that meet the conditions, by line, as ``viewer`` may see them."""
    query = _rows(viewer).where(BatchItem.batch_id == batch_id, BatchItem.line > line)
    if verdict is not None:
        query = query.where(StoredEvaluation.verdict == verdict, BatchItem.cancelled.is_(False))
    if problem is not None:
        query = query.where(Submission.problem == problem)
    if label is not None:
        query = query.where(BatchItem.label == label)
    found = session.execute(query.order_by(BatchItem.line).limit(limit)).mappings()
    return [dict(row) for row in found]


def batch_rows(
    sessions: sessionmaker[Session], batch_id: str, viewer: Viewer = ADMIN_VIEWER
) -> Iterator[Mapping[str, Any]]:
    """Yield every row, by line.

    Rows are read a thousand at a time, each time in a new session, so that a slow reader holds no connection.
    """
    last = 0
    while True:
        with sessions() as session:
            rows = batch_rows_after(session, batch_id, last, _AT_ONCE, viewer=viewer)
        if not rows:
            return
        yield from rows
        last = rows[-1]["line"]


def _rows(viewer: Viewer) -> Select[Any]:
    cancelled, parent = BatchItem.cancelled, aliased(Submission)
    return (
        select(
            BatchItem.line.label("line"),
            BatchItem.label.label("label"),
            BatchItem.submission_id.label("submission"),
            Submission.problem.label("problem"),
            Submission.author.label("author"),
            Submission.device.label("device"),
            Submission.size.label("size"),
            Submission.precision.label("precision"),
            Submission.tier.label("tier"),
            func.nullif(Submission.rules, "").label("rules"),
            case((cancelled, str(Status.CANCELLED)), else_=Submission.status).label("status"),
            case((cancelled, None), else_=StoredEvaluation.verdict).label("verdict"),
            StoredEvaluation.gradients.label("gradients"),
            StoredEvaluation.speedup.label("speedup"),
            StoredEvaluation.certain_speedup.label("speedup_low"),
            StoredEvaluation.speedup_status.label("speedup_status"),
            StoredEvaluation.speedup_training.label("speedup_training"),
            StoredEvaluation.speedup_training_status.label("speedup_training_status"),
            StoredEvaluation.device_name.label("device_name"),
            BatchItem.shared.label("shared"),
            # A compiler's message quotes the source.
            case((viewer.source_visible(Submission), Submission.message), else_="").label("message"),
            parent.id.label("parent"),
            case((viewer.source_visible(Submission), type_coerce(BatchItem.user_metadata, Text)), else_=None).label(
                "metadata"
            ),
            Submission.submitted_at.label("submitted"),
            BatchItem.finished_at.label("finished"),
        )
        .select_from(BatchItem)
        .join(Submission, Submission.id == BatchItem.submission_id)
        .join(StoredEvaluation, StoredEvaluation.submission_id == Submission.id, isouter=True)
        .join(parent, and_(parent.id == BatchItem.parent, viewer.visible(parent)), isouter=True)
        .where(viewer.visible(Submission))
    )
