"""The part of leaderboards that a viewer sees who sees own submissions alone."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, func, select, true
from sqlalchemy.orm import Session

from storage.access.visibility import Viewer
from storage.models import StoredLeaderboardEntry, StoredRanking, Submission

__all__ = ["entries_seen", "seen_entry"]


def seen_entry(viewer: Viewer, submission_id: Any) -> ColumnElement[bool]:
    """Return the SQL condition that ``viewer`` sees the ranked submission with the id in this column.

    Private submissions are ranked at private problems of their owners alone. All who may see such a problem see these
    as well, so other viewers see every entry.
    """
    if not viewer.own_only:
        return true()
    seen: ColumnElement[bool] = submission_id.in_(select(Submission.id).where(viewer.visible(Submission)))
    return seen


def entries_seen(session: Session, ranking: StoredRanking, viewer: Viewer) -> int:
    """Return the number of entries of ``ranking`` that ``viewer`` sees."""
    if not viewer.own_only:
        return ranking.entries
    seen = seen_entry(viewer, StoredLeaderboardEntry.submission_id)
    query = select(func.count()).where(StoredLeaderboardEntry.ranking_id == ranking.id, seen)
    return int(session.scalar(query) or 0)
