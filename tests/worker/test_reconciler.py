"""Reconciling: what it survives, and whom it spares."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from sqlalchemy.orm import Session

from evaluator.evaluation import Status
from storage import workers
from storage.claims import Claims
from tests.worker.conftest import Installation
from worker.reconciler import Reconciler

Install = Callable[..., Installation]


def reconciler(installation: Installation) -> Reconciler:
    def register(session: Session) -> None:
        workers.register(session, "w", kind="build", queues=["build"], device=None, capabilities={})

    return Reconciler(
        installation.settings,
        installation.sessions,
        worker="w",
        queues=[],
        current_submission=lambda: None,
        register=register,
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
