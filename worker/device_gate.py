"""A gate that blocks work on a device until the device is healthy.

A self-test must pass before a worker takes its first submission, and again after its device was taken out of use.
Before each evaluation, or group of evaluations, the health of the device is read. Until the device is healthy, the
worker waits here with at most one message.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Final

from evaluator.devices.health import DeviceHealth
from evaluator.errors import EvaluationCancelled, public_text
from evaluator.selftest import SelfTest
from storage.models import WorkerState
from storage.queue.workers import Condition
from worker.periodic import Periodic

__all__ = ["DeviceGate"]

_FAULTS: Final = 3
_SUBMISSIONS: Final = 2
"""Faults with this many different submissions are put down to the device, not to one of the submissions."""

_WINDOW_S: Final = 600.0
_LONGEST_BACKOFF_S: Final = 600.0
_WAIT_S: Final = 0.25

_log = logging.getLogger(__name__)


class DeviceGate(Periodic):
    """The gate of a worker's device. A context manager, whose thread checks the device's health while it is not used.

    ``test``: the self-test; ``None``: there is none. ``own_processes``: our processes that have memory of the device.
    ``backoff_s``: the seconds before a device that was taken out of use is tested again; they double each time, up to
    ten minutes.
    """

    def __init__(
        self,
        health: DeviceHealth,
        test: Callable[[], SelfTest] | None,
        *,
        stopping: threading.Event,
        own_processes: Callable[[], Collection[int]] = tuple,
        interval_s: float = 2.0,
        backoff_s: float = 30.0,
    ) -> None:
        super().__init__("device gate", interval_s)
        self._health = health
        self._test = test
        self._stopping = stopping
        self._own_processes = own_processes
        self._backoff_s = backoff_s
        # Held by the user of the device: an evaluation, a health check or a self-test.
        self._using = threading.Lock()
        self._condition = Condition(WorkerState.TESTING if test else WorkerState.READY)
        self._failures = 0
        self._test_due_at = 0.0
        self._faults: deque[tuple[float, str]] = deque()

    @property
    def condition(self) -> Condition:
        """Whether the device may be used, as of the last health check."""
        if self._stopping.is_set():
            return Condition(WorkerState.STOPPING, "it was asked to end")
        return self._condition

    @contextmanager
    def use(self) -> Iterator[bool]:
        """Wait until the device is healthy, and reserve it for the block; yield ``False`` if the worker stops first."""
        while not self._stopping.is_set():
            with self._using:
                if self._examine():
                    yield True
                    return
            self._stopping.wait(_WAIT_S)
        yield False

    def fault(self, submission_id: str, detail: str) -> None:
        """Note a fault of the machine while this submission was on the device. Only for the user of the device.

        Too many faults within some minutes take the device out of use.
        """
        now = time.monotonic()
        self._faults.append((now, submission_id))
        while now - self._faults[0][0] > _WINDOW_S:
            self._faults.popleft()
        if len(self._faults) >= _FAULTS and len({each for _, each in self._faults}) >= _SUBMISSIONS:
            count, minutes = len(self._faults), _WINDOW_S / 60
            self._faults.clear()
            self._take_out(f"{count} faults within {minutes:.0f} minutes, the last: {detail}")

    def work(self) -> None:
        """Check the device's health, unless it is in use."""
        if self._stopping.is_set() or not self._using.acquire(blocking=False):
            return
        try:
            self._examine()
        finally:
            self._using.release()

    def _examine(self) -> bool:
        """Check the device, with a self-test where one is due; return whether it may be used now."""
        if self._condition.state is WorkerState.TESTING or self._condition.state is WorkerState.OUT:
            if time.monotonic() < self._test_due_at or not self._passes():
                return False
            self._health.forgive()
        health = self._health.look(self._own_processes())
        if health.events:
            self._take_out("; ".join(health.events))
        elif health.reasons:
            self._enter(Condition(WorkerState.UNHEALTHY, "; ".join(health.reasons), health.unchecked))
        else:
            self._enter(Condition(unchecked=health.unchecked))
        return health.sound

    def _passes(self) -> bool:
        """Run the self-test; return whether it passed. Without a test, the backoff that is over is enough."""
        if self._test is None:
            self._failures = 0
            return True
        try:
            result = self._test()
        except EvaluationCancelled:
            return False
        except Exception as error:  # noqa: BLE001 - whatever it is, what cannot be tested is not to be used
            _log.exception("the self-test: unexpected")
            result = SelfTest(f"internal error: {public_text(error)}", 0.0)
        if result.passed:
            _log.info("the self-test passed in %.1f s", result.seconds)
            self._failures = 0
        else:
            self._take_out(f"the self-test failed: {result.failure}")
        return result.passed

    def _take_out(self, reason: str) -> None:
        backoff_s = min(self._backoff_s * 2**self._failures, _LONGEST_BACKOFF_S)
        self._failures += 1
        self._test_due_at = time.monotonic() + backoff_s
        self._enter(Condition(WorkerState.OUT, reason, self._condition.unchecked))
        _log.warning("it is tried again in %.0f s", backoff_s)

    def _enter(self, condition: Condition) -> None:
        before, self._condition = self._condition, condition
        if condition.state is WorkerState.READY:
            if before.state is not WorkerState.READY:
                _log.info("the device is fit to be used")
        elif (before.state, before.reason) != (condition.state, condition.reason):
            _log.warning("this worker takes nothing: %s", condition.reason)

    def _run(self) -> None:
        try:
            super()._run()
        finally:
            self._health.close()
