"""Submissions for comparison with another one: its author's previous submission, and the leader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from storage.access.visibility import ADMIN_VIEWER, Viewer
from storage.models import StoredLeaderboardEntry, StoredRanking, StoredSource, Submission

__all__ = ["RelatedSubmission", "previous_submission", "ranking_leader"]


@dataclass(frozen=True)
class RelatedSubmission:
    """Another submission and its source."""

    submission_id: str
    author: str | None
    label: str | None
    source: str


def previous_submission(
    session: Session, submission: Submission, viewer: Viewer = ADMIN_VIEWER
) -> RelatedSubmission | None:
    """Return the author's latest earlier submission for the same problem whose source ``viewer`` sees.

    ``None`` where there is none, or where the submission has no author.
    """
    if submission.author is None:
        return None
    query = _others(viewer).where(
        Submission.author == submission.author,
        Submission.problem == submission.problem,
        Submission.id < submission.id,
    )
    return _first(session, query.order_by(Submission.id.desc()))


def ranking_leader(session: Session, submission: Submission, viewer: Viewer = ADMIN_VIEWER) -> RelatedSubmission | None:
    """Return the leader at the same problem, on the same kind of device and under the same conditions.

    ``None`` if ``submission`` itself leads, or ``viewer`` does not see the leader's source.
    """
    query = (
        _others(viewer)
        .join(StoredLeaderboardEntry, StoredLeaderboardEntry.submission_id == Submission.id)
        .join(StoredRanking, StoredRanking.id == StoredLeaderboardEntry.ranking_id)
        .where(
            StoredRanking.problem == submission.problem,
            StoredRanking.problem_version == submission.problem_version,
            StoredRanking.device == submission.device,
            StoredRanking.size == submission.size,
            StoredRanking.precision == submission.precision,
            StoredRanking.baseline == submission.baseline,
            StoredRanking.track == "inference",
            # The leader's row alone, which is the first in the index.
            StoredLeaderboardEntry.certain_speedup == StoredRanking.best,
        )
        .order_by(StoredRanking.entries.desc(), StoredRanking.id, StoredLeaderboardEntry.submitted_at)
    )
    leader = _first(session, query)
    return None if leader is None or leader.submission_id == submission.id else leader


def _others(viewer: Viewer) -> Select[Any]:
    columns: list[Any] = [Submission.id, Submission.author, Submission.label, StoredSource.text]
    sources = select(*columns).join(StoredSource, StoredSource.digest == Submission.source_digest)
    return sources.where(viewer.source_visible(Submission))


def _first(session: Session, query: Select[Any]) -> RelatedSubmission | None:
    row = session.execute(query.limit(1)).first()
    return None if row is None else RelatedSubmission(*row)
