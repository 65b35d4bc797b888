"""Submissions as workers handle them."""

from __future__ import annotations

import math
import multiprocessing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session, sessionmaker

from evaluator.evaluation import ErrorFigures, SpeedupStatus, Status, Verdict
from evaluator.problems.problem import Problem
from runtime.settings import Settings
from storage.clock import database_now
from storage.database import create_engine_for, session_factory
from storage.grading.claims import Claim, Claims
from storage.grading.verification import verification_of
from storage.leaderboards.read import BoardKey, leaderboard
from storage.models import Stage, Submission
from storage.queue import workers
from storage.queue.wakeups import WakeUp, take_requested_wakeups
from storage.submissions.submissions import Submissions
from tests.storage.conftest import LEASE_S, Submit, candidate, passed


def claim(sessions: sessionmaker[Session], submission_id: str, stage: Stage = "build", worker: str = "w") -> Claim:
    with sessions.begin() as session:
        claimed = Claims(session).claim(submission_id, stage, worker, LEASE_S)
    assert claimed is not None
    return claimed


def built(sessions: sessionmaker[Session], submission_id: str) -> None:
    with sessions.begin() as session:
        work = Claims(session).claim(submission_id, "build", "builder", LEASE_S)
        assert work is not None
        assert Claims(session).record_built(work, seconds=0.5, log="compiled\n")


def read(sessions: sessionmaker[Session], submission_id: str) -> Submission:
    with sessions() as session:
        submission = Submissions(session).get(submission_id)
    assert submission is not None
    return submission


def outcomes(sessions: sessionmaker[Session], submission_id: str) -> list[tuple[str, str]]:
    with sessions() as session:
        return [(each.stage, each.outcome) for each in Submissions(session).attempts_of(submission_id)]


def end_backoff(sessions: sessionmaker[Session]) -> None:
    """As if all had rested long enough after their faults."""
    with sessions.begin() as session:
        session.execute(update(Submission).values(not_before=None))


def fault(sessions: sessionmaker[Session], submission_id: str, worker: str = "w") -> None:
    work = claim(sessions, submission_id, worker=worker)
    with sessions.begin() as session:
        assert Claims(session).record_fault(work, "the judge died", retriable=True, max_attempts=9)


def notified(sessions: sessionmaker[Session]) -> list[WakeUp]:
    """The wake-ups that a builder's reconciler requests now."""
    with sessions.begin() as session:
        Claims(session).notify_waiting([("build", "cpu")])
        return take_requested_wakeups(session)


