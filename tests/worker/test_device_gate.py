"""Who may use a device, and why nobody may."""

from __future__ import annotations

import threading
from collections.abc import Collection

import pytest

from evaluator.devices.health import DeviceHealth, Health
from evaluator.selftest import SelfTest
from storage.models import WorkerState
from tests.processes import wait_until
from worker.device_gate import DeviceGate


class Device(DeviceHealth):
    """A device whose health a test sets, and whose self-test goes as the test says."""

    def __init__(self) -> None:
        self.health = Health()
        self.failure = ""
        self.tests = 0
        self.closed = False

    def look(self, own: Collection[int] = ()) -> Health:  # noqa: ARG002 - the interface
        return self.health

    def forgive(self) -> None:
        self.health = Health(self.health.reasons, (), self.health.unchecked)

    def close(self) -> None:
        self.closed = True

    def test(self) -> SelfTest:
        self.tests += 1
        return SelfTest(self.failure, 0.1)


class Using:
    """Somebody who comes for the device on a thread of his own."""

    def __init__(self, gate: DeviceGate) -> None:
        self.allowed: bool | None = None
        self._gate = gate
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        with self._gate.use() as allowed:
            self.allowed = allowed


def gate(device: Device, *, stopping: threading.Event | None = None, tested: bool = True) -> DeviceGate:
    test = device.test if tested else None
    return DeviceGate(device, test, stopping=stopping or threading.Event(), interval_s=0.02, backoff_s=0.02)


def test_nobody_gets_the_device_before_the_self_test_has_passed() -> None:
    device = Device()
    one = gate(device)
    assert one.condition.state is WorkerState.TESTING
    with one.use() as allowed:
        assert allowed
    assert (device.tests, one.condition.state) == (1, WorkerState.READY)
    with one.use():
        pass
    assert device.tests == 1


def test_a_device_that_fails_its_self_test_is_out_until_it_passes_one() -> None:
    device = Device()
    device.failure = "the wrong candidate got passed"
    with gate(device) as one:
        waiting = Using(one)
        wait_until(lambda: one.condition.state is WorkerState.OUT, "being taken out")
        assert one.condition.reason == "the self-test failed: the wrong candidate got passed"
        assert waiting.allowed is None
        device.failure = ""
        waiting.thread.join(10)
        assert waiting.allowed
        assert one.condition.state is WorkerState.READY
    assert device.tests >= 2
    assert device.closed


def test_an_unhealthy_device_is_used_again_once_it_is_healthy_without_a_self_test() -> None:
    device = Device()
    one = gate(device)
    one.work()
    device.health = Health(("it is 95 °C hot",), unchecked=("Xid: no events",))
    waiting = Using(one)
    wait_until(lambda: one.condition.state is WorkerState.UNHEALTHY, "being unhealthy")
    assert (one.condition.reason, one.condition.unchecked) == ("it is 95 °C hot", ("Xid: no events",))
    device.health = Health()
    waiting.thread.join(10)
    assert (waiting.allowed, device.tests) == (True, 1)


def test_after_a_fault_of_the_hardware_only_a_self_test_brings_the_device_back() -> None:
    device = Device()
    with gate(device) as one:
        wait_until(lambda: one.condition.state is WorkerState.READY, "being ready")
        device.health = Health(events=("Xid 79 was reported: the GPU has fallen off the bus",))
        wait_until(lambda: device.tests == 2, "another self-test")
        wait_until(lambda: one.condition.state is WorkerState.READY, "being ready again")


@pytest.mark.parametrize(
    ("submissions", "out"), [(["a", "a", "a"], False), (["a", "b", "a"], True), (["a", "b"], False)]
)
def test_faults_with_different_submissions_take_the_device_out(submissions: list[str], out: bool) -> None:
    one = gate(Device())
    one.work()
    for submission_id in submissions:
        with one.use():
            one.fault(submission_id, "the judge died")
    assert (one.condition.state is WorkerState.OUT) == out
    if out:
        assert one.condition.reason == "3 faults within 10 minutes, the last: the judge died"


def test_without_a_self_test_a_device_that_was_taken_out_rests_and_comes_back() -> None:
    device = Device()
    one = gate(device, tested=False)
    for submission_id in "abc":
        with one.use():
            one.fault(submission_id, "the judge died")
    assert one.condition.state is WorkerState.OUT
    waiting = Using(one)
    waiting.thread.join(10)
    assert (waiting.allowed, device.tests) == (True, 0)


def test_whoever_waits_for_the_device_is_sent_away_when_the_worker_stops() -> None:
    device, stopping = Device(), threading.Event()
    device.health = Health(("it is 95 °C hot",))
    one = gate(device, stopping=stopping)
    waiting = Using(one)
    wait_until(lambda: one.condition.state is WorkerState.UNHEALTHY, "being unhealthy")
    stopping.set()
    waiting.thread.join(10)
    assert waiting.allowed is False
    assert one.condition.state is WorkerState.STOPPING


def test_nobody_looks_while_the_device_is_used() -> None:
    device = Device()
    one = gate(device)
    with one.use():
        device.health = Health(("others hold 40 GiB of its memory",))
        one.work()
        assert one.condition.state is WorkerState.READY
    one.work()
    assert one.condition.state is WorkerState.UNHEALTHY


def test_a_self_test_that_raises_is_one_that_fails() -> None:
    def broken() -> SelfTest:
        raise KeyError("surprise")

    one = DeviceGate(Device(), broken, stopping=threading.Event())
    one.work()
    assert one.condition.state is WorkerState.OUT
    # Everybody may read it.
    assert "KeyError" in one.condition.reason
    assert "surprise" not in one.condition.reason
