"""Conversion of problems to records."""

from __future__ import annotations

from typing import cast

from sqlalchemy.orm import Session

from api.records.encoding import to_text
from api.services.catalogue import Catalogue
from evaluator.problems.problem import Problem
from kerneljudge.records import ProblemRecord, ProblemSummary
from storage.access.visibility import Viewer
from storage.problems import problem_versions

__all__ = ["problem_record", "problem_summary"]


def problem_summary(problem: Problem, known: Catalogue, viewer: Viewer) -> ProblemSummary:
    """Return the record of ``problem`` without its source. Its owner is named to those who may change it."""
    created = known.created.get(problem.id)
    owner = created.owner if created is not None and viewer.owns(created) else None
    visibility = "public" if created is None else created.visibility
    return cast(ProblemSummary, {**problem.to_record(), "visibility": visibility, "owner": owner})


def problem_record(session: Session, problem: Problem, known: Catalogue, viewer: Viewer) -> ProblemRecord:
    """Return the record of ``problem``, which may be an earlier version, with its source."""
    summary = problem_summary(problem, known, viewer)
    versions = problem_versions(session, problem.id)
    created = known.created.get(problem.id)
    withdrawn_at = None if created is None else to_text(created.withdrawn_at)
    further = {"reference": problem.source, "versions": versions, "withdrawn_at": withdrawn_at}
    return cast(ProblemRecord, {**summary, **further})
