"""What is kept count of, against what really happened."""

from __future__ import annotations

import threading

import pytest
from alembic import command
from sqlalchemy import Engine, func, select, text, update
from sqlalchemy.orm import Session, sessionmaker

from evaluator.evaluation import Status, Verdict
from evaluator.problems.problem import Problem
from storage.batches.batches import Batches, BatchLine, LineError
from storage.batches.webhooks import Webhooks
from storage.database import alembic_config
from storage.grading.claims import Claims
from storage.metrics import metrics
from storage.metrics.counters import Counted, Histogram, Timed, count, observe, read_counts, read_times
from storage.models import Attempt, Submission
from storage.submissions.deduplication import Ranks
from storage.submissions.new_submission import NewSubmission
from storage.submissions.submissions import Submissions
from tests.storage.conftest import LEASE_S, Finish, Submit, candidate, passed

THINGS = Counted("things", ("kind",), "Things.")
TIMES = Timed("times", ("kind",), "Times.", (1.0, 10.0))
WORKER = "host-a-cuda:0-17-ab12"


def counts(sessions: sessionmaker[Session], what: Counted) -> dict[tuple[str, ...], int]:
    with sessions() as session:
        return dict(read_counts(session, [what])[what])


def test_what_is_counted_is_there_with_the_commit(sessions: sessionmaker[Session]) -> None:
    for _ in range(20):  # over all the rows that it is spread over
        with sessions.begin() as session:
            count(session, THINGS, "a")
            count(session, THINGS, "b", by=2)
            assert counts(sessions, THINGS).get(("b",), 0) % 2 == 0
    with sessions.begin() as session:
        count(session, THINGS, "a", by=-5)
    assert counts(sessions, THINGS) == {("a",): 15, ("b",): 40}


def test_an_attempt_has_a_series_from_the_start_for_each_way_to_end() -> None:
    ends = ("built", "done", "unsettled", "fault", "lost", "released", "cancelled")
    assert metrics.ATTEMPTS.values[-1] == ends


def test_what_is_rolled_back_was_never_counted(sessions: sessionmaker[Session]) -> None:
    def fail() -> None:
        with sessions.begin() as session:
            count(session, THINGS, "a")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with sessions() as session:
        count(session, THINGS, "a")
        session.rollback()
        count(session, THINGS, "b")
        session.commit()
    assert counts(sessions, THINGS) == {("b",): 1}


def test_a_savepoint_writes_nothing_yet(sessions: sessionmaker[Session]) -> None:
    with sessions.begin() as session:
        count(session, THINGS, "a")
        with session.begin_nested():
            count(session, THINGS, "a")
        assert read_counts(session, [THINGS])[THINGS] == {}
    assert counts(sessions, THINGS) == {("a",): 2}


