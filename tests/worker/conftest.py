"""An installation on SQLite to work in."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session, sessionmaker

from evaluator.candidates.candidate import Candidate
from evaluator.problems.problem import Problem
from kerneljudge.terms.findings import Tool
from runtime.settings import Settings
from storage.database import create_engine_for, session_factory
from storage.grading.diagnoses import Diagnoses
from storage.models import DiagnosisStatus, StoredDiagnosis, Submission
from storage.problems import sync_problems
from storage.queue.celery_app import make_celery, notify_after_commit
from storage.queue.workers import register
from storage.submissions.new_submission import NewSubmission
from storage.submissions.submissions import Submissions
from tests.processes import wait_until


@dataclass
class Installation:
    """A database with its settings, and what a user does with it."""

    settings: Settings
    sessions: sessionmaker[Session]
    readers: sessionmaker[Session]
    problem: Problem

    @property
    def journal(self) -> list[str]:
        path = self.settings.data_dir / "journal"
        return path.read_text().splitlines() if path.exists() else []

    def submit(self, source: str = "", **changes: Any) -> str:
        candidate = Candidate(source, hashlib.sha256(source.encode()).hexdigest(), "code")
        values = {"problem": self.problem, "candidate": candidate, "device": "cpu", "size": "smoke"}
        with self.sessions.begin() as session:
            return Submissions(session).submit(NewSubmission(**{**values, **changes})).id

    def read(self, submission_id: str) -> Submission:
        with self.readers() as session:
            submission = Submissions(session).get(submission_id)
        assert submission is not None
        return submission

    def outcomes(self, submission_id: str) -> list[tuple[str, str]]:
        with self.readers() as session:
            return [(each.stage, each.outcome) for each in Submissions(session).attempts_of(submission_id)]

    def serve(self, *queues: str) -> None:
        """Somebody is alive who takes from ``queues``."""
        with self.sessions.begin() as session:
            register(session, "somebody", kind="evaluate", queues=queues, device="cuda:0", capabilities={})

    def diagnosis(self, submission_id: str, tool: Tool = Tool.MEMCHECK) -> StoredDiagnosis:
        with self.readers() as session:
            diagnosis = Diagnoses(session).of_tool(submission_id, tool)
        assert diagnosis is not None
        return diagnosis

    def wait_for_diagnosis(self, submission_id: str, status: DiagnosisStatus, timeout_s: float = 30.0) -> None:
        """Wait until there is one with this status."""

        def there() -> bool:
            with self.readers() as session:
                diagnosis = Diagnoses(session).of_tool(submission_id, Tool.MEMCHECK)
            return diagnosis is not None and diagnosis.state is status

        wait_until(there, f"a diagnosis that is {status}", timeout_s=timeout_s)

    def end_backoff(self) -> None:
        """As if all had rested long enough after their faults."""
        with self.sessions.begin() as session:
            session.execute(update(Submission).values(not_before=None))

    def wait(self, submission_id: str, *statuses: str, timeout_s: float = 30.0) -> Submission:
        """Wait until the submission has one of ``statuses``."""
        deadline = time.monotonic() + timeout_s
        while (submission := self.read(submission_id)).status not in statuses:
            assert time.monotonic() < deadline, f"still {submission.status}: {submission.message}"
            time.sleep(0.05)
        return submission


@pytest.fixture
def install(
    problems: dict[str, Problem], tmp_path: Path, give_schema: Callable[[Settings], None]
) -> Iterator[Callable[..., Installation]]:
    """Makes an installation with some settings changed."""
    engines = []

    def install(**changes: Any) -> Installation:
        # What is evaluated again would be in the journal as well.
        settings = Settings(data_dir=tmp_path / "data", **{"verify_records": "off", **changes})
        give_schema(settings)
        engine = create_engine_for(settings)
        engines.append(engine)
        sessions = session_factory(engine)
        with sessions.begin() as session:
            sync_problems(session, problems)
        notify_after_commit(sessions, make_celery(settings, patient=False))
        return Installation(settings, sessions, session_factory(engine, read_only=True), problems["relu"])

    yield install
    for engine in engines:
        engine.dispose()
