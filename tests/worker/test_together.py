"""Several submissions that one task evaluates together, within one process; on each kind of database."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, select, update
from sqlalchemy.orm import Session, sessionmaker

from evaluator import logs
from evaluator.devices.health import DeviceHealth, Health
from evaluator.engine import GroupResults
from evaluator.evaluation import Status
from evaluator.problems.problem import Problem
from runtime.settings import Settings
from storage.batches.batches import Batches, BatchLine
from storage.clock import database_now
from storage.database import session_factory
from storage.grading.claims import Claims
from storage.ids import new_id
from storage.models import Submission, WorkerState
from storage.queue.celery_app import make_celery, notify_after_commit
from storage.submissions.deduplication import Ranks
from storage.submissions.new_submission import NewSubmission
from storage.submissions.submissions import Submissions
from tests.processes import wait_until
from tests.storage.conftest import candidate
from tests.worker.conftest import Installation
from tests.worker.engines import ScriptedEngine
from tests.worker.tasks import WorkerTasks
from tests.worker.test_grading import grader
from worker.claim_handler import ClaimHandler
from worker.device_gate import DeviceGate


@pytest.fixture
def installation(
    settings: Settings, sessions: sessionmaker[Session], engine: Engine, problems: dict[str, Problem]
) -> Installation:
    settings.data_dir.mkdir(exist_ok=True)
    # What is evaluated again would be in the journal as well.
    settings = settings.model_copy(update={"verify_records": "off", "max_attempts": 2})
    notify_after_commit(sessions, make_celery(settings, patient=False))
    return Installation(settings, sessions, session_factory(engine, read_only=True), problems["relu"])


def hand_in(installation: Installation, *actions: str) -> list[str]:
    """A batch of candidates with which evaluating goes so, built; returns the submissions' ids, in order."""
    # Unlike those of every other batch, or they would be shared.
    sources = [f"# {new_id('source')}\n# evaluate: {action}" for action in actions]
    lines = [
        BatchLine(number, NewSubmission(installation.problem, candidate(source), "cpu", "smoke"))
        for number, source in enumerate(sources, 1)
    ]
    digests = [line.new.candidate.digest for line in lines]
    with installation.sessions.begin() as session:
        batches = Batches(session)
        batches.add(batches.create(name="a").id, lines, [], Ranks())
        ids = {row.source_digest: row.id for row in session.scalars(select(Submission))}
    builder = grader(installation, device=None)
    for _ in lines:
        builder.build()
    return [ids[digest] for digest in digests]


@contextmanager
def evaluating(worker: WorkerTasks) -> Iterator[threading.Thread]:
    """The worker evaluates meanwhile, and is through with it at the end."""
    task = threading.Thread(target=worker.evaluate)
    task.start()
    yield task
    task.join(timeout=20)
    assert not task.is_alive()


def statuses(installation: Installation, ids: Sequence[str]) -> list[str]:
    return [installation.read(each).status for each in ids]


def last_outcomes(installation: Installation, ids: Sequence[str]) -> list[str]:
    return [installation.outcomes(each)[-1][1] for each in ids]


def groups(installation: Installation) -> list[str]:
    return [line for line in installation.journal if line.startswith("together")]


def test_several_are_evaluated_together_and_each_is_recorded(installation: Installation) -> None:
    ids = hand_in(installation, "pass", "overrun", "pass", "pass")
    worker = grader(installation, together=3)
    worker.evaluate()
    assert statuses(installation, ids) == [Status.DONE] * 3 + [Status.QUEUED]
    assert groups(installation) == ["together 3"]
    assert [installation.read(each).message for each in ids[:3]] == ["it passed", "CUDA error", "it passed"]
    for each in ids[:3]:
        assert installation.outcomes(each) == [("build", "built"), ("evaluate", "done")]
        assert installation.read(each).progress_stage is None
    assert worker.current_submission is None
    worker.evaluate()
    assert installation.read(ids[3]).status == Status.DONE
    assert groups(installation) == ["together 3"]


