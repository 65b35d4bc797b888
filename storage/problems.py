"""Problems in the database: every version that was ever judged against stays readable."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from evaluator.problems.created import is_created
from evaluator.problems.problem import Problem
from storage.clock import database_now
from storage.models import StoredProblem
from storage.upsert import insert_into
from storage.vettings import settle_figures

__all__ = ["current_problems", "problem_versions", "stored_problem", "sync_problems"]


def sync_problems(session: Session, problems: Mapping[str, Problem]) -> None:
    """Make ``problems`` the current ones, with their vettings. Several processes may call it at once."""
    now = database_now(session)
    columns = (StoredProblem.id, StoredProblem.version, StoredProblem.vettings)
    known = {(row.id, row.version): row.vettings for row in session.execute(select(*columns))}
    vetted_anew = []
    versions = {problem.id: problem.version for problem in problems.values()}
    for problem in sorted(problems.values(), key=lambda problem: problem.id):
        vettings = [vetting.to_dict() for vetting in problem.vettings if vetting.version == problem.version]
        if vettings != known.get((problem.id, problem.version), []):
            vetted_anew.append(problem)
        row = {
            "id": problem.id,
            "version": versions[problem.id],
            "definition": problem.to_dict(),
            "current": True,
            "created_at": now,
            "vettings": vettings,
        }
        statement = insert_into(session, StoredProblem).values(row)
        # The definition is written again, because a change of title, description or tags keeps the version.
        renewed = {"current": True, **{name: statement.excluded[name] for name in ("definition", "vettings")}}
        session.execute(statement.on_conflict_do_update(index_elements=["id", "version"], set_=renewed))
    for row_id, version in session.execute(
        select(StoredProblem.id, StoredProblem.version).where(StoredProblem.current)
    ).all():
        # Those that clients created are current until they say otherwise (see ``storage.created_problems``).
        if versions.get(row_id) != version and not is_created(row_id):
            key = (StoredProblem.id == row_id, StoredProblem.version == version)
            session.execute(update(StoredProblem).where(*key).values(current=False))
    for problem in vetted_anew:
        settle_figures(session, problem.id, problem.version)


def current_problems(session: Session) -> dict[str, Problem]:
    """Return the current version of every problem, by id, in the order of their ids."""
    rows = session.scalars(select(StoredProblem).where(StoredProblem.current).order_by(StoredProblem.id))
    return {row.id: Problem.from_dict(row.definition) for row in rows}


def problem_versions(session: Session, problem_id: str) -> list[str]:
    """Return the versions of a problem, the current one first, and then the newest."""
    order = (StoredProblem.current.desc(), StoredProblem.created_at.desc(), StoredProblem.version)
    return list(session.scalars(select(StoredProblem.version).where(StoredProblem.id == problem_id).order_by(*order)))


def stored_problem(session: Session, problem_id: str, version: str) -> Problem | None:
    """Return one version of a problem, current or not; ``None`` where it is not in the database."""
    row = session.get(StoredProblem, (problem_id, version))
    return None if row is None else Problem.from_dict(row.definition)
