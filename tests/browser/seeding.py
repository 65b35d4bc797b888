"""Puts results into the database of a service that runs, in one transaction each: its workers never see them wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy.orm import Session, sessionmaker

from evaluator.candidates.candidate import parse_candidate
from evaluator.evaluation import Evaluation
from evaluator.problems.problem import Problem
from storage.batches.batches import Batches, BatchLine
from storage.grading.claims import Claims
from storage.submissions.deduplication import Ranks
from storage.submissions.new_submission import NewSubmission
from storage.submissions.submissions import Submissions

HOSTILE = """<script>alert(1)</script>"'><img src=x onerror=alert(1)>{{7*7}}"""
TURNED = "\u202eevil\u2066 name\u200f"
_LEASE_S = 60.0


class Seeding:
    """What would take minutes of grading, in a moment."""

    def __init__(self, sessions: sessionmaker[Session], problems: dict[str, Problem]) -> None:
        self._sessions = sessions
        self._problems = problems

    def submission(
        self, problem: str, source: str, evaluation: Evaluation, author: str, label: str, **changes: Any
    ) -> str:
        """A submission that ended with ``evaluation``; returns its id."""
        new = NewSubmission(
            problem=self._problems[problem],
            candidate=parse_candidate(code=source),
            device="cpu",
            size="smoke",
            author=author,
            label=label,
            **changes,
        )
        with self._sessions.begin() as session:
            submission_id = Submissions(session).submit(new).id
            claims = Claims(session)
            build = claims.claim(submission_id, "build", "builder", _LEASE_S)
            assert build is not None
            assert claims.record_built(build, seconds=0.25, log="compiled\n")
            claim = claims.claim(submission_id, "evaluate", "worker", _LEASE_S)
            assert claim is not None
            assert claims.record_evaluation(claim, evaluation)
        return submission_id

    def batch(self, sources: Sequence[str]) -> str:
        """A batch of sources that are no candidates, and so is over at once; returns its id."""
        lines = [
            BatchLine(
                number, NewSubmission(self._problems["relu"], parse_candidate(code=source), device="cpu", size="smoke")
            )
            for number, source in enumerate(sources, 1)
        ]
        with self._sessions.begin() as session:
            batches = Batches(session)
            batch_id = batches.create(name="a step of training").id
            batches.add(batch_id, lines, [], Ranks())
            batches.received(batch_id, "digest")
        return batch_id
