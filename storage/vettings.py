"""What is known about problems from vetting, and what follows for evaluations: without it they show no figures.

A vetting comes with its problem (``vetting.json``) and then counts on every kind of device, or a worker has made it and
it counts on that worker's kind. Where there is none, or one that refuses, evaluations keep their figures to
themselves: ``withheld`` says why. Once a vetting is through, ``settle_figures`` shows or withholds what is there
already; nothing has to be handed in again. Nothing here commits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Select, delete, func, select, update
from sqlalchemy.orm import Session

from evaluator.evaluation import Evaluation, Verdict
from evaluator.problems.vetting import Vetting, refusal_of
from storage.access.visibility import Visibility
from storage.clock import database_now
from storage.grading.withdrawal import settle
from storage.models import (
    AuthorBest,
    RankingRecord,
    StoredEvaluation,
    StoredLeaderboardEntry,
    StoredProblem,
    StoredRanking,
    StoredVetting,
    Submission,
)
from storage.submissions.evaluations import figure_columns
from storage.upsert import insert_into

__all__ = ["found_vettings", "is_vetted", "record_vetting", "settle_figures", "vettings_mark", "why_withheld"]


def is_vetted(session: Session, problem: str, version: str, precision: str, device: str) -> bool:
    """Whether this version was vetted at ``precision``, for this kind of ``device``."""
    return bool(_vettings(session, problem, version, precision, device))


def why_withheld(session: Session, problem: str, version: str, precision: str, device: str) -> str | None:
    """Why evaluations on this version show no figures, at ``precision`` on this kind of ``device``."""
    return refusal_of(_vettings(session, problem, version, precision, device))


def record_vetting(session: Session, vetting: Vetting) -> None:
    """A worker has vetted a problem: show or withhold the figures of what was evaluated on it."""
    key = {"problem": vetting.problem, "problem_version": vetting.version}
    key |= {"precision": vetting.precision, "device": vetting.device}
    found = {"record": vetting.to_dict(), "found_at": database_now(session)}
    first = insert_into(session, StoredVetting).values(**key, **found)
    session.execute(first.on_conflict_do_update(index_elements=list(key), set_=found))
    settle_figures(session, vetting.problem, vetting.version)


def found_vettings(session: Session) -> Mapping[tuple[str, str], Sequence[Vetting]]:
    """What workers have found, by a problem's id and version."""
    found: dict[tuple[str, str], list[Vetting]] = {}
    order = (StoredVetting.problem, StoredVetting.precision, StoredVetting.device)
    for row in session.scalars(select(StoredVetting).order_by(*order)):
        found.setdefault((row.problem, row.problem_version), []).append(Vetting.from_dict(row.record))
    return found


def vettings_mark(session: Session) -> Any:
    """Something that is another as soon as workers have found more."""
    return tuple(session.execute(select(func.count(), func.max(StoredVetting.found_at))).one())


def settle_figures(session: Session, problem: str, version: str) -> None:
    """Have evaluations and leaderboards of this version show figures exactly where vetting lets them."""
    key = {"problem": problem, "problem_version": version}
    where = select(Submission.precision, Submission.device).filter_by(**key).distinct()
    for precision, device in session.execute(where.order_by(Submission.precision, Submission.device)).all():
        here = {**key, "precision": precision, "device": device}
        why = why_withheld(session, problem, version, precision, device)
        if why is None:
            _show(session, here)
        else:
            _withhold(session, here, why)


def _vettings(session: Session, problem: str, version: str, precision: str, device: str) -> list[Vetting]:
    key = {"problem": problem, "problem_version": version, "precision": precision, "device": device}
    made = session.scalars(select(StoredVetting.record).filter_by(**key)).all()
    came = session.scalar(select(StoredProblem.vettings).filter_by(id=problem, version=version)) or []
    found = [Vetting.from_dict(record) for record in (*came, *made)]
    return [vetting for vetting in found if vetting.precision == precision]


def _evaluations(key: Mapping[str, str]) -> Select[Any]:
    of_problem = select(Submission.id).filter_by(**key)
    return select(StoredEvaluation).where(
        StoredEvaluation.submission_id.in_(of_problem), StoredEvaluation.verdict == Verdict.PASSED
    )


def _withhold(session: Session, key: Mapping[str, str], why: str) -> None:
    """All rankings under ``key`` become empty, for everything in them is of this problem and precision."""
    changed = False
    shown = _evaluations(key).where(StoredEvaluation.withheld.is_distinct_from(why))
    for stored in session.scalars(shown.execution_options(populate_existing=True)):
        _set_figures(stored, why)
        changed = True
    if not changed:
        return
    session.flush()
    rankings = select(StoredRanking.id).filter_by(**key)
    for table in (StoredLeaderboardEntry, AuthorBest, RankingRecord):
        rows = delete(table).where(table.ranking_id.in_(rankings))
        session.execute(rows.execution_options(synchronize_session=False))
    emptied = update(StoredRanking).filter_by(**key).values(entries=0, best=0.0)
    session.execute(emptied.execution_options(synchronize_session=False))
    session.expire_all()


def _show(session: Session, key: Mapping[str, str]) -> None:
    hidden = _evaluations(key).where(StoredEvaluation.withheld.is_not(None)).order_by(StoredEvaluation.submission_id)
    rows = session.scalars(hidden.execution_options(populate_existing=True)).all()
    for stored in rows:
        _set_figures(stored, None)
    session.flush()
    for stored in rows:
        submission = session.get_one(Submission, stored.submission_id, populate_existing=True)
        if submission.verifies is None and submission.visibility != Visibility.PRIVATE:
            settle(session, submission)


def _set_figures(stored: StoredEvaluation, withheld: str | None) -> None:
    raw = Evaluation.from_dict({**stored.record, "samples": {}, "log": ""})
    for name, value in figure_columns(raw, withheld).items():
        setattr(stored, name, value)
