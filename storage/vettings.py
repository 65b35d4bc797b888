"""Vettings of problems and their effect on evaluations: without a vetting, evaluations show no figures.

A vetting that comes with its problem (``vetting.json``) counts on every kind of device. One that a worker has made
counts on that worker's kind. Where there is no vetting, or one that refuses, evaluations withhold their figures, and
``withheld`` gives the reason. After a new vetting, ``settle_figures`` shows or withholds the figures of stored
evaluations, so users need not submit again. Nothing here commits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Select, func, select, update
from sqlalchemy.orm import Session

from evaluator.evaluation import Evaluation, Verdict
from evaluator.problems.requested import REQUESTED
from evaluator.problems.vetting import Vetting, refusal_of
from storage.clock import database_now
from storage.created_problems import has_leaderboards
from storage.grading.withdrawal import rebuild_entries
from storage.leaderboards.emptying import empty_rankings
from storage.models import (
    StoredEvaluation,
    StoredProblem,
    StoredRanking,
    StoredVetting,
    Submission,
)
from storage.submissions.evaluations import figure_columns
from storage.upsert import insert_into

__all__ = [
    "found_vettings",
    "is_vetted",
    "record_vetting",
    "settle_figures",
    "vettings_mark",
    "vettings_of",
    "why_withheld",
]


_LISTED: Final = ~StoredVetting.problem.startswith(REQUESTED, autoescape=True)
"""Vettings of problems that did not come with requests, of which there may be thousands."""


def is_vetted(session: Session, problem: str, version: str, precision: str, device: str) -> bool:
    """Whether this version of the problem was vetted at ``precision``, for this kind of ``device``."""
    return bool(_vettings(session, problem, version, precision, device))


def why_withheld(session: Session, problem: str, version: str, precision: str, device: str) -> str | None:
    """Return why evaluations of this version show no figures at ``precision`` on this kind of ``device``.

    ``None`` where they show them.
    """
    return refusal_of(_vettings(session, problem, version, precision, device))


def record_vetting(session: Session, vetting: Vetting) -> None:
    """Store a worker's vetting of a problem, and show or withhold the figures of its evaluations."""
    key = {"problem": vetting.problem, "problem_version": vetting.version}
    key |= {"precision": vetting.precision, "device": vetting.device}
    found = {"record": vetting.to_dict(), "found_at": database_now(session)}
    first = insert_into(session, StoredVetting).values(**key, **found)
    session.execute(first.on_conflict_do_update(index_elements=list(key), set_=found))
    settle_figures(session, vetting.problem, vetting.version)


def found_vettings(session: Session) -> Mapping[tuple[str, str], Sequence[Vetting]]:
    """Return the vettings that workers have made of listed problems, by a problem's id and version."""
    found: dict[tuple[str, str], list[Vetting]] = {}
    order = (StoredVetting.problem, StoredVetting.precision, StoredVetting.device)
    for row in session.scalars(select(StoredVetting).where(_LISTED).order_by(*order)):
        found.setdefault((row.problem, row.problem_version), []).append(Vetting.from_dict(row.record))
    return found


def vettings_of(session: Session, problem: str, version: str) -> Sequence[Vetting]:
    """Return all vettings of one version of a problem, whether they came with it or workers made them."""
    came = session.scalar(select(StoredProblem.vettings).filter_by(id=problem, version=version)) or []
    made = session.scalars(select(StoredVetting.record).filter_by(problem=problem, problem_version=version)).all()
    return [Vetting.from_dict(record) for record in (*came, *made)]


def vettings_mark(session: Session) -> Any:
    """Return a value that changes as soon as workers have recorded another vetting of a listed problem."""
    return tuple(session.execute(select(func.count(), func.max(StoredVetting.found_at)).where(_LISTED)).one())


def settle_figures(session: Session, problem: str, version: str) -> None:
    """Make evaluations and leaderboards of this version show figures exactly where vetting allows it."""
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
    """Empty all rankings under ``key``, because all their entries are of this problem and precision."""
    changed = False
    shown = _evaluations(key).where(StoredEvaluation.withheld.is_distinct_from(why))
    for stored in session.scalars(shown.execution_options(populate_existing=True)):
        _set_figures(stored, why)
        changed = True
    if not changed:
        return
    session.flush()
    empty_rankings(session, **key)
    emptied = update(StoredRanking).filter_by(**key).values(entries=0, best=0.0)
    session.execute(emptied.execution_options(synchronize_session=False))
    session.expire_all()


def _show(session: Session, key: Mapping[str, str]) -> None:
    hidden = _evaluations(key).where(StoredEvaluation.withheld.is_not(None)).order_by(StoredEvaluation.submission_id)
    rows = session.scalars(hidden.execution_options(populate_existing=True)).all()
    for stored in rows:
        _set_figures(stored, None)
    session.flush()
    ranked = []
    for stored in rows:
        submission = session.get_one(Submission, stored.submission_id, populate_existing=True)
        if submission.verifies is None and has_leaderboards(session, submission):
            ranked.append(submission)
    rebuild_entries(session, *ranked)


def _set_figures(stored: StoredEvaluation, withheld: str | None) -> None:
    raw = Evaluation.from_dict({**stored.record, "samples": {}, "log": ""})
    for name, value in figure_columns(raw, withheld).items():
        setattr(stored, name, value)