def test_many_count_the_same_at_once_and_nothing_is_missed(sessions: sessionmaker[Session]) -> None:
    def count_up() -> None:
        for number in range(15):
            with sessions.begin() as session:
                count(session, THINGS, "b" if number % 2 else "a")
                count(session, THINGS, "c")

    threads = [threading.Thread(target=count_up) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts(sessions, THINGS) == {("a",): 32, ("b",): 28, ("c",): 60}


def test_labels_are_checked(sessions: sessionmaker[Session]) -> None:
    with sessions() as session, pytest.raises(ValueError, match="counted by 1 labels"):
        count(session, THINGS, "a", "b")


def test_durations_fall_into_buckets(sessions: sessionmaker[Session]) -> None:
    with sessions.begin() as session:
        for seconds in (0.5, 1.0, 1.5, 10.0, 11.0, -3.0):
            observe(session, TIMES, "a", seconds=seconds)
    with sessions() as session:
        # At most 1 s: 0.5, 1 and what a clock that was set back made of it; at most 10 s: two more.
        assert read_times(session, TIMES) == {("a",): Histogram((3, 5, 6), 24.0)}
        finer = Timed("times", ("kind",), "Times.", (5.0, 20.0))
        assert read_times(session, finer) == {("a",): Histogram((3, 5, 6), 24.0)}


def test_a_submission_is_timed_stage_by_stage(sessions: sessionmaker[Session], finish: Finish) -> None:
    finish()
    with sessions() as session:
        times = read_times(session, metrics.STAGE_SECONDS)
    assert set(times) == {(stage, "cpu") for stage in ("build_wait", "build", "evaluate_wait", "evaluate", "total")}
    assert all(found.up_to[-1] == 1 for found in times.values())
    parts = sum(found.sum_s for (stage, _), found in times.items() if stage != "total")
    assert times["total", "cpu"].sum_s == pytest.approx(parts, abs=0.5)


def test_a_wait_is_from_coming_in_to_the_attempt_that_succeeds(sessions: sessionmaker[Session], submit: Submit) -> None:
    submission_id = submit()
    with sessions.begin() as session:
        claims = Claims(session)
        claim = claims.claim(submission_id, "build", "w", LEASE_S)
        assert claim is not None
        session.execute(update(Attempt).values(started_at=claim.queued_at))
        moved = claim.queued_at.replace(year=claim.queued_at.year - 1)
        session.execute(update(Submission).values(submitted_at=moved))
        assert claims.record_built(claim, seconds=0.1, log="")
    with sessions() as session:
        times = read_times(session, metrics.STAGE_SECONDS)
    assert times["build_wait", "cpu"].sum_s == pytest.approx((claim.queued_at - moved).total_seconds())
    assert times["build", "cpu"].up_to[-1] == 1
    assert times["build", "cpu"].sum_s < 60


def test_attempts_and_faults_are_counted_by_who_made_them(sessions: sessionmaker[Session], submit: Submit) -> None:
    first, second = submit(device="cuda"), submit(device="cuda")
    with sessions.begin() as session:
        claims = Claims(session)
        claim = claims.claim(first, "build", WORKER, LEASE_S)
        assert claim is not None
        claims.record_fault(claim, "the builder died", retriable=True, max_attempts=3)
        lost = claims.claim(second, "build", "odd", LEASE_S)
        assert lost is not None
        session.execute(update(Submission).where(Submission.id == second).values(lease_until=lost.queued_at))
        assert claims.release_expired(1) == 1
    assert counts(sessions, metrics.ATTEMPTS) == {("build", "cuda", "fault"): 1, ("build", "cuda", "lost"): 1}
    with sessions() as session:
        assert metrics.machine_faults(session) == {
            ("host-a", "cuda:0", "build", "fault"): 1,
            ("odd", "", "build", "lost"): 1,
        }
    assert counts(sessions, metrics.ENDED) == {("failed",): 1}


def test_builds_and_device_faults_are_counted(
    sessions: sessionmaker[Session], submit: Submit, problems: dict[str, Problem]
) -> None:
    submission_id = submit(device="cuda")
    builds = [{"recipe": "split", "cached": False}, {"recipe": "split", "cached": True}]
    with sessions.begin() as session:
        claims = Claims(session)
        build = claims.claim(submission_id, "build", "b", LEASE_S)
        assert build is not None
        claims.record_built(build, seconds=1.0, log="", builds=builds, failed_builds=2)
        claim = claims.claim(submission_id, "evaluate", WORKER, LEASE_S)
        assert claim is not None
        details = {"device_fault": "illegal memory access", "builds": builds[1:]}
        evaluation = passed(
            problems["relu"], verdict=Verdict.RUNTIME_ERROR, speedup=None, speedup_interval=None, details=details
        )
        claims.record_evaluation(claim, evaluation)
    assert counts(sessions, metrics.BUILDS) == {
        ("build", "cuda", "split", "miss"): 1,
        ("build", "cuda", "split", "hit"): 1,
        ("build", "cuda", "none", "error"): 2,
        ("evaluate", "cuda", "split", "hit"): 1,
    }
    assert counts(sessions, metrics.CANDIDATE_FAULTS) == {("host-a", "cuda:0", "illegal memory access"): 1}


def test_what_ended_without_a_verdict_is_kept_as_it_is(
    sessions: sessionmaker[Session],
    submit: Submit,
    problems: dict[str, Problem],
) -> None:
    cancelled, failed, again = submit(), submit(), submit()
    with sessions.begin() as session:
        claims = Claims(session)
        for submission_id in (failed, again):
            claim = claims.claim(submission_id, "build", "w", LEASE_S)
            assert claim is not None
            claims.record_fault(claim, "no", retriable=False, max_attempts=3)
        assert claims.claim(cancelled, "build", "w", LEASE_S) is not None
    with sessions.begin() as session:
        submissions = Submissions(session)
        for _ in range(2):  # twice is once
            submissions.cancel(cancelled)
        submissions.retry(again)
        batch_id = Batches(session).create(webhook=("http://localhost/", "s")).id
    news = [
        NewSubmission(problem=problems["relu"], candidate=candidate(f"# {number}"), device="cpu", size="smoke")
        for number in (1, 2, 2)
    ]
    with sessions.begin() as session:
        lines = [BatchLine(line, new) for line, new in enumerate(news, 1)]
        Batches(session).add(batch_id, lines, [LineError(4, "no")], Ranks())
        Batches(session).received(batch_id, "digest")
    with sessions.begin() as session:
        Batches(session).cancel(batch_id)
    with sessions() as session:
        live = select(Submission.status, func.count()).group_by(Submission.status)
        anew = {row[0]: row[1] for row in session.execute(live)}
    assert anew == {"queued": 1, "failed": 1, "cancelled": 3}
    assert counts(sessions, metrics.ENDED) == {("failed",): 1, ("cancelled",): 3}
    assert counts(sessions, metrics.ACCEPTED) == {("cpu", "single"): 3, ("cpu", "batch"): 2}
    assert counts(sessions, metrics.ATTEMPTS)["build", "cpu", "cancelled"] == 1


def test_attempts_at_webhooks_are_counted(sessions: sessionmaker[Session]) -> None:
    with sessions.begin() as session:
        batch_id = Batches(session).create(webhook=("http://localhost/", "s")).id
    with sessions.begin() as session:
        Batches(session).received(batch_id, "digest")
    with sessions.begin() as session:
        delivery = Webhooks(session).take_due()
        assert delivery is not None
        Webhooks(session).record(delivery, "the answer was 500")
        Webhooks(session).record(delivery, "")
    assert counts(sessions, metrics.DELIVERIES) == {("refused",): 1, ("taken",): 1}


def test_the_migration_counts_what_had_ended_before(
    engine: Engine, sessions: sessionmaker[Session], submit: Submit, finish: Finish
) -> None:
    ids = [submit() for _ in range(3)]
    finish()
    with sessions.begin() as session:
        for submission_id in ids[:2]:
            Submissions(session).cancel(submission_id)
    for move, target in ((command.downgrade, "0004"), (command.upgrade, "head")):
        with engine.begin() as connection:
            config = alembic_config()
            config.attributes["connection"] = connection
            move(config, target)
    assert counts(sessions, metrics.ENDED) == {(Status.CANCELLED,): 2}
    assert counts(sessions, metrics.ATTEMPTS) == {}
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM submissions WHERE traceparent IS NULL")).scalar() == 4