def test_while_most_do_not_pass_each_is_evaluated_alone(installation: Installation) -> None:
    ids = hand_in(installation, "overrun", "overrun", "pass", "pass", *["pass"] * 6)
    worker = grader(installation, together=2)
    for _ in range(2):
        worker.evaluate()
    assert groups(installation) == ["together 2"] * 2
    assert statuses(installation, ids[:4]) == [Status.DONE] * 4
    worker.evaluate()
    assert groups(installation) == ["together 2"] * 2, "two of four have passed, and then three of five"
    worker.evaluate()
    assert groups(installation) == ["together 2"] * 3
    assert statuses(installation, ids) == [Status.DONE] * 7 + [Status.QUEUED] * 3


def test_results_come_one_by_one_and_a_cancelled_one_disturbs_no_other(installation: Installation) -> None:
    first, second, third = hand_in(installation, "pass", "sleep 60", "sleep 1")
    worker = grader(installation, together=3)
    with evaluating(worker):
        installation.wait(first, Status.DONE)
        assert statuses(installation, [second, third]) == [Status.EVALUATING] * 2
        wait_until(lambda: worker.current_submission in (second, third), "the first one being over")
        wait_until(lambda: installation.read(second).progress_message == "asleep for 60 s", "progress of the second")
        assert installation.read(third).progress_message is None
        with installation.sessions.begin() as session:
            Submissions(session).cancel(second)
        wait_until(lambda: installation.read(third).progress_message == "asleep for 1 s", "progress of the third")
    assert statuses(installation, [first, second, third]) == [Status.DONE, Status.CANCELLED, Status.DONE]
    assert last_outcomes(installation, [first, second, third]) == ["done", "cancelled", "done"]
    assert groups(installation) == ["together 3"]
    assert "evaluate stopped" in installation.journal


def test_one_that_waits_for_its_turn_may_be_cancelled_as_well(installation: Installation) -> None:
    first, second, third = hand_in(installation, "sleep 2", "pass", "pass")
    with evaluating(grader(installation, together=3)):
        installation.wait(second, Status.EVALUATING)
        with installation.sessions.begin() as session:
            Submissions(session).cancel(second)
    assert statuses(installation, [first, second, third]) == [Status.DONE, Status.CANCELLED, Status.DONE]
    assert installation.journal.count("evaluate done") == 2


def test_one_that_is_taken_away_disturbs_no_other(installation: Installation) -> None:
    first, second, third = hand_in(installation, "pass", "sleep 60", "pass")
    with evaluating(grader(installation, together=3)):
        installation.wait(first, Status.DONE)
        with installation.sessions.begin() as session:
            past = database_now(session) - timedelta(seconds=1)
            session.execute(update(Submission).where(Submission.id == second).values(lease_until=past))
            assert Claims(session).release_expired(3) == 1
    assert statuses(installation, [first, second, third]) == [Status.DONE, Status.QUEUED, Status.DONE]
    assert last_outcomes(installation, [first, second, third]) == ["done", "lost", "done"]


def test_leases_are_renewed_of_those_that_wait_for_their_turn_as_well(installation: Installation) -> None:
    # A busy machine may be away for a second.
    installation.settings = installation.settings.model_copy(update={"lease_s": 2.4})
    ids = hand_in(installation, "sleep 3", "pass", "pass")
    with evaluating(grader(installation, together=3)) as task:
        while task.is_alive():
            with installation.sessions.begin() as session:
                assert Claims(session).release_expired(3) == 0
            time.sleep(0.1)
    assert last_outcomes(installation, ids) == ["done"] * 3