def later(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def test_a_claim_holds_all_that_is_needed(
    sessions: sessionmaker[Session], submit: Submit, problems: dict[str, Problem]
) -> None:
    submission_id = submit("source\n", require_gradients=False)
    work = claim(sessions, submission_id)
    assert work.problem == problems["relu"]
    assert work.candidate == candidate("source\n")
    assert (work.device, work.size, work.precision, work.baseline) == ("cpu", "smoke", "float32", "eager")
    assert (work.require_gradients, work.attempt) == (False, 1)
    assert read(sessions, submission_id).status == Status.BUILDING


def test_a_submission_is_claimed_once_and_only_for_its_stage(sessions: sessionmaker[Session], submit: Submit) -> None:
    submission_id = submit()
    with sessions.begin() as session:
        assert Claims(session).claim(submission_id, "evaluate", "w", LEASE_S) is None
        assert Claims(session).claim(submission_id, "build", "w", LEASE_S) is not None
        assert Claims(session).claim(submission_id, "build", "w", LEASE_S) is None
        assert Claims(session).claim("sub_none", "build", "w", LEASE_S) is None


def test_the_way_of_a_submission_leaves_its_marks(
    sessions: sessionmaker[Session], submit: Submit, problems: dict[str, Problem]
) -> None:
    submission_id = submit()
    built(sessions, submission_id)
    waiting = read(sessions, submission_id)
    assert (waiting.status, waiting.stage, waiting.started_at) == (Status.QUEUED, "evaluate", None)
    assert waiting.built_at is not None
    work = claim(sessions, submission_id, "evaluate")
    assert read(sessions, submission_id).status == Status.EVALUATING
    evaluation = passed(problems["relu"])
    with sessions.begin() as session:
        assert Claims(session).record_evaluation(work, evaluation)
    done = read(sessions, submission_id)
    assert (done.status, done.attempts, done.claim_token) == (Status.DONE, 1, None)
    assert done.started_at is not None
    assert done.finished_at is not None
    assert done.submitted_at <= waiting.built_at <= done.started_at <= done.finished_at
    with sessions() as session:
        stored = session.get_one(Submission, submission_id).evaluation
        assert stored is not None
        assert stored.to_evaluation(complete=True) == evaluation
        assert stored.to_evaluation().samples == {}
        assert stored.device_name == "a processor"
        assert Submissions(session).log_of(submission_id) == "compiled\nit ran\n"
    assert outcomes(sessions, submission_id) == [("build", "built"), ("evaluate", "done")]


def test_a_candidate_that_does_not_compile_is_done_after_the_build(
    sessions: sessionmaker[Session], submit: Submit, problems: dict[str, Problem]
) -> None:
    submission_id = submit()
    refused = passed(
        problems["relu"], verdict=Verdict.COMPILE_ERROR, speedup=None, speedup_interval=None, message="line 3"
    )
    with sessions.begin() as session:
        work = Claims(session).claim(submission_id, "build", "builder", LEASE_S)
        assert work is not None
        assert Claims(session).record_evaluation(work, refused)
    done = read(sessions, submission_id)
    assert (done.status, done.message, done.built_at, done.started_at) == (Status.DONE, "line 3", None, None)


def test_what_is_unsettled_is_measured_again_later_a_few_times_and_then_shared_with_nobody(
    sessions: sessionmaker[Session], submit: Submit, problems: dict[str, Problem]
) -> None:
    submission_id = submit()
    built(sessions, submission_id)
    with sessions.begin() as session:
        session.get_one(Submission, submission_id).dedup_key = "the same for the same"
    noisy = passed(problems["relu"], speedup=None, speedup_status=SpeedupStatus.UNSETTLED)
    for times, pause_s in enumerate((10, 60, 300), start=1):
        with sessions.begin() as session:
            work = Claims(session).claim(submission_id, "evaluate", "w", LEASE_S)
            assert work is not None
            assert work.attempt == times
            take_requested_wakeups(session)
            assert Claims(session).record_evaluation(work, noisy)
            assert take_requested_wakeups(session) == []
        waiting = read(sessions, submission_id)
        assert (waiting.status, waiting.unsettled, waiting.evaluation) == (Status.QUEUED, times, None)
        assert "measured again" in waiting.message
        assert waiting.not_before is not None
        with sessions() as session:
            left_s = (waiting.not_before - database_now(session)).total_seconds()
            assert pause_s - 5 < left_s <= pause_s
            assert Claims(session).claim(submission_id, "evaluate", "w", LEASE_S) is None
        end_backoff(sessions)
    with sessions.begin() as session:
        work = Claims(session).claim(submission_id, "evaluate", "w", LEASE_S)
        assert work is not None
        assert Claims(session).record_evaluation(work, noisy, verify=True)
    done = read(sessions, submission_id)
    assert (done.status, done.dedup_key) == (Status.DONE, None)
    assert done.evaluation is not None
    assert (done.evaluation.speedup, done.evaluation.speedup_status) == (None, "unsettled")
    assert [outcome for _, outcome in outcomes(sessions, submission_id)] == ["built", *["unsettled"] * 3, "done"]
    with sessions() as session:
        assert leaderboard(session, BoardKey("relu", "cpu", size="smoke")) == []
        assert verification_of(session, submission_id) is None


@pytest.mark.parametrize("pauses_s", [(), (0.0,)])
def test_what_is_unsettled_is_measured_again_as_often_as_there_are_pauses(
    sessions: sessionmaker[Session], submit: Submit, problems: dict[str, Problem], pauses_s: tuple[float, ...]
) -> None:
    submission_id = submit()
    built(sessions, submission_id)
    noisy = passed(problems["relu"], speedup=None, speedup_status=SpeedupStatus.UNSETTLED)
    for _ in range(len(pauses_s) + 1):
        assert read(sessions, submission_id).status != Status.DONE
        with sessions.begin() as session:
            work = Claims(session).claim(submission_id, "evaluate", "w", LEASE_S)
            assert work is not None
            assert Claims(session).record_evaluation(work, noisy, measure_again_s=pauses_s)
    assert read(sessions, submission_id).status == Status.DONE


def test_a_figure_at_the_second_time_is_the_one_that_counts(
    sessions: sessionmaker[Session], submit: Submit, problems: dict[str, Problem]
) -> None:
    submission_id = submit()
    built(sessions, submission_id)
    noisy = passed(problems["relu"], speedup=None, speedup_status=SpeedupStatus.UNSETTLED)
    for found in (noisy, passed(problems["relu"])):
        end_backoff(sessions)
        with sessions.begin() as session:
            work = Claims(session).claim(submission_id, "evaluate", "w", LEASE_S)
            assert work is not None
            assert Claims(session).record_evaluation(work, found)
    with sessions() as session:
        assert [entry.speedup for entry in leaderboard(session, BoardKey("relu", "cpu", size="smoke"))] == [2.0]


def test_figures_that_are_not_finite_are_stored_as_unknown(
    sessions: sessionmaker[Session], submit: Submit, problems: dict[str, Problem]
) -> None:
    submission_id = submit()
    wrong = passed(
        problems["relu"],
        verdict=Verdict.WRONG_OUTPUT,
        speedup=None,
        errors=ErrorFigures(max_abs=math.nan, max_rel=math.inf),
        details={"worst": {"got": math.nan, "at": (0, 3)}},
    )
    with sessions.begin() as session:
        work = Claims(session).claim(submission_id, "build", "builder", LEASE_S)
        assert work is not None
        assert Claims(session).record_evaluation(work, wrong)
    stored = read(sessions, submission_id).evaluation
    assert stored is not None
    assert stored.to_evaluation().errors == ErrorFigures()
    assert stored.to_evaluation().details == {"worst": {"got": None, "at": [0, 3]}}


def test_a_fault_of_ours_is_retried_until_the_attempts_are_used_up(
    sessions: sessionmaker[Session], submit: Submit
) -> None:
    submission_id = submit()
    for attempt in (1, 2):
        end_backoff(sessions)
        work = claim(sessions, submission_id)
        assert work.attempt == attempt
        with sessions.begin() as session:
            assert Claims(session).record_fault(work, "the judge died", retriable=True, max_attempts=2)
            assert take_requested_wakeups(session) == []
    failed = read(sessions, submission_id)
    assert (failed.status, failed.message, failed.attempts) == (Status.FAILED, "the judge died", 2)
    assert failed.finished_at is not None
    assert outcomes(sessions, submission_id) == [("build", "fault"), ("build", "fault")]


def test_after_a_fault_it_rests_longer_each_time(sessions: sessionmaker[Session], submit: Submit) -> None:
    submission_id = submit()
    for backoff_s in (1, 10, 60, 60):
        fault(sessions, submission_id)
        waiting = read(sessions, submission_id)
        assert waiting.status == Status.QUEUED
        assert waiting.not_before is not None
        assert backoff_s - 1 < (waiting.not_before - datetime.now(UTC)).total_seconds() <= backoff_s
        with sessions.begin() as session:
            assert Claims(session).claim(submission_id, "build", "w", LEASE_S) is None
        assert notified(sessions) == []
        end_backoff(sessions)
        assert notified(sessions) == [WakeUp("build", if_empty=True)]


def test_a_worker_leaves_what_it_failed_at_to_another_that_lives(
    sessions: sessionmaker[Session], submit: Submit
) -> None:
    submission_id = submit()
    with sessions.begin() as session:
        for name in ("first", "second"):
            workers.register(session, name, kind="build", queues=["build"], device=None, capabilities={})
        workers.register(session, "cpu", kind="evaluate", queues=["evaluate.cpu"], device="cpu", capabilities={})
    fault(sessions, submission_id, "first")
    end_backoff(sessions)
    with sessions.begin() as session:
        assert Claims(session).claim(submission_id, "build", "first", LEASE_S) is None
    # The first one has used up the wake-up, so the second one's reconciler sends another.
    assert notified(sessions) == [WakeUp("build", 2, if_empty=True)]
    fault(sessions, submission_id, "second")
    end_backoff(sessions)
    # Everybody failed at it: anybody may try again.
    fault(sessions, submission_id, "first")


def test_a_worker_tries_again_where_no_other_lives(sessions: sessionmaker[Session], submit: Submit) -> None:
    submission_id = submit()
    fault(sessions, submission_id, "first")
    end_backoff(sessions)
    assert claim(sessions, submission_id, worker="first").attempt == 2


def test_a_fault_that_would_come_again_is_not_retried(sessions: sessionmaker[Session], submit: Submit) -> None:
    submission_id = submit()
    work = claim(sessions, submission_id)
    with sessions.begin() as session:
        assert Claims(session).record_fault(work, "does not fit", retriable=False, max_attempts=3)
    failed = read(sessions, submission_id)
    assert (failed.status, failed.message, failed.attempts) == (Status.FAILED, "does not fit", 1)


def test_a_stopped_worker_gives_back_without_a_fault(sessions: sessionmaker[Session], submit: Submit) -> None:
    submission_id = submit()
    work = claim(sessions, submission_id)
    with sessions.begin() as session:
        assert Claims(session).release(work)
        assert take_requested_wakeups(session) == [WakeUp("build")]
    assert read(sessions, submission_id).status == Status.QUEUED
    assert claim(sessions, submission_id).attempt == 1
    assert outcomes(sessions, submission_id) == [("build", "released"), ("build", "running")]


def test_progress_is_shown_while_it_lasts(sessions: sessionmaker[Session], submit: Submit) -> None:
    submission_id = submit()
    work = claim(sessions, submission_id)
    with sessions.begin() as session:
        assert Claims(session).renew(work, LEASE_S, ("trials", "trial 2 of 4", 0.5))
    shown = read(sessions, submission_id)
    assert (shown.progress_stage, shown.progress_message, shown.progress_share) == ("trials", "trial 2 of 4", 0.5)
    with sessions.begin() as session:
        assert Claims(session).record_built(work, seconds=0.0, log="")
    assert read(sessions, submission_id).progress_stage is None


def test_an_expired_lease_goes_back_to_the_queue(sessions: sessionmaker[Session], submit: Submit) -> None:
    submission_id = submit()
    claim(sessions, submission_id, worker="gone")
    with sessions.begin() as session:
        assert Claims(session).release_expired(3) == 0
        assert Claims(session).release_expired(3, now=later(LEASE_S + 1)) == 1
        assert take_requested_wakeups(session) == [WakeUp("build")]
    waiting = read(sessions, submission_id)
    assert waiting.status == Status.QUEUED
    assert "worker gone was lost" in waiting.message
    assert claim(sessions, submission_id).attempt == 2


def test_after_the_clock_was_set_back_a_dead_workers_lease_ends_within_an_hour(
    sessions: sessionmaker[Session], submit: Submit
) -> None:
    dead, living = submit(), submit()
    for submission_id in (dead, living):
        claim(sessions, submission_id)
    with sessions.begin() as session:
        session.execute(update(Submission).values(lease_until=later(86400)))
        assert Claims(session).shorten(LEASE_S) == 2
        assert Claims(session).shorten(LEASE_S) == 0
        assert Claims(session).release_expired(3) == 0
    with sessions.begin() as session:
        session.execute(update(Submission).where(Submission.id == living).values(lease_until=later(9000)))
        assert Claims(session).release_expired(3, now=later(3600 + 1)) == 1
    assert (read(sessions, dead).status, read(sessions, living).status) == (Status.QUEUED, Status.BUILDING)


def test_a_lease_by_another_workers_setting_is_not_shortened(sessions: sessionmaker[Session], submit: Submit) -> None:
    submission_id = submit()
    with sessions.begin() as session:
        assert Claims(session).claim(submission_id, "build", "patient", 3590.0) is not None
        assert Claims(session).shorten(1.0) == 0
        session.execute(update(Submission).values(lease_until=later(7000)))
        assert Claims(session).shorten(4000.0) == 0
        assert Claims(session).shorten(1.0) == 1


@pytest.mark.parametrize(
    ("ahead_s", "values", "due"),
    [
        (30, {}, False),
        (7200, {}, True),
        (7200, {"unsettled": 1}, False),
        (3 * 86400, {"unsettled": 1}, True),
    ],
)
def test_a_backoff_longer_than_any_is_one_from_before_the_clock_was_set_back(
    sessions: sessionmaker[Session], submit: Submit, ahead_s: float, values: dict[str, Any], due: bool
) -> None:
    submission_id = submit()
    with sessions.begin() as session:
        session.execute(update(Submission).values(not_before=later(ahead_s), **values))
        found = Claims(session).claim_next("build", ["cpu"], "w", LEASE_S)
    assert (None if found is None else found.submission_id) == (submission_id if due else None)


def test_a_renewed_lease_does_not_expire(sessions: sessionmaker[Session], submit: Submit) -> None:
    work = claim(sessions, submit())
    with sessions.begin() as session:
        assert Claims(session).renew(work, 10 * LEASE_S)
    with sessions.begin() as session:
        assert Claims(session).release_expired(3, now=later(LEASE_S + 1)) == 0


def test_a_submission_that_loses_every_worker_fails_with_the_reason(
    sessions: sessionmaker[Session], submit: Submit
) -> None:
    submission_id = submit()
    claim(sessions, submission_id)
    with sessions.begin() as session:
        assert Claims(session).release_expired(1, now=later(LEASE_S + 1)) == 1
    failed = read(sessions, submission_id)
    assert failed.status == Status.FAILED
    assert "lost" in failed.message


@pytest.mark.parametrize("record", ["built", "evaluation", "fault", "release", "renew"])
def test_what_comes_from_a_worker_that_lost_its_lease_is_dropped(
    sessions: sessionmaker[Session], submit: Submit, problems: dict[str, Problem], record: str
) -> None:
    submission_id = submit()
    late = claim(sessions, submission_id, worker="late")
    with sessions.begin() as session:
        Claims(session).release_expired(3, now=later(LEASE_S + 1))
    claim(sessions, submission_id, worker="next")
    with sessions.begin() as session:
        claims = Claims(session)
        calls: dict[str, Any] = {
            "built": lambda: claims.record_built(late, seconds=0.0, log=""),
            "evaluation": lambda: claims.record_evaluation(late, passed(problems["relu"])),
            "fault": lambda: claims.record_fault(late, "x", retriable=True, max_attempts=3),
            "release": lambda: claims.release(late),
            "renew": lambda: claims.renew(late, LEASE_S),
        }
        assert calls[record]() is False
    now = read(sessions, submission_id)
    assert (now.status, now.claim_worker, now.evaluation) == (Status.BUILDING, "next", None)
    assert outcomes(sessions, submission_id) == [("build", "lost"), ("build", "running")]


def test_a_queue_with_work_is_notified_once_for_each_worker_at_most(
    sessions: sessionmaker[Session], submit: Submit
) -> None:
    for _ in range(3):
        submit()
    assert notified(sessions) == [WakeUp("build", 1, if_empty=True)]
    with sessions.begin() as session:
        for name in ("first", "second"):
            workers.register(session, name, kind="build", queues=["build"], device=None, capabilities={})
    assert notified(sessions) == [WakeUp("build", 2, if_empty=True)]
    with sessions.begin() as session:
        Claims(session).notify_waiting([("evaluate", "cpu"), ("build", "cuda")])
        assert take_requested_wakeups(session) == []


def test_a_claim_notifies_another_worker_where_more_waits(sessions: sessionmaker[Session], submit: Submit) -> None:
    submit()
    submit(device="cuda")
    for expected in ([WakeUp("build", if_empty=True)], []):
        with sessions.begin() as session:
            assert Claims(session).claim_next("build", ["cpu", "cuda"], "w", LEASE_S) is not None
            assert take_requested_wakeups(session) == expected


def _claim_all(settings: Settings, ids: list[str], worker: str, won: Any) -> None:
    engine = create_engine_for(settings)
    sessions = session_factory(engine)
    for submission_id in ids:
        with sessions.begin() as session:
            if Claims(session).claim(submission_id, "build", worker, LEASE_S) is not None:
                won.put((submission_id, worker))
    engine.dispose()


def test_of_many_processes_exactly_one_claims(
    settings: Settings, sessions: sessionmaker[Session], submit: Submit
) -> None:
    ids = [submit() for _ in range(20)]
    context = multiprocessing.get_context("spawn")
    won = context.Queue()
    processes = [context.Process(target=_claim_all, args=(settings, ids, f"w{n}", won)) for n in range(3)]
    for process in processes:
        process.start()
    winners = [won.get(timeout=60) for _ in ids]
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert won.empty()
    assert sorted(submission_id for submission_id, _ in winners) == ids
    assert {each: read(sessions, each).claim_worker for each in ids} == dict(winners)
