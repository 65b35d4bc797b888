"""Reconciling: what it survives, and whom it spares."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

import pytest
from sqlalchemy import event, update
from sqlalchemy.orm import Session

from evaluator.evaluation import Evaluation, Status, Verdict
from kerneljudge.terms.findings import Tool
from storage.grading.claims import Claims
from storage.grading.diagnoses import Diagnoses
from storage.models import DiagnosisStatus, StoredDiagnosis
from storage.queue import workers
from storage.queue.wakeups import WakeUp, take_requested_wakeups
from tests.worker.conftest import Installation
from worker.reconciler import Reconciler

Install = Callable[..., Installation]


def reconciler(installation: Installation, tools: Collection[Tool] = ()) -> Reconciler:
    def register(session: Session) -> None:
        workers.register(session, "w", kind="build", queues=["build"], device=None, capabilities={})

    return Reconciler(
        installation.settings,
        installation.sessions,
        worker="w",
        queues=[],
        current_submission=lambda: None,
        register=register,
        tools=tools,
    )


def test_a_worker_that_was_struck_off_registers_again(install: Install) -> None:
    installation = install()
    one = reconciler(installation)
    for _ in range(2):
        one.reconcile()
        with installation.readers() as session:
            assert [worker.id for worker in workers.list_workers(session)] == ["w"]
        with installation.sessions.begin() as session:
            workers.unregister(session, "w")


def test_it_goes_on_after_an_error_that_nobody_expected(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    installation = install(reconcile_s=0.05)
    one, passes = reconciler(installation), []

    def failing() -> None:
        passes.append(1)
        raise KeyError("surprise")

    monkeypatch.setattr(one, "reconcile", failing)
    with one:
        deadline = time.monotonic() + 10
        while len(passes) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
    assert len(passes) >= 3


@pytest.mark.parametrize("slept", [True, False])
def test_leases_that_expired_while_the_machine_slept_get_time_to_be_renewed(
    install: Install, monkeypatch: pytest.MonkeyPatch, slept: bool
) -> None:
    installation = install(lease_s=10)
    submission_id = installation.submit()
    one = reconciler(installation)
    one.reconcile()
    with installation.sessions.begin() as session:
        # Overdue already.
        assert Claims(session).claim(submission_id, "build", "other", -1.0) is not None
    now = time.time() + (3600 if slept else 0)
    monkeypatch.setattr("worker.reconciler.time.time", lambda: now)
    one.reconcile()
    assert installation.read(submission_id).status == (Status.BUILDING if slept else Status.QUEUED)
    for _ in range(3):
        now += 4
        one.reconcile()
    assert installation.read(submission_id).status == Status.QUEUED


def test_after_the_clock_was_set_back_a_dead_workers_submission_is_free_in_time(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.grading.leases._LONGEST_S", 0.5)
    # Passes that are further apart than the usual time would count as a sleep.
    installation = install(lease_s=0.3, reconcile_s=5)
    submission_id = installation.submit()
    one = reconciler(installation)
    ahead = time.time() + 3600
    with monkeypatch.context() as patch:
        # Lenient, as after a sleep, just before the clock is set back.
        patch.setattr("worker.reconciler.time.time", lambda: ahead)
        one.reconcile()
        ahead += 60
        one.reconcile()
        assert one._lenient()
    with installation.sessions.begin() as session:
        assert Claims(session).claim(submission_id, "build", "dead", 3600.0) is not None
    one.reconcile()
    assert installation.read(submission_id).status == Status.BUILDING
    time.sleep(0.7)
    one.reconcile()
    assert installation.read(submission_id).status == Status.QUEUED


def test_diagnoses_of_lost_workers_are_released_and_notified(install: Install) -> None:
    installation = install()
    submission_id = installation.submit(device="cuda")
    fault = {"device_fault": "illegal memory access"}
    evaluation = Evaluation(Verdict.RUNTIME_ERROR, "CUDA error", "relu", "1", "cuda", "smoke", "float32", details=fault)
    installation.serve("diagnose.compute-sanitizer")
    with installation.sessions.begin() as session:
        claims, diagnoses = Claims(session), Diagnoses(session)
        built = claims.claim(submission_id, "build", "b", 10)
        assert built is not None
        assert claims.record_built(built, seconds=0.0, log="")
        evaluated = claims.claim(submission_id, "evaluate", "e", 10)
        assert evaluated is not None
        assert claims.record_evaluation(evaluated, evaluation, diagnose=True)
        # Overdue already.
        assert diagnoses.claim(submission_id, Tool.MEMCHECK, "gone", -1.0) is not None
    wakeups = []
    event.listen(
        installation.sessions, "before_commit", lambda session: wakeups.extend(take_requested_wakeups(session))
    )
    one = reconciler(installation, tools=[Tool.MEMCHECK])
    one.reconcile()
    released = installation.diagnosis(submission_id)
    assert (released.state, released.faults) == (DiagnosisStatus.PENDING, 1)
    assert "worker gone was lost" in released.message
    with installation.sessions.begin() as session:
        session.execute(update(StoredDiagnosis).values(not_before=None))
    reconciler(installation).reconcile()
    assert wakeups == []
    one.reconcile()
    assert wakeups == [WakeUp("diagnose.compute-sanitizer", if_empty=True)]
