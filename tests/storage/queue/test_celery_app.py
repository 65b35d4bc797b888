"""The hand-over: wake-ups after the commit, over a folder and over Redis."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from celery import Celery
from kombu import Consumer, Queue
from kombu.message import Message
from sqlalchemy.orm import Session, sessionmaker

from evaluator.config import Limits
from evaluator.problems.problem import Problem
from kerneljudge.terms.findings import Tool
from runtime.settings import Settings
from storage.database import create_engine_for, migrate, session_factory
from storage.problems import sync_problems
from storage.queue import folder_transport
from storage.queue.celery_app import (
    DIAGNOSIS_QUEUES,
    QUEUES,
    _Notifier,
    diagnosis_queue,
    make_celery,
    notify,
    notify_after_commit,
    queue_name,
)
from storage.queue.wakeups import WakeUp
from storage.submissions.new_submission import NewSubmission
from storage.submissions.submissions import Submissions
from tests.processes import wait_until
from tests.services import free_port, redis_server
from tests.storage.conftest import candidate


@pytest.fixture(params=["folder", "redis"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Celery:
    """A producer on each kind of broker."""
    if request.param == "folder":
        return make_celery(Settings(data_dir=tmp_path))
    return make_celery(Settings(data_dir=tmp_path, broker_url=request.getfixturevalue("redis_url")))


def received(app: Celery, queue: str) -> list[str]:
    """The ids of the messages in ``queue``, in order; takes them out."""
    ids: list[str] = []
    with app.connection_for_read() as connection:
        simple = connection.SimpleQueue(queue)
        while True:
            try:
                message = simple.get(block=False)
            except simple.Empty:
                break
            message.ack()
            ids.append(message.headers["id"])
        simple.close()
    return ids


def test_each_stage_and_device_has_its_queue() -> None:
    assert {queue_name("build", "cpu"), queue_name("build", "cuda")} == {"build"}
    assert {"build", queue_name("evaluate", "cpu"), queue_name("evaluate", "cuda")} == set(QUEUES)


def test_a_wakeup_is_a_task_in_its_queue(app: Celery) -> None:
    assert all(notify(app, WakeUp(queue)) for queue in (*QUEUES, *DIAGNOSIS_QUEUES))
    tasks = {}
    with app.connection_for_read() as connection:
        for queue in (*QUEUES, *DIAGNOSIS_QUEUES):
            message = connection.SimpleQueue(queue).get(block=False)
            tasks[queue] = message.headers["task"]
            assert message.decode()[0] == []
    assert tasks == {
        "build": "kerneljudge.build",
        "evaluate.cpu": "kerneljudge.evaluate",
        "evaluate.cuda": "kerneljudge.evaluate",
        "diagnose.compute-sanitizer": "kerneljudge.diagnose",
        "diagnose.ncu": "kerneljudge.diagnose",
    }


def test_each_tool_has_the_queue_of_its_program() -> None:
    assert {diagnosis_queue(tool) for tool in Tool} == {"diagnose.compute-sanitizer", "diagnose.ncu"}
    assert DIAGNOSIS_QUEUES == ("diagnose.compute-sanitizer", "diagnose.ncu")


def test_a_wakeup_for_an_empty_queue_is_not_sent_while_a_message_waits(app: Celery) -> None:
    for _ in range(2):
        assert notify(app, WakeUp("build", 3, if_empty=True))
    assert notify(app, WakeUp("evaluate.cpu", if_empty=True))
    assert (len(received(app, "build")), len(received(app, "evaluate.cpu"))) == (3, 1)
    assert notify(app, WakeUp("build", if_empty=True))
    assert notify(app, WakeUp("build"))
    assert len(received(app, "build")) == 2


@pytest.fixture
def notifying(tmp_path: Path, app: Celery, problems: dict[str, Problem]) -> sessionmaker[Session]:
    """Sessions on SQLite whose commits send wake-ups."""
    settings = Settings(data_dir=tmp_path)
    migrate(settings)
    sessions = session_factory(create_engine_for(settings))
    with sessions.begin() as session:
        sync_problems(session, problems)
    notify_after_commit(sessions, app)
    return sessions


def test_a_commit_sends_wakeups_and_a_rollback_does_not(
    notifying: sessionmaker[Session], app: Celery, problems: dict[str, Problem]
) -> None:
    new = NewSubmission(problems["relu"], candidate(), "cpu", "smoke")
    with notifying() as session:
        Submissions(session).submit(new)
        session.rollback()
        session.commit()
    assert received(app, "build") == []
    with notifying.begin() as session:
        Submissions(session).submit(new)
        assert received(app, "build") == []
    assert len(received(app, "build")) == 1


def test_a_broker_that_is_down_loses_no_submission_and_little_time(
    tmp_path: Path, problems: dict[str, Problem]
) -> None:
    settings = Settings(data_dir=tmp_path, broker_url=f"redis://127.0.0.1:{free_port()}/0")
    migrate(settings)
    sessions = session_factory(create_engine_for(settings))
    notify_after_commit(sessions, make_celery(settings))
    started = time.monotonic()
    with sessions.begin() as session:
        sync_problems(session, problems)
        submission = Submissions(session).submit(NewSubmission(problems["relu"], candidate(), "cpu", "smoke"))
    assert time.monotonic() - started < 5
    with sessions() as session:
        assert Submissions(session).get(submission.id) is not None


def test_while_the_broker_fails_one_tries_at_a_time_and_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []
    works, clock = [False], [1000.0]

    def trying(_app: Celery, wakeup: WakeUp) -> bool:
        tried.append(wakeup.queue)
        if len(tried) == 2:
            notifier.notify(WakeUp("meanwhile"))  # another thread's, while this one waits for an answer
        return works[0]

    monkeypatch.setattr("storage.queue.celery_app.notify", trying)
    monkeypatch.setattr("storage.queue.celery_app.time", SimpleNamespace(monotonic=lambda: clock[0]))
    notifier = _Notifier(make_celery(Settings(data_dir=tmp_path)))
    for name in ("1", "2"):
        notifier.notify(WakeUp(name))
    assert tried == ["1"]
    clock[0] += 6
    notifier.notify(WakeUp("3"))
    assert tried == ["1", "3"], "and nobody beside it"
    clock[0] += 6
    works[0] = True
    for name in ("4", "5"):
        notifier.notify(WakeUp(name))
    assert tried == ["1", "3", "4", "5"]


def test_each_message_of_the_folder_goes_to_one_consumer(tmp_path: Path) -> None:
    app = make_celery(Settings(data_dir=tmp_path))
    taken: list[str] = []
    all_sent = threading.Event()

    def consume() -> None:
        while True:
            last = all_sent.is_set()
            taken.extend(received(app, "build"))
            if last:
                return

    consumers = [threading.Thread(target=consume) for _ in range(3)]
    for consumer in consumers:
        consumer.start()
    for _ in range(60):
        assert notify(app, WakeUp("build"))
    all_sent.set()
    for consumer in consumers:
        consumer.join(timeout=60)
    assert len(taken) == len(set(taken)) == 60


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks into a folder again before long."""
    monkeypatch.setattr(folder_transport, "_LONGEST_DRAIN_S", 120.0)


