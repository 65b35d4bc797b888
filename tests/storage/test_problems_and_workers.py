"""Problems and workers in the database."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sqlalchemy import update
from sqlalchemy.orm import Session, sessionmaker

from evaluator.problems.problem import Problem
from storage.models import StoredWorker
from storage.problems import current_problems, stored_problem, sync_problems
from storage.queue import workers


def test_problems_come_back_as_they_were(sessions: sessionmaker[Session], problems: dict[str, Problem]) -> None:
    with sessions() as session:
        assert current_problems(session) == problems


def test_an_old_version_stays_readable(sessions: sessionmaker[Session], problems: dict[str, Problem]) -> None:
    relu = problems["relu"]
    changed = replace(relu, source="# changed\n" + relu.source)
    with sessions.begin() as session:
        sync_problems(session, {"relu": changed})
    with sessions() as session:
        assert current_problems(session) == {"relu": changed}
        assert stored_problem(session, "relu", relu.version) == relu
        assert stored_problem(session, "relu", "none") is None


def test_a_new_title_keeps_the_version(sessions: sessionmaker[Session], problems: dict[str, Problem]) -> None:
    renamed = replace(problems["relu"], title="Another title")
    with sessions.begin() as session:
        sync_problems(session, {**problems, "relu": renamed})
    with sessions() as session:
        assert current_problems(session)["relu"].title == "Another title"


def test_a_worker_lives_as_long_as_its_heartbeat(sessions: sessionmaker[Session]) -> None:
    with sessions.begin() as session:
        workers.register(
            session, "w1", kind="evaluate", queues=["evaluate.cpu"], device="cpu", capabilities={"torch": "2"}
        )
        workers.heartbeat(session, "w1", "sub_1")
    with sessions() as session:
        (worker,) = workers.list_workers(session)
    assert worker.alive
    assert (worker.kind, worker.queues, worker.device) == ("evaluate", ("evaluate.cpu",), "cpu")
    assert (worker.capabilities, worker.current_submission) == ({"torch": "2"}, "sub_1")


def test_a_silent_worker_is_gone_and_later_forgotten(sessions: sessionmaker[Session]) -> None:
    def silent_for(age: timedelta) -> list[bool]:
        with sessions.begin() as session:
            session.execute(update(StoredWorker).values(heartbeat_at=datetime.now(UTC) - age))
            workers.delete_stale(session)
            return [worker.alive for worker in workers.list_workers(session)]

    with sessions.begin() as session:
        workers.register(session, "w1", kind="build", queues=["build"], device=None, capabilities={})
    assert silent_for(timedelta(seconds=5)) == [True]
    assert silent_for(timedelta(minutes=5)) == [False]
    # As one that ended before the clock was set back.
    assert silent_for(-timedelta(minutes=5)) == [False]
    with sessions() as session:
        assert workers.serving_ids(session, "build") == frozenset()
    assert silent_for(timedelta(hours=2)) == []


def test_a_worker_from_before_the_clock_was_set_back_is_forgotten(sessions: sessionmaker[Session]) -> None:
    with sessions.begin() as session:
        workers.register(session, "w1", kind="build", queues=["build"], device=None, capabilities={})
        session.execute(update(StoredWorker).values(heartbeat_at=datetime.now(UTC) + timedelta(days=1)))
        workers.delete_stale(session)
        assert workers.list_workers(session) == []


def test_a_worker_that_ends_is_struck_off(sessions: sessionmaker[Session]) -> None:
    with sessions.begin() as session:
        workers.register(session, "w1", kind="build", queues=["build"], device=None, capabilities={})
        workers.unregister(session, "w1")
        assert workers.list_workers(session) == []


def test_a_worker_that_was_struck_off_is_told_so(sessions: sessionmaker[Session]) -> None:
    with sessions.begin() as session:
        workers.register(session, "w1", kind="build", queues=["build"], device=None, capabilities={})
        assert workers.heartbeat(session, "w1", None)
        workers.unregister(session, "w1")
        assert not workers.heartbeat(session, "w1", None)


def test_a_queue_is_served_by_live_workers_that_take_from_it(sessions: sessionmaker[Session]) -> None:
    with sessions.begin() as session:
        workers.register(session, "w1", kind="build", queues=["build"], device=None, capabilities={})
    with sessions() as session:
        now = datetime.now(UTC)
        assert workers.serving_ids(session, "build") == {"w1"}
        assert workers.serving_ids(session, "build", now) == {"w1"}
        assert not workers.serving_ids(session, "evaluate.cpu", now)
        assert not workers.serving_ids(session, "build", now + timedelta(minutes=1))


def test_a_workers_name_tells_where_it_works() -> None:
    name = workers.worker_name("gpu-host-1.example", "cuda:0")
    assert name != workers.worker_name("gpu-host-1.example", "cuda:0")
    assert workers.place_of(name) == ("gpu-host-1.example", "cuda:0")
    assert workers.place_of("somebody") == ("somebody", "")
