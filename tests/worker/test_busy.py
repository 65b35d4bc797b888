"""How long a worker has had work."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from storage.queue.workers import list_workers, register
from tests.worker.conftest import Installation
from tests.worker.test_grading import grader
from worker.busy import BusyClock
from worker.reconciler import Reconciler

Install = Callable[..., Installation]


class Hands:
    """The hands of a clock, moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    hands = Hands()
    monkeypatch.setattr(time, "monotonic", hands.monotonic)
    return hands


def test_it_runs_while_there_is_work_and_once_for_all_that_there_is(hands: Hands) -> None:
    clock = BusyClock()
    hands.now += 5
    assert clock.seconds == 0
    with clock.working():
        hands.now += 2
        assert clock.seconds == 2, "what is under way counts"
        with clock.working():
            hands.now += 3
    hands.now += 10
    assert clock.seconds == 5
    with clock.working():
        hands.now += 1
    assert clock.seconds == 6


def test_work_that_fails_ends_as_well(hands: Hands) -> None:
    clock = BusyClock()

    def fail() -> None:
        with clock.working():
            hands.now += 2
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    hands.now += 7
    assert clock.seconds == 2


def test_a_heartbeat_tells_how_busy_a_worker_was(install: Install) -> None:
    installation = install()
    worker = grader(installation)
    with installation.sessions.begin() as session:
        register(session, "w", kind="evaluate", queues=["evaluate.cpu"], device="cpu", capabilities={})
    reconciler = Reconciler(
        installation.settings,
        installation.sessions,
        worker="w",
        queues=[],
        current_submission=lambda: None,
        register=lambda _: None,
        busy_s=lambda: worker.busy_s,
    )
    installation.submit("# evaluate: sleep 0.2")
    worker.build()
    before = worker.busy_s
    worker.evaluate()
    assert worker.busy_s - before >= 0.2
    reconciler.reconcile()
    with installation.readers() as session:
        (row,) = list_workers(session)
    assert row.busy_s == worker.busy_s