@pytest.mark.usefixtures("patient")
def test_a_consumer_that_waits_hears_of_a_message_in_the_folder(tmp_path: Path) -> None:
    app = make_celery(Settings(data_dir=tmp_path))
    heard: list[str] = []
    with app.connection_for_read() as connection:
        simple = connection.SimpleQueue("build")

        def wait_for_two() -> None:
            for _ in range(2):
                message = simple.get(timeout=120)
                message.ack()
                heard.append(message.headers["id"])

        waiting = threading.Thread(target=wait_for_two, daemon=True)
        waiting.start()
        wait_until((tmp_path / "queue" / "build" / ".arrived").exists, "the consumer's waiting")
        for _ in range(2):
            assert notify(app, WakeUp("build"))
        waiting.join(60)
    assert len(set(heard)) == 2


@pytest.mark.usefixtures("patient")
def test_a_consumer_that_takes_no_more_is_not_kept_busy_by_what_it_could_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_celery(Settings(data_dir=tmp_path))
    taken: list[Message] = []
    with app.connection_for_read() as connection, connection.channel() as channel:
        channel.basic_qos(0, 1, False)
        can_consume, asked = channel.qos.can_consume, 0

        def counting() -> bool:
            nonlocal asked
            asked += 1
            return bool(can_consume())

        monkeypatch.setattr(channel.qos, "can_consume", counting)
        with Consumer(channel, [Queue("build")], on_message=taken.append):
            with pytest.raises(TimeoutError):
                connection.drain_events(timeout=0.1)  # from here on it can hear
            for _ in range(3):
                assert notify(app, WakeUp("build"))
            connection.drain_events(timeout=60)
            asked = 0
            with pytest.raises(TimeoutError):
                connection.drain_events(timeout=0.5)
            assert asked < 100  # twice for each look, of which there are 25
            later = threading.Timer(0.3, taken[0].ack)
            later.start()
            connection.drain_events(timeout=60)
            later.join()
    assert len({message.headers["id"] for message in taken}) == 2


