"""Lists of submissions, and the positions of those that wait.

Nothing here commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from evaluator.evaluation import Status
from storage.access.visibility import ADMIN_VIEWER, Viewer
from storage.models import StoredEvaluation, Submission
from storage.queue.fair_order import ahead_of
from storage.submissions.parents import derived_from

__all__ = ["Filters", "Page", "page_of_submissions", "queue_position"]


@dataclass(frozen=True)
class Filters:
    """Conditions on submissions; ``None`` is no condition."""

    problem: str | None = None
    device: str | None = None
    status: str | None = None
    verdict: str | None = None
    author: str | None = None
    label: str | None = None
    parent: str | None = None
    tier: str | None = None


@dataclass(frozen=True)
class Page:
    """Submissions, newest first; ``next_cursor`` is ``None`` on the last page."""

    items: Sequence[Submission]
    next_cursor: str | None


def page_of_submissions(
    session: Session,
    filters: Filters | None = None,
    cursor: str | None = None,
    limit: int = 50,
    *,
    viewer: Viewer = ADMIN_VIEWER,
) -> Page:
    """Return up to ``limit`` submissions that ``viewer`` sees, newest first, after the submission ``cursor``."""
    # Not "is null": SQLite would use its index, which matches nearly all rows, and sort them.
    handed_in = select(Submission.id).where(viewer.visible(Submission), func.coalesce(Submission.verifies, "") == "")
    query, identity = handed_in, Submission.id
    for name, wanted in vars(filters or Filters()).items():
        if wanted is None:
            continue
        if name == "verdict":
            # Ordered by the evaluations' index, so that a rare verdict is not searched among all submissions.
            identity = StoredEvaluation.submission_id
            query = query.join(StoredEvaluation, identity == Submission.id)
            query = query.where(StoredEvaluation.verdict == wanted)
        elif name == "parent":
            query = query.where(derived_from(wanted, viewer))
        else:
            query = query.where(getattr(Submission, name) == wanted)
    if cursor is not None:
        query = query.where(identity < cursor)
    # First the ids, then the rows: rows that are sorted and skipped must not be read with their evaluations.
    found = session.scalars(query.order_by(identity.desc()).limit(limit + 1)).all()
    whole = select(Submission).where(Submission.id.in_(found)).order_by(Submission.id.desc())
    rows = session.scalars(whole).all() if found else []
    return Page(items=rows[:limit], next_cursor=rows[limit - 1].id if len(rows) > limit else None)


def queue_position(session: Session, submission: Submission) -> int | None:
    """Return the submission's position in its queue, counted from 1; ``None`` if it does not wait."""
    if submission.status != Status.QUEUED:
        return None
    ahead = (
        select(func.count())
        .select_from(Submission)
        .where(
            Submission.status == Status.QUEUED,
            Submission.stage == submission.stage,
            ahead_of(submission),
        )
    )
    if submission.stage == "evaluate":
        ahead = ahead.where(Submission.device == submission.device)
    return 1 + (session.scalar(ahead) or 0)
