"""Submissions as their owners see them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine, event, func, select, update
from sqlalchemy.orm import Session, sessionmaker

from evaluator.candidates.candidate import InvalidSource
from evaluator.evaluation import Status, Verdict
from evaluator.problems.problem import Problem
from storage.grading.claims import Claims
from storage.models import StoredSource, Submission
from storage.queue import workers
from storage.queue.wakeups import WakeUp, take_requested_wakeups
from storage.submissions.listing import Filters, page_of_submissions, queue_position
from storage.submissions.new_submission import NewSubmission
from storage.submissions.submissions import (
    IdempotencyConflict,
    NotRetriable,
    Submissions,
    UnknownProblem,
    UnknownSubmission,
)
from tests.storage.conftest import LEASE_S, Finish, Submit, candidate


def test_a_submission_waits_for_its_build(sessions: sessionmaker[Session], submit: Submit) -> None:
    submission_id = submit(label="try 1", author="ada", require_gradients=True)
    with sessions() as session:
        submission = Submissions(session).get(submission_id)
        assert submission is not None
        assert submission.created
        assert (submission.status, submission.stage, submission.attempts) == (Status.QUEUED, "build", 0)
        assert (submission.label, submission.author, submission.require_gradients) == ("try 1", "ada", True)
        assert submission.submitted_at is not None
        assert submission.evaluation is None
        assert Submissions(session).source_of(submission_id) == "class ModelNew: ...\n"
        assert Submissions(session).log_of(submission_id) == ""


def test_a_submission_announces_the_build(sessions: sessionmaker[Session], problems: dict[str, Problem]) -> None:
    with sessions() as session:
        Submissions(session).submit(NewSubmission(problems["relu"], candidate(), "cpu", "smoke"))
        assert take_requested_wakeups(session) == [WakeUp("build")]


def test_an_invalid_source_is_recorded_at_once(sessions: sessionmaker[Session], submit: Submit) -> None:
    invalid = InvalidSource(message="no ModelNew", hints=("define ModelNew",), source="print('\x00\ud800')")
    submission_id = submit(candidate=invalid)
    with sessions() as session:
        assert take_requested_wakeups(session) == []
        submission = Submissions(session).get(submission_id)
        assert submission is not None
        assert submission.status == Status.DONE
        assert submission.evaluation is not None
        evaluation = submission.evaluation.to_evaluation(complete=True)
        assert (evaluation.verdict, evaluation.message) == (Verdict.INVALID_SOURCE, "no ModelNew")
        assert evaluation.hints == ("define ModelNew",)
        assert Submissions(session).source_of(submission_id) == "print('\ufffd?')"


def test_a_source_is_kept_once(sessions: sessionmaker[Session], submit: Submit) -> None:
    submit()
    submit()
    submit("class ModelNew:\n    pass\n")
    with sessions() as session:
        assert session.scalar(select(func.count()).select_from(StoredSource)) == 2


def test_an_unknown_version_of_a_problem_is_refused(submit: Submit, problems: dict[str, Problem]) -> None:
    with pytest.raises(UnknownProblem, match="relu"):
        submit(problem=replace(problems["relu"], source="# another\n" + problems["relu"].source))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"device": "tpu"}, "device"),
        ({"device": "cuda:0"}, "kind of device"),
        ({"size": "huge"}, "size"),
        ({"precision": "int8"}, "precision"),
        ({"baseline": "magic"}, "baseline"),
    ],
)
def test_an_option_that_does_not_exist_is_refused(
    problems: dict[str, Problem], changes: dict[str, Any], message: str
) -> None:
    values: dict[str, Any] = {"problem": problems["relu"], "candidate": candidate(), "device": "cpu", "size": "smoke"}
    with pytest.raises(ValueError, match=message):
        NewSubmission(**{**values, **changes})


def test_the_same_idempotency_key_gives_the_first_submission(sessions: sessionmaker[Session], submit: Submit) -> None:
    first = submit(idempotency_key="k")
    assert submit(idempotency_key="k") == first
    assert submit() != first
    with sessions() as session:
        assert session.scalar(select(func.count()).select_from(Submission)) == 2


def test_a_repeated_submission_says_that_it_was_there(
    sessions: sessionmaker[Session], submit: Submit, problems: dict[str, Problem]
) -> None:
    submit(idempotency_key="k")
    with sessions.begin() as session:
        new = NewSubmission(problems["relu"], candidate(), "cpu", "smoke", idempotency_key="k")
        assert not Submissions(session).submit(new).created
        assert take_requested_wakeups(session) == []


@pytest.mark.parametrize(
    "changes", [{"source": "class ModelNew: pass\n"}, {"label": "x"}, {"size": "full"}, {"require_gradients": False}]
)
def test_the_same_idempotency_key_for_another_content_is_a_conflict(submit: Submit, changes: dict[str, Any]) -> None:
    submit(idempotency_key="k")
    with pytest.raises(IdempotencyConflict):
        submit(idempotency_key="k", **changes)


def test_one_submission_comes_of_many_at_once_with_one_key(sessions: sessionmaker[Session], submit: Submit) -> None:
    ids: list[str] = []
    start = threading.Barrier(4)

    def post() -> None:
        start.wait()
        ids.append(submit(idempotency_key="k"))

    threads = [threading.Thread(target=post) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 4
    assert len(set(ids)) == 1


def test_pages_go_from_the_newest_to_the_oldest(sessions: sessionmaker[Session], submit: Submit) -> None:
    ids = [submit(author="ada") for _ in range(5)][::-1]
    submit(author="bob")
    with sessions() as session:
        seen: list[str] = []
        cursor = None
        sizes = []
        while True:
            page = page_of_submissions(session, Filters(author="ada"), cursor, limit=2)
            seen += [row.id for row in page.items]
            sizes.append(len(page.items))
            cursor = page.next_cursor
            if cursor is None:
                break
    assert seen == ids
    assert sizes == [2, 2, 1]


def test_every_filter_filters(
    sessions: sessionmaker[Session], submit: Submit, finish: Finish, problems: dict[str, Problem]
) -> None:
    wanted = finish(author="ada", label="l")
    submit(problem=problems["linear_relu_divide"], device="cuda", author="bob", label="m")
    filters = [
        Filters(problem="relu"),
        Filters(device="cpu"),
        Filters(status="done"),
        Filters(verdict="passed"),
        Filters(author="ada"),
        Filters(label="l"),
    ]
    with sessions() as session:
        assert len(page_of_submissions(session).items) == 2
        for each in filters:
            assert [row.id for row in page_of_submissions(session, each).items] == [wanted]
        assert page_of_submissions(session, Filters(author="\x00")).items == []


def test_a_verdict_is_looked_for_among_its_own(
    engine: Engine, sessions: sessionmaker[Session], submit: Submit, finish: Finish
) -> None:
    ids = [finish(f"# {number}", author="ada") for number in range(3)][::-1]
    finish("# bob's", author="bob")
    submit(author="ada")
    statements: list[tuple[str, Any]] = []
    event.listen(engine, "before_cursor_execute", lambda *given: statements.append((given[2], given[3])))
    with sessions() as session:
        first = page_of_submissions(session, Filters(verdict="passed", author="ada"), limit=2)
        rest = page_of_submissions(session, Filters(verdict="passed", author="ada"), first.next_cursor, limit=2)
        assert [row.id for row in (*first.items, *rest.items)] == ids
        assert page_of_submissions(session, Filters(verdict="timeout")).items == []
        if engine.dialect.name != "sqlite":
            return
        listed, given = next(each for each in statements if "LIMIT" in each[0])
        plan = [row[3] for row in session.connection().exec_driver_sql(f"EXPLAIN QUERY PLAN {listed}", given)]
    assert "ix_evaluations_verdict_submission_id" in plan[0]
    assert not any("TEMP B-TREE" in step for step in plan)


def test_queue_positions_count_from_one_within_a_queue(sessions: sessionmaker[Session], submit: Submit) -> None:
    first, second, third = (submit(device=device) for device in ("cpu", "cuda", "cpu"))
    position = _position_of(sessions)
    assert [position(submission_id) for submission_id in (first, second, third)] == [1, 2, 3]
    with sessions.begin() as session:
        for submission_id in (first, second, third):
            claim = Claims(session).claim(submission_id, "build", "builder", LEASE_S)
            assert claim is not None
            assert position(submission_id, session) is None
            Claims(session).record_built(claim, seconds=0.0, log="")
    assert [position(submission_id) for submission_id in (first, second, third)] == [1, 1, 2]


def _position_of(sessions: sessionmaker[Session]) -> Callable[..., int | None]:
    def position(submission_id: str, session: Session | None = None) -> int | None:
        if session is None:
            with sessions() as own:
                return position(submission_id, own)
        submission = Submissions(session).get(submission_id)
        assert submission is not None
        return queue_position(session, submission)

    return position


def test_a_waiting_submission_is_cancelled_for_good(sessions: sessionmaker[Session], submit: Submit) -> None:
    submission_id = submit()
    with sessions.begin() as session:
        cancelled = Submissions(session).cancel(submission_id)
        assert (cancelled.status, cancelled.finished_at is not None) == (Status.CANCELLED, True)
    with sessions.begin() as session:
        assert Claims(session).claim(submission_id, "build", "builder", LEASE_S) is None


def test_a_worker_learns_of_the_cancellation_and_its_result_is_dropped(
    sessions: sessionmaker[Session], submit: Submit
) -> None:
    submission_id = submit()
    with sessions.begin() as session:
        claim = Claims(session).claim(submission_id, "build", "builder", LEASE_S)
        assert claim is not None
        assert Claims(session).renew(claim, LEASE_S)
    with sessions.begin() as session:
        Submissions(session).cancel(submission_id)
    with sessions.begin() as session:
        assert not Claims(session).renew(claim, LEASE_S)
        assert not Claims(session).record_built(claim, seconds=0.0, log="")
        assert [attempt.outcome for attempt in Submissions(session).attempts_of(submission_id)] == ["cancelled"]
        submission = Submissions(session).get(submission_id)
        assert submission is not None
        assert submission.status == Status.CANCELLED


def test_what_is_over_cannot_be_cancelled(sessions: sessionmaker[Session], finish: Finish) -> None:
    submission_id = finish()
    with sessions.begin() as session:
        assert Submissions(session).cancel(submission_id).status == Status.DONE


def test_cancelling_ends_every_open_attempt(sessions: sessionmaker[Session], submit: Submit) -> None:
    submission_id = submit()
    with sessions.begin() as session:
        assert Claims(session).claim(submission_id, "build", "builder", LEASE_S) is not None
        # As if a worker had claimed it between two statements of the cancellation.
        session.execute(update(Submission).values(claim_token="another"))
        Submissions(session).cancel(submission_id)
        (attempt,) = Submissions(session).attempts_of(submission_id)
        assert (attempt.outcome, attempt.ended_at is not None) == ("cancelled", True)


def test_what_failed_can_be_retried_with_all_its_attempts(sessions: sessionmaker[Session], submit: Submit) -> None:
    submission_id = submit()
    with sessions.begin() as session:
        claim = Claims(session).claim(submission_id, "build", "builder", LEASE_S)
        assert claim is not None
        Claims(session).record_fault(claim, "no compiler", retriable=True, max_attempts=1)
        take_requested_wakeups(session)
    with sessions.begin() as session:
        again = Submissions(session).retry(submission_id)
        assert (again.status, again.stage, again.attempts, again.message) == (Status.QUEUED, "build", 0, "")
        assert (again.finished_at, again.started_at) == (None, None)
        assert take_requested_wakeups(session) == [WakeUp("build")]
    with sessions.begin() as session:
        # The builder may try again, other builders or not: what was before is forgiven.
        workers.register(session, "other", kind="build", queues=["build"], device=None, capabilities={})
        claim = Claims(session).claim(submission_id, "build", "builder", LEASE_S)
        assert claim is not None
        assert claim.attempt == 1
        assert [each.outcome for each in Submissions(session).attempts_of(submission_id)] == ["fault", "running"]


def test_only_what_failed_can_be_retried(sessions: sessionmaker[Session], submit: Submit, finish: Finish) -> None:
    for submission_id, status in ((submit(), "queued"), (finish("# another"), "done")):
        with sessions.begin() as session, pytest.raises(NotRetriable, match=status):
            Submissions(session).retry(submission_id)


def test_an_unknown_submission_is_said_to_be_unknown(sessions: sessionmaker[Session]) -> None:
    with sessions.begin() as session:
        submissions = Submissions(session)
        assert submissions.get("sub_none\x00") is None
        for call in (submissions.cancel, submissions.retry, submissions.source_of, submissions.log_of):
            with pytest.raises(UnknownSubmission):
                call("sub_none")
