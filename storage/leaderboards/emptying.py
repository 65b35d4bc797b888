"""Taking all entries, records and bests out of rankings."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from storage.models import AuthorBest, RankingRecord, StoredLeaderboardEntry, StoredRanking

__all__ = ["empty_rankings"]


def empty_rankings(session: Session, **key: str) -> Sequence[int]:
    """Delete all entries of the rankings with these columns, and return their ids. The rankings are locked.

    Their counts and figures stay for the caller to change.
    """
    # Locked first and in one order, as everywhere: no entry is then added in between.
    locked = select(StoredRanking.id).filter_by(**key).order_by(StoredRanking.id).with_for_update()
    rankings = session.scalars(locked).all()
    for table in (StoredLeaderboardEntry, AuthorBest, RankingRecord):
        rows = delete(table).where(table.ranking_id.in_(select(StoredRanking.id).filter_by(**key)))
        session.execute(rows.execution_options(synchronize_session=False))
    return rankings
