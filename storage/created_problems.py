"""Problems that clients create through the API, beside those of folders (``storage.problems``).

Each has an owner and a visibility. A private one is seen by its owner and by administrators alone, and all submissions
to it are private. They are on its leaderboards all the same, because the same people see these. Every version stays
readable. Nothing here commits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, delete, exists, func, or_, select, update
from sqlalchemy.orm import Session

from evaluator.problems.created import is_created
from evaluator.problems.problem import Problem
from storage.access import audit
from storage.access.visibility import Viewer, Visibility
from storage.clock import database_now
from storage.leaderboards.emptying import empty_rankings
from storage.models import CreatedProblem, StoredProblem, StoredRanking, Submission
from storage.upsert import insert_into

__all__ = [
    "TooManyProblems",
    "create_problem",
    "created_mark",
    "created_problems",
    "created_revisions",
    "has_leaderboards",
    "hold_existing",
    "hold_visibility",
    "is_private",
    "locked_problem",
    "publish_problem",
    "ranked_among_its_like",
    "refuse_too_many",
    "restore_problem",
    "sees_problem",
    "update_problem",
    "withdraw_problem",
]


_AT_ONCE: Final = 500
_OWNER_LOCK: Final = 0x6B6A
"""The first half of the key of the advisory locks of owners."""


class TooManyProblems(RuntimeError):
    """A client has as many problems as it may have."""


def sees_problem(viewer: Viewer, known: CreatedProblem) -> bool:
    """Whether ``viewer`` may know of a created problem. Public ones are for everyone, as those of folders are."""
    return known.visibility == Visibility.PUBLIC or viewer.owns(known)


def create_problem(session: Session, problem: Problem, owner: str | None, visibility: Visibility) -> CreatedProblem:
    """Store a new problem of ``owner``."""
    _store_version(session, problem)
    created = CreatedProblem(
        id=problem.id,
        version=problem.version,
        owner=owner,
        visibility=str(visibility),
        created_at=database_now(session),
        revision=1,
        withdrawn_at=None,
    )
    session.add(created)
    session.flush()
    details = {"version": problem.version, "visibility": str(visibility)}
    audit.record(session, "problem.created", by=owner, subject=problem.id, **details)
    return created


def refuse_too_many(session: Session, owner: str | None, most: int) -> None:
    """Raise ``TooManyProblems`` where ``owner`` has more than ``most`` problems that were not withdrawn.

    The number is locked until the transaction ends. Locked after the new problem, and before its quota.
    """
    if session.get_bind().dialect.name == "postgresql":  # SQLite has one writer at a time
        session.execute(select(func.pg_advisory_xact_lock(_OWNER_LOCK, func.hashtext(owner or ""))))
    own = (CreatedProblem.owner.is_not_distinct_from(owner), CreatedProblem.withdrawn_at.is_(None))
    if (session.scalar(select(func.count()).select_from(CreatedProblem).where(*own)) or 0) > most:
        raise TooManyProblems(f"a client has at most {most:,} problems here, so withdraw one first")


def locked_problem(session: Session, problem_id: str, *, withdrawn: bool = False) -> CreatedProblem | None:
    """Return a created problem, locked until the transaction ends; ``None`` without one.

    It was not withdrawn, unless one that was ``withdrawn`` is asked for.
    """
    known = CreatedProblem.withdrawn_at.is_not(None) if withdrawn else CreatedProblem.withdrawn_at.is_(None)
    query = select(CreatedProblem).where(CreatedProblem.id == problem_id, known).with_for_update()
    return session.scalars(query.execution_options(populate_existing=True)).one_or_none()


def update_problem(session: Session, known: CreatedProblem, problem: Problem, by: str | None) -> None:
    """Make ``problem`` the current version of ``known``. Earlier versions stay, with their leaderboards."""
    assert known.id == problem.id
    _retire(session, known.id)
    _store_version(session, problem)
    before, known.version = known.version, problem.version
    known.revision += 1
    session.flush()
    audit.record(session, "problem.updated", by=by, subject=known.id, before=before, version=problem.version)


def publish_problem(session: Session, known: CreatedProblem, by: str | None) -> None:
    """Show the problem and all its versions to everyone. Submissions to it stay private, and leave its leaderboards.

    Their owners may publish each.
    """
    if known.visibility == Visibility.PUBLIC:
        return
    known.visibility = str(Visibility.PUBLIC)
    known.revision += 1
    session.flush()
    empty_rankings(session, problem=known.id)
    # Their figures and dates were measured with private submissions. Whatever is ranked from now on makes new ones.
    emptied = delete(StoredRanking).where(StoredRanking.problem == known.id)
    session.execute(emptied.execution_options(synchronize_session=False))
    audit.record(session, "problem.published", by=by, subject=known.id, version=known.version)


def withdraw_problem(session: Session, known: CreatedProblem, by: str | None) -> None:
    """Take the problem off every list. Its submissions stay, and those that wait are graded."""
    _retire(session, known.id)
    known.withdrawn_at = database_now(session)
    known.revision += 1
    session.flush()
    audit.record(session, "problem.withdrawn", by=by, subject=known.id, version=known.version)


def restore_problem(session: Session, known: CreatedProblem, by: str | None) -> None:
    """Undo the withdrawal of the problem, which is locked."""
    known.withdrawn_at = None
    known.revision += 1
    own = (StoredProblem.id == known.id, StoredProblem.version == known.version)
    session.execute(update(StoredProblem).where(*own).values(current=True))
    session.flush()
    audit.record(session, "problem.restored", by=by, subject=known.id, version=known.version)


def created_mark(session: Session) -> Any:
    """Return a value that changes as soon as a problem was created, updated, published or withdrawn."""
    # Not by the latest time: transactions may be committed in another order than they began.
    return session.scalar(select(func.coalesce(func.sum(CreatedProblem.revision), 0)))


def created_revisions(session: Session) -> Mapping[str, int]:
    """Return the revisions of all that were not withdrawn, by id and in the order of their ids."""
    query = select(CreatedProblem.id, CreatedProblem.revision).where(CreatedProblem.withdrawn_at.is_(None))
    return {row.id: row.revision for row in session.execute(query.order_by(CreatedProblem.id))}


def created_problems(
    session: Session, ids: Collection[str]
) -> Mapping[str, tuple[CreatedProblem, Problem, Sequence[Mapping[str, Any]]]]:
    """Return those of ``ids`` that were not withdrawn, in their current versions, with the vettings that came along."""
    found: dict[str, tuple[CreatedProblem, Problem, Sequence[Mapping[str, Any]]]] = {}
    names = sorted(ids)
    for first in range(0, len(names), _AT_ONCE):
        found |= _created(session, names[first : first + _AT_ONCE])
    return found


def _created(session: Session, ids: Collection[str]) -> dict[str, tuple[CreatedProblem, Problem, Any]]:
    query = (
        select(CreatedProblem, StoredProblem)
        .join(
            StoredProblem, (StoredProblem.id == CreatedProblem.id) & (StoredProblem.version == CreatedProblem.version)
        )
        .where(CreatedProblem.withdrawn_at.is_(None), CreatedProblem.id.in_(ids))
    )
    rows = session.execute(query.execution_options(populate_existing=True)).all()
    return {known.id: (known, Problem.from_dict(stored.definition), stored.vettings) for known, stored in rows}


def is_private(session: Session, problem_id: str) -> bool:
    """Whether this is a private problem of a client, withdrawn or not."""
    if not is_created(problem_id):
        return False
    visibility = session.scalar(select(CreatedProblem.visibility).where(CreatedProblem.id == problem_id))
    return visibility == Visibility.PRIVATE


def hold_visibility(session: Session, problem_id: str) -> CreatedProblem | None:
    """Return the created problem with this id, if there is one. It cannot be published until the transaction ends."""
    if not is_created(problem_id):
        return None
    query = select(CreatedProblem).where(CreatedProblem.id == problem_id).with_for_update(read=True)
    return session.scalars(query.execution_options(populate_existing=True)).one_or_none()


def hold_existing(session: Session, ids: Iterable[str]) -> set[str]:
    """Return those of ``ids`` that were not withdrawn. They cannot be until the transaction ends."""
    wanted = (CreatedProblem.id.in_(sorted(ids)), CreatedProblem.withdrawn_at.is_(None))
    query = select(CreatedProblem.id).where(*wanted).order_by(CreatedProblem.id)
    return set(session.scalars(query.with_for_update(read=True)))


def has_leaderboards(session: Session, submission: Submission) -> bool:
    """Whether a submission may be on leaderboards: a private one only among its owner's, for a private problem.

    The problem cannot be published until the transaction ends.
    """
    if submission.visibility != Visibility.PRIVATE:
        return True
    known = hold_visibility(session, submission.problem)
    return known is not None and known.visibility == Visibility.PRIVATE and known.owner == submission.owner


def ranked_among_its_like() -> ColumnElement[bool]:
    """Return the SQL condition of ``has_leaderboards`` on rows of submissions."""
    own = and_(
        CreatedProblem.id == Submission.problem,
        CreatedProblem.visibility == str(Visibility.PRIVATE),
        CreatedProblem.owner == Submission.owner,
    )
    return or_(Submission.visibility != str(Visibility.PRIVATE), exists().where(own).correlate(Submission))


def _retire(session: Session, problem_id: str) -> None:
    session.execute(update(StoredProblem).where(StoredProblem.id == problem_id).values(current=False))


def _store_version(session: Session, problem: Problem) -> None:
    """Store a version, which becomes the current one. An earlier version may come back."""
    row = {
        "id": problem.id,
        "version": problem.version,
        "definition": problem.to_dict(),
        "current": True,
        "created_at": database_now(session),
        "vettings": [],
    }
    new = insert_into(session, StoredProblem).values(row)
    # The definition is written again, because a change of title, description or tags keeps the version.
    renewed = {"current": True, "definition": new.excluded["definition"]}
    stored = new.on_conflict_do_update(index_elements=["id", "version"], set_=renewed)
    read_back = session.execute(stored.returning(StoredProblem.definition)).scalar_one()
    assert Problem.from_dict(read_back).version == problem.version, "the database gives back another problem"