def test_a_stopped_worker_gives_all_back_and_they_are_evaluated_later(installation: Installation) -> None:
    ids = hand_in(installation, "pass", "sleep 2", "pass", "pass")
    stopping = threading.Event()
    with evaluating(grader(installation, stopping=stopping, together=4)):
        installation.wait(ids[0], Status.DONE)
        stopping.set()
    assert statuses(installation, ids) == [Status.DONE] + [Status.QUEUED] * 3
    assert last_outcomes(installation, ids) == ["done"] + ["released"] * 3
    assert [installation.read(each).faults for each in ids] == [0] * 4
    with evaluating(grader(installation, together=4)):
        pass
    assert statuses(installation, ids) == [Status.DONE] * 4
    assert groups(installation) == ["together 4", "together 3"]
    assert [installation.read(each).attempts for each in ids] == [1] * 4


@pytest.mark.parametrize("action", ["fault", "device"])
def test_after_a_fault_of_the_machine_the_others_go_back_at_once(installation: Installation, action: str) -> None:
    ids = hand_in(installation, "pass", action, "pass", "pass")
    worker = grader(installation, together=4)
    worker.evaluate()
    assert statuses(installation, ids) == [Status.DONE] + [Status.QUEUED] * 3
    assert last_outcomes(installation, ids) == ["done", "fault", "released", "released"]
    assert [installation.read(each).faults for each in ids] == [0, 1, 0, 0]
    assert [installation.read(each).not_before is None for each in ids] == [True, False, True, True]
    with installation.readers() as session:
        (*_, attempt) = Submissions(session).attempts_of(ids[2])
    assert attempt.detail == "what it was evaluated together with has ended before it"
    # Evaluated on new processes, and what has had a fault alone.
    assert installation.journal.count("close") == 1
    worker.evaluate()
    installation.end_backoff()
    worker.evaluate()
    assert statuses(installation, ids) == [Status.DONE, Status.FAILED, Status.DONE, Status.DONE]
    assert groups(installation) == ["together 4", "together 2"]


def test_what_another_machine_may_have_or_does_not_fit_is_a_matter_of_one(installation: Installation) -> None:
    ids = hand_in(installation, "big", "toolchain", "pass")
    grader(installation, together=3).evaluate()
    assert statuses(installation, ids) == [Status.FAILED, Status.QUEUED, Status.DONE]
    assert last_outcomes(installation, ids) == ["fault", "fault", "done"]
    assert "close" not in installation.journal


def test_a_bug_of_ours_is_a_fault_of_those_that_are_left(installation: Installation) -> None:
    ids = hand_in(installation, "pass", "bug", "pass")
    grader(installation, together=3).evaluate()
    assert last_outcomes(installation, ids) == ["done", "fault", "fault"]
    assert "internal error: KeyError" in installation.read(ids[2]).message


def test_a_result_that_cannot_be_recorded_is_a_fault_of_its_own(installation: Installation) -> None:
    ids = hand_in(installation, "pass", "pass\n# unstorable", "pass")
    grader(installation, together=3).evaluate()
    assert last_outcomes(installation, ids) == ["done", "fault", "done"]
    assert "the result cannot be recorded" in installation.read(ids[1]).message


def test_single_submissions_are_evaluated_one_by_one(installation: Installation) -> None:
    ids = [installation.submit(f"# {number}") for number in range(3)]
    worker = grader(installation, together=3)
    for _ in ids:
        worker.build()
    for number, _ in enumerate(ids, 1):
        worker.evaluate()
        assert statuses(installation, ids).count(Status.DONE) == number
    assert groups(installation) == []


def test_what_gains_nothing_from_others_is_evaluated_alone(installation: Installation) -> None:
    ids = hand_in(installation, "pass", "pass")
    with installation.sessions.begin() as session:
        session.execute(update(Submission).values(baseline="compile"))
    worker = grader(installation, together=3)
    worker.evaluate()
    assert statuses(installation, ids) == [Status.DONE, Status.QUEUED]
    assert groups(installation) == []