def test_what_lies_in_the_place_of_a_pipe_and_is_none_keeps_nobody_from_messages(tmp_path: Path) -> None:
    app = make_celery(Settings(data_dir=tmp_path))
    (tmp_path / "queue" / "build").mkdir(parents=True)
    (tmp_path / "queue" / "build" / ".arrived").write_text("restored from elsewhere")
    with app.connection_for_read() as connection, connection.channel() as channel:
        with pytest.raises(FileExistsError, match="is no pipe"):
            channel.open_pipe("build")
        assert notify(app, WakeUp("build"))
    assert len(received(app, "build")) == 1


@pytest.mark.usefixtures("patient")
def test_where_there_can_be_no_pipes_a_folder_is_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "mkfifo", refuse)
    app = make_celery(Settings(data_dir=tmp_path))
    with app.connection_for_read() as connection:
        simple = connection.SimpleQueue("build")
        late = threading.Timer(0.3, notify, (app, WakeUp("build")))
        late.start()
        message = simple.get(timeout=60)
        late.join()
        message.ack()
    assert message.headers["task"] == "kerneljudge.build"


@pytest.mark.parametrize("answer", [Message.ack, Message.reject, Message.requeue])
def test_a_message_that_redis_cannot_be_told_of_makes_room_for_the_next(
    tmp_path: Path, answer: Callable[[Message], None]
) -> None:
    port = free_port()
    app = make_celery(Settings(data_dir=tmp_path, broker_url=f"redis://127.0.0.1:{port}/0"))
    with app.connection_for_read() as connection:
        with redis_server(port):
            assert notify(app, WakeUp("build"))
            taking = connection.SimpleQueue("build")
            taking.channel.basic_qos(prefetch_count=1)
            message = taking.get(timeout=10)
            assert not taking.channel.qos.can_consume()
        with pytest.raises(connection.connection_errors):
            answer(message)
        assert taking.channel.qos.can_consume()


def test_redis_keeps_a_message_back_for_longer_than_the_longest_evaluation_takes(tmp_path: Path) -> None:
    app = make_celery(Settings(data_dir=tmp_path, broker_url="redis://127.0.0.1:6379/0"))
    assert (app.conf.task_acks_late, app.conf.worker_prefetch_multiplier) == (True, 1)
    limits = Limits()
    # A build, and an evaluation that measures torch.compile as well, both made twice.
    longest_s = limits.build_s + 4 * limits.total_s
    assert app.conf.broker_transport_options["visibility_timeout"] > longest_s
