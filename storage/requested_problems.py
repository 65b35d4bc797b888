"""Problems that came with requests, beside those of folders (``storage.problems``)."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy.orm import Session

from evaluator.problems.problem import Problem
from storage.clock import database_now
from storage.models import StoredProblem
from storage.upsert import insert_into

__all__ = ["store_requested"]


def store_requested(session: Session, problems: Iterable[Problem]) -> None:
    """Store problems that came with requests, unless they are there. They are on no list and have no leaderboard."""
    distinct = {(problem.id, problem.version): problem for problem in problems}
    if not distinct:
        return
    now = database_now(session)
    rows = [
        {
            "id": problem.id,
            "version": version,
            "definition": problem.to_dict(),
            "current": False,
            "created_at": now,
            "vettings": [],
        }
        # In one order everywhere: two batches with the same references must not deadlock.
        for (_, version), problem in sorted(distinct.items(), key=lambda each: each[0])
    ]
    session.execute(insert_into(session, StoredProblem).on_conflict_do_nothing(), rows)