def test_what_nobody_can_evaluate_keeps_nothing_from_its_turn(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than a busy machine may be away between the two.
    monkeypatch.setattr("storage.queue.backoff._BACKOFF", (timedelta(hours=1),))
    ids = hand_in(installation, "pass", "pass")
    with installation.sessions.begin() as session:
        session.execute(update(Submission).where(Submission.id == ids[0]).values(baseline="none"))
    worker = grader(installation, together=2)
    worker.evaluate()
    worker.evaluate()
    assert statuses(installation, ids) == [Status.QUEUED, Status.DONE]
    assert "internal error: ValueError" in installation.read(ids[0]).message


def test_no_run_is_longer_than_eight(installation: Installation) -> None:
    worker = grader(installation, together=100)
    hand_in(installation, *["pass"] * 3)
    worker.evaluate()
    ids = hand_in(installation, *["pass"] * 15)
    for _ in range(3):
        worker.evaluate()
    assert groups(installation) == ["together 3", "together 5", "together 8", "together 2"]
    assert statuses(installation, ids) == [Status.DONE] * 15


def test_each_is_logged_about_and_counted_for_itself(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = hand_in(installation, "sleep 0.2", "sleep 0.2", "sleep 0.2")
    told: list[tuple[str, str]] = []
    meanwhile: list[str] = []
    evaluate_group = ScriptedEngine.evaluate_group

    def listening(engine: ScriptedEngine, *args: Any) -> GroupResults:
        meanwhile.append(logs.current_fields()["submission"])
        return evaluate_group(engine, *args)

    monkeypatch.setattr(ScriptedEngine, "evaluate_group", listening)

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append((record.getMessage(), logs.current_fields()["submission"]))

    handler, log = Told(), logging.getLogger("worker")
    before, level = time.monotonic(), log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    worker = grader(installation, together=3)
    try:
        worker.evaluate()
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
    # What is told by the engine's processes may be about any of them.
    assert meanwhile == [" ".join(ids)]
    assert sorted(each for line, each in told if line == "verdict: passed") == sorted(ids)
    assert sorted(each for line, each in told if line.startswith("evaluate: attempt 1 of w")) == sorted(ids)
    assert 0.6 <= worker.busy_s <= time.monotonic() - before


class _Fit(DeviceHealth):
    """A device that nothing is wrong with."""

    def look(self, own: object = ()) -> Health:  # noqa: ARG002 - the interface
        return Health()


def test_the_device_is_told_of_a_fault_by_the_one_that_had_it(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = hand_in(installation, "pass", "fault", "pass")
    gate = DeviceGate(_Fit(), None, stopping=threading.Event())
    faults: list[str] = []
    monkeypatch.setattr(gate, "fault", lambda submission_id, _detail: faults.append(submission_id))
    worker = grader(installation, together=3, gate=gate)
    worker.evaluate()
    assert faults == [ids[1]]
    assert gate.condition.state is WorkerState.READY


def test_where_one_cannot_be_begun_all_are_given_back(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = hand_in(installation, "pass", "pass", "pass")
    usual = ClaimHandler.begin

    def begin(handler: ClaimHandler, what: str, queue: Any, claim: Any, preempted: Any = None) -> Any:
        if claim.submission_id == ids[1]:
            raise RuntimeError("can't start new thread")
        return usual(handler, what, queue, claim, preempted)

    monkeypatch.setattr(ClaimHandler, "begin", begin)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        grader(installation, together=3).evaluate()
    assert statuses(installation, ids) == [Status.QUEUED] * 3
    assert last_outcomes(installation, ids) == ["released"] * 3
    assert groups(installation) == []


def test_where_no_thread_can_record_the_task_does(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = hand_in(installation, "pass", "pass")

    def submit(*_given: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", submit)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        grader(installation, together=2).evaluate()
    assert statuses(installation, ids) == [Status.QUEUED] * 2
    assert last_outcomes(installation, ids) == ["released"] * 2
