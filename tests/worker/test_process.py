"""Worker processes over real brokers, with an engine that does as it is told."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from evaluator.evaluation import Status
from storage.batches.batches import Batches
from storage.clock import database_now
from storage.grading.verification import checks_of, verification_of
from storage.models import DiagnosisStatus, VerificationStatus, Webhook, WorkerState
from storage.queue.workers import Worker, list_workers, place_of
from storage.submissions.submissions import Submissions
from tests.machines import without_libseccomp
from tests.processes import wait_until
from tests.services import free_port, redis_server, running_redis
from tests.worker.conftest import Installation
from tests.worker.test_webhook_sender import over
from worker.process import Role

Install = Callable[..., Installation]
StartWorker = Callable[[Installation, str], subprocess.Popen[Any]]

_ROOT = Path(__file__).parent.parent.parent
_FAST = {"lease_s": 1.5, "reconcile_s": 0.25}


@pytest.fixture(params=["folder", "redis"])
def installation(request: pytest.FixtureRequest, install: Install) -> Installation:
    """One on each kind of broker."""
    if request.param == "folder":
        return install(**_FAST)
    return install(**_FAST, broker_url=request.getfixturevalue("redis_url"))


def _as_text(value: Any) -> str:
    """A setting as its environment variable has it."""
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


@pytest.fixture
def start_worker() -> Iterator[StartWorker]:
    """Starts a worker process with the scripted engine; all of them are ended with the test."""
    processes: list[subprocess.Popen[Any]] = []

    def start(installation: Installation, queue: str) -> subprocess.Popen[Any]:
        values = installation.settings.model_dump(exclude_none=True)
        environment = {f"KERNELJUDGE_{name.upper()}": _as_text(value) for name, value in values.items()}
        argv = [sys.executable, "-m", "tests.worker.scripted_worker", queue]
        process = subprocess.Popen(argv, cwd=_ROOT, env={**os.environ, **environment})
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()


def test_submissions_go_all_the_way_and_stopped_workers_leave_nothing(
    installation: Installation, start_worker: StartWorker
) -> None:
    processes = [start_worker(installation, queue) for queue in ("build", "evaluate.cpu")]
    ids = [installation.submit(f"# {number}") for number in range(5)]
    for submission_id in ids:
        done = installation.wait(submission_id, Status.DONE)
        assert done.attempts == 1
    with installation.readers() as session:
        assert sorted(worker.kind for worker in list_workers(session)) == ["build", "evaluate"]
    long = installation.submit("# evaluate: sleep 60")
    installation.wait(long, Status.EVALUATING)
    stopped_at = time.monotonic()
    for process in processes:
        process.send_signal(signal.SIGTERM)
    assert [process.wait(timeout=20) for process in processes] == [0, 0]
    assert time.monotonic() - stopped_at < 10
    assert installation.read(long).status == Status.QUEUED
    assert installation.outcomes(long)[-1] == ("evaluate", "released")
    assert installation.journal.count("close") == 2
    with installation.readers() as session:
        assert list_workers(session) == []


def test_a_stopped_worker_finishes_what_it_is_at_where_it_is_given_the_time_and_takes_nothing_new(
    install: Install, start_worker: StartWorker
) -> None:
    installation = install(**_FAST, drain_s=60)
    processes = [start_worker(installation, queue) for queue in ("build", "evaluate.cpu")]
    under_way = installation.submit("# evaluate: sleep 2")
    installation.wait(under_way, Status.EVALUATING)
    next_one = installation.submit("# 2")
    for process in processes:
        process.send_signal(signal.SIGTERM)
    assert [process.wait(timeout=30) for process in processes] == [0, 0]
    assert installation.read(under_way).status == Status.DONE
    assert installation.read(next_one).status == Status.QUEUED
    assert installation.journal.count("evaluate done") == 1


def test_a_second_signal_ends_a_worker_at_once_and_nothing_is_lost(install: Install, start_worker: StartWorker) -> None:
    installation = install(**_FAST, drain_s=60)
    start_worker(installation, "build")
    victim = start_worker(installation, "evaluate.cpu")
    submission_id = installation.submit("# evaluate: sleep 30")
    installation.wait(submission_id, Status.EVALUATING)
    victim.send_signal(signal.SIGTERM)

    def stopping() -> bool:
        with installation.readers() as session:
            return any(worker.state is WorkerState.STOPPING for worker in list_workers(session))

    wait_until(stopping, "the worker to say that it stops")
    asked_at = time.monotonic()
    victim.send_signal(signal.SIGTERM)
    assert victim.wait(timeout=10) == 128 + signal.SIGTERM
    assert time.monotonic() - asked_at < 5
    other = start_worker(installation, "evaluate.cpu")
    begun = [line for line in installation.journal if line.startswith("evaluate cpu")]
    assert len(begun) == 1
    wait_until(lambda: installation.journal.count(begun[0]) == 2, "another worker to take it up")
    assert installation.read(submission_id).attempts == 2
    assert other.poll() is None


def test_a_worker_that_fails_its_self_test_says_why_and_takes_nothing(
    install: Install, start_worker: StartWorker
) -> None:
    installation = install(**_FAST)
    (installation.settings.data_dir / "blind").touch()
    processes = [start_worker(installation, queue) for queue in ("build", "evaluate.cpu")]
    submission_id = installation.submit()

    def out() -> str:
        with installation.readers() as session:
            return next((each.reason for each in list_workers(session) if each.state is WorkerState.OUT), "")

    wait_until(lambda: bool(out()), "the worker to be out")
    assert "the wrong candidate got passed instead of wrong_output" in out()
    wait_until(lambda: installation.read(submission_id).stage == "evaluate", "the build")
    assert "evaluate cpu smoke None" not in installation.journal
    # Another one, which passes, takes it up although the first one may have taken its message.
    (installation.settings.data_dir / "blind").unlink()
    processes.append(start_worker(installation, "evaluate.cpu"))
    assert installation.wait(submission_id, Status.DONE).attempts == 1
    assert out()
    for process in processes:
        process.send_signal(signal.SIGTERM)
    assert [process.wait(timeout=20) for process in processes] == [0, 0, 0]


def test_a_record_is_evaluated_again_by_the_workers_and_holds(install: Install, start_worker: StartWorker) -> None:
    installation = install(**_FAST, verify_records="auto")
    for queue in ("build", "evaluate.cpu"):
        start_worker(installation, queue)
    submission_id = installation.submit()
    installation.wait(submission_id, Status.DONE)

    def verified() -> bool:
        with installation.readers() as session:
            found = verification_of(session, submission_id)
        return found is not None and found.state is VerificationStatus.VERIFIED

    wait_until(verified, "the record to be verified")
    assert installation.journal.count("evaluate done") == 2

    def ready() -> list[Worker]:
        with installation.readers() as session:
            workers = [each for each in list_workers(session) if each.device == "cpu"]
        return [each for each in workers if each.state is WorkerState.READY]

    # All of it may be over before the next heartbeat says that the self-test is.
    wait_until(ready, "the worker to say that it is ready")
    (worker,) = ready()
    with installation.readers() as session:
        (check,) = checks_of(session, submission_id)
        attempts = Submissions(session).attempts_of(check.id)
    assert attempts[-1].device == worker.capabilities["device_id"]


def test_a_worker_killed_in_the_middle_of_an_evaluation_loses_nothing(
    installation: Installation, start_worker: StartWorker
) -> None:
    start_worker(installation, "build")
    victim = start_worker(installation, "evaluate.cpu")
    submission_id = installation.submit("# evaluate: sleep 2")
    installation.wait(submission_id, Status.EVALUATING)
    victim.kill()
    victim.wait()
    start_worker(installation, "evaluate.cpu")
    done = installation.wait(submission_id, Status.DONE)
    assert done.attempts == 2
    assert installation.outcomes(submission_id) == [("build", "built"), ("evaluate", "lost"), ("evaluate", "done")]


def test_messages_that_are_lost_are_sent_again(install: Install, start_worker: StartWorker) -> None:
    installation = install(**_FAST)
    submission_id = installation.submit()
    shutil.rmtree(installation.settings.data_dir / "queue")
    for queue in ("build", "evaluate.cpu"):
        start_worker(installation, queue)
    assert installation.wait(submission_id, Status.DONE).attempts == 1


def test_a_broker_that_goes_away_and_comes_back_loses_nothing(install: Install, start_worker: StartWorker) -> None:
    port = free_port()
    installation = install(**_FAST, broker_url=f"redis://127.0.0.1:{port}/0")
    with redis_server(port):
        for queue in ("build", "evaluate.cpu"):
            start_worker(installation, queue)
        installation.wait(installation.submit("# 1"), Status.DONE)
    while_away = installation.submit("# 2")
    with redis_server(port):
        installation.wait(while_away, Status.DONE)


def test_a_broker_that_goes_away_during_an_evaluation_stops_no_worker(
    install: Install, start_worker: StartWorker
) -> None:
    port = free_port()
    installation = install(**_FAST, broker_url=f"redis://127.0.0.1:{port}/0")
    with redis_server(port):
        for queue in ("build", "evaluate.cpu"):
            start_worker(installation, queue)
        under_way = installation.submit("# evaluate: sleep 1")
        installation.wait(under_way, Status.EVALUATING)
    installation.wait(under_way, Status.DONE)
    time.sleep(1)  # meanwhile the acknowledgement fails
    with redis_server(port):
        installation.wait(installation.submit("# 2"), Status.DONE)


def test_a_broker_that_hangs_for_a_while_loses_nothing(install: Install, start_worker: StartWorker) -> None:
    with running_redis() as server:
        installation = install(**_FAST, broker_url=server.url)
        for queue in ("build", "evaluate.cpu"):
            start_worker(installation, queue)
        under_way = installation.submit("# 1\n# evaluate: sleep 1")
        installation.wait(under_way, Status.EVALUATING)
        with server.paused():
            while_away = installation.submit("# 2")
            installation.wait(under_way, Status.DONE)
            time.sleep(12)  # meanwhile wake-ups for what waits, and an acknowledgement, cannot be sent
            with installation.readers() as session:
                now, known = database_now(session), list_workers(session)
            assert len(known) == 2
            # One trial to send a wake-up may be under way.
            assert all(now - worker.heartbeat_at < timedelta(seconds=8) for worker in known)
        assert installation.wait(while_away, Status.DONE).attempts == 1
        installation.wait(installation.submit("# 3"), Status.DONE)


def test_two_workers_share_a_queue(install: Install, start_worker: StartWorker) -> None:
    installation = install(**_FAST)
    for queue in ("build", "evaluate.cpu", "evaluate.cpu"):
        start_worker(installation, queue)
    ids = [installation.submit(f"# {number}\n# evaluate: sleep 0.5") for number in range(4)]
    for submission_id in ids:
        installation.wait(submission_id, Status.DONE)
    assert installation.journal.count("evaluate done") == 4


def test_a_device_fault_is_diagnosed_by_the_worker_that_has_the_tool(
    installation: Installation, start_worker: StartWorker
) -> None:
    processes = [start_worker(installation, queue) for queue in ("build", "evaluate.cuda")]
    submission_id = installation.submit("# evaluate: overrun\n# diagnose: overrun", device="cuda")
    installation.wait_for_diagnosis(submission_id, DiagnosisStatus.DONE)
    with installation.readers() as session:
        queues = {queue for worker in list_workers(session) for queue in worker.queues}
    assert queues == {"build", "evaluate.cuda", "diagnose.compute-sanitizer"}
    # While one is under way, evaluations are made as if it were not there, and it is made in the end.
    slow = installation.submit("# evaluate: overrun\n# diagnose: sleep 4", device="cuda")
    installation.wait_for_diagnosis(slow, DiagnosisStatus.RUNNING)
    ids = [installation.submit(f"# {number}", device="cuda") for number in range(3)]
    for each in ids:
        assert installation.wait(each, Status.DONE).attempts == 1
    assert "diagnose stopped" in installation.journal
    assert "diagnose done" not in installation.journal[installation.journal.index("diagnose stopped") :]
    installation.wait_for_diagnosis(slow, DiagnosisStatus.DONE, timeout_s=60)
    for process in processes:
        process.send_signal(signal.SIGTERM)
    assert [process.wait(timeout=20) for process in processes] == [0, 0]


def test_a_worker_killed_while_it_diagnoses_loses_nothing(install: Install, start_worker: StartWorker) -> None:
    installation = install(**_FAST)
    start_worker(installation, "build")
    victim = start_worker(installation, "evaluate.cuda")
    submission_id = installation.submit("# evaluate: overrun\n# diagnose: sleep 2", device="cuda")
    installation.wait_for_diagnosis(submission_id, DiagnosisStatus.RUNNING)
    victim.kill()
    victim.wait()
    start_worker(installation, "evaluate.cuda")
    installation.wait_for_diagnosis(submission_id, DiagnosisStatus.DONE)
    assert installation.diagnosis(submission_id).attempts == 2
    assert installation.read(submission_id).attempts == 1


@pytest.mark.parametrize(
    ("queue", "device", "message"),
    [("letters", None, "queue must be"), ("build", "cpu", "no device"), ("evaluate.cpu", "cuda:0", "cannot take")],
)
def test_a_role_that_contradicts_itself_is_refused(queue: str, device: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Role(queue, device)


def test_a_role_says_what_it_takes() -> None:
    assert Role("build").takes == (("build", "cpu"), ("build", "cuda"))
    assert (Role("evaluate.cuda").device, Role("evaluate.cuda").takes) == ("cuda:0", (("evaluate", "cuda"),))


def test_a_variable_that_cannot_be_used_is_named_in_one_line() -> None:
    argv = [sys.executable, "-m", "worker", "--queue", "build"]
    environment = {**os.environ, "KERNELJUDGE_LEASE_S": "abc"}
    result = subprocess.run(argv, cwd=_ROOT, env=environment, stderr=subprocess.PIPE, text=True, timeout=60)
    assert result.returncode == 2
    assert result.stderr.startswith("python -m worker: KERNELJUDGE_LEASE_S=abc: ")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(("options", "required"), [(["--require-sandbox"], "false"), ([], "true")])
def test_a_worker_that_requires_a_complete_sandbox_ends_with_the_missing_layer(
    tmp_path: Path, options: list[str], required: str
) -> None:
    environment = {
        **without_libseccomp(tmp_path / "site"),
        "KERNELJUDGE_DATA_DIR": str(tmp_path / "data"),
        "KERNELJUDGE_REQUIRE_SANDBOX": required,
    }
    argv = [sys.executable, "-m", "worker", "--queue", "build", *options]
    result = subprocess.run(argv, cwd=_ROOT, env=environment, stderr=subprocess.PIPE, text=True, timeout=60)
    assert result.returncode == 3, result.stderr
    last = result.stderr.splitlines()[-1]
    assert last.startswith("python -m worker: a complete sandbox is required, and the kernel refuses: syscalls (")
    assert "(a candidate may use every system call of the kernel" in last


def test_a_worker_logs_each_missing_layer_with_what_that_means(tmp_path: Path) -> None:
    said = tmp_path / "said"
    environment = {**without_libseccomp(tmp_path / "site"), "KERNELJUDGE_DATA_DIR": str(tmp_path / "data")}
    text = _log_of_a_builder(said, environment)
    assert "WARNING worker.process [-] the sandbox lacks the layer syscalls: a candidate may use every" in text
    assert "the sandbox is complete" not in text


def test_a_worker_logs_that_the_sandbox_is_complete(tmp_path: Path) -> None:
    text = _log_of_a_builder(tmp_path / "said", {**os.environ, "KERNELJUDGE_DATA_DIR": str(tmp_path / "data")})
    assert "INFO worker.process [-] the sandbox is complete" in text
    lacking = [line for line in text.splitlines() if "the sandbox lacks" in line]
    assert all("the layer cgroup (optional): " in line for line in lacking)


def _log_of_a_builder(said: Path, environment: dict[str, str]) -> str:
    """What a real builder logs until it takes submissions."""
    with said.open("w") as output:
        argv = [sys.executable, "-m", "worker", "--queue", "build"]
        process = subprocess.Popen(argv, cwd=_ROOT, env=environment, stderr=output)
    try:
        wait_until(lambda: "takes from build" in said.read_text(), "the builder to start", timeout_s=60)
    finally:
        process.kill()
        process.wait()
    return said.read_text()


def test_every_line_about_a_submission_names_it(
    install: Install, start_worker: StartWorker, capfd: pytest.CaptureFixture[str]
) -> None:
    installation = install(**_FAST, log_format="json")
    processes = [start_worker(installation, queue) for queue in ("build", "evaluate.cpu")]
    ids = [installation.submit("# evaluate: sleep 0.3"), installation.submit("# build: refuse")]
    for submission_id in ids:
        installation.wait(submission_id, Status.DONE)
    with installation.readers() as session:
        workers = list_workers(session)
    for process in processes:
        process.send_signal(signal.SIGTERM)
    assert [process.wait(timeout=20) for process in processes] == [0, 0]
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    about = {each: [line["message"] for line in lines if line.get("submission") == each] for each in ids}
    assert [message for message in about[ids[0]] if message.startswith("verdict")] == ["verdict: passed"]
    assert [message for message in about[ids[1]] if message.startswith("verdict")] == ["verdict: compile_error"]
    graded = [line for line in lines if line["logger"] in ("worker.claim_handler", "worker.grading")]
    assert all(line.get("submission") in ids for line in graded)
    assert {place_of(worker.id).device for worker in workers} == {"build", "cpu"}
    layers = [
        {"layer": "files", "there": True, "optional": False},
        {"layer": "cgroup", "there": False, "optional": True},
    ]
    assert all(worker.capabilities["sandbox"] == layers for worker in workers)


@pytest.mark.parametrize("sends", [True, False])
def test_workers_send_webhooks_unless_that_is_the_webhook_senders(
    install: Install, start_worker: StartWorker, sends: bool
) -> None:
    installation = install(**_FAST, send_webhooks=sends)
    batch_id = over(installation)
    with socket.create_server(("127.0.0.1", 0)) as receiver:
        with installation.sessions.begin() as session:
            session.execute(update(Webhook).values(url=f"http://127.0.0.1:{receiver.getsockname()[1]}/hook"))
        for queue in ("build", "evaluate.cpu"):
            start_worker(installation, queue)
        # They look when they begin and every quarter of a second: by then, both have.
        installation.wait(installation.submit(), Status.DONE)
        receiver.settimeout(10 if sends else 1)
        with nullcontext() if sends else pytest.raises(TimeoutError):
            receiver.accept()[0].close()
    with installation.readers() as session:
        webhook = Batches(session).webhook_of(batch_id)
        assert webhook is not None
        assert (webhook.attempts > 0) is sends
