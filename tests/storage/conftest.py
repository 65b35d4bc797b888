"""What storage tests submit."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.orm import Session, sessionmaker

from evaluator.candidates.candidate import Candidate
from evaluator.evaluation import Evaluation, Gradients, Interval, Latency, SampleSeries, Verdict
from evaluator.problems.problem import Problem
from storage.grading.claims import Claims
from storage.submissions.new_submission import NewSubmission
from storage.submissions.submissions import Submissions

LEASE_S = 30.0


def candidate(source: str = "class ModelNew: ...\n") -> Candidate:
    return Candidate(source=source, digest=hashlib.sha256(source.encode()).hexdigest(), origin="code")


def around(speedup: float | None) -> Interval | None:
    """An interval of 5 % on either side."""
    return None if speedup is None else Interval(0.95 * speedup, 1.05 * speedup)


def passed(problem: Problem, **changes: Any) -> Evaluation:
    """A passed evaluation on the CPU, twice as fast as the baseline."""
    series = SampleSeries((1.0,), (2.0,), (1.1,), (2.1,), ("ab",))
    values: dict[str, Any] = {
        "verdict": Verdict.PASSED,
        "message": "outputs and gradients match",
        "problem": problem.id,
        "problem_version": problem.version,
        "device": "cpu",
        "size": "smoke",
        "precision": "float32",
        "gradients": Gradients.MATCH,
        "speedup": 2.0,
        "speedup_interval": around(changes.get("speedup", 2.0)),
        "latency_ms": Latency(1.0, 2.0, 1.1, 2.1),
        "samples": {"inference": series},
        "log": "it ran\n",
        "environment": {"device_name": "a processor"},
    }
    return Evaluation(**{**values, **changes})


Submit = Callable[..., str]
Finish = Callable[..., str]


@pytest.fixture
def submit(sessions: sessionmaker[Session], problems: dict[str, Problem]) -> Submit:
    """Submits a candidate for ``relu`` on the CPU, with changes; returns the submission's id."""

    def submit(source: str = "class ModelNew: ...\n", **changes: Any) -> str:
        values = {"problem": problems["relu"], "candidate": candidate(source), "device": "cpu", "size": "smoke"}
        with sessions.begin() as session:
            return Submissions(session).submit(NewSubmission(**{**values, **changes})).id

    return submit


@pytest.fixture
def finish(sessions: sessionmaker[Session], problems: dict[str, Problem], submit: Submit) -> Finish:
    """Submits and takes all the way to an evaluation (a dict of changes to ``passed``)."""

    def finish(
        source: str = "class ModelNew: ...\n", *, evaluation: dict[str, Any] | None = None, **changes: Any
    ) -> str:
        problem: Problem = changes.get("problem", problems["relu"])
        submission_id = submit(source, **changes)
        with sessions.begin() as session:
            claims = Claims(session)
            build = claims.claim(submission_id, "build", "builder", LEASE_S)
            assert build is not None
            assert claims.record_built(build, seconds=0.1, log="")
            claim = claims.claim(submission_id, "evaluate", "worker", LEASE_S)
            assert claim is not None
            assert claims.record_evaluation(claim, passed(problem, **(evaluation or {})))
        return submission_id

    return finish
