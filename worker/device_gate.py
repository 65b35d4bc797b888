"""Blocks work on a device until it is healthy.

A self-test must pass before a worker takes its first submission, and after its device was taken out. Before each
evaluation, or group of evaluations, the health of the device is read. Until then the worker waits here with at most one
message.
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
from evaluator.errors import EvaluationCancelled
from evaluator.selftest import SelfTest
from storage.models import WorkerState
from storage.queue.workers import Condition
from worker.periodic import Periodic

__all__ = ["DeviceGate"]

_FAULTS: Final = 3
_SUBMISSIONS: Final = 2
"""Faults with so many different submissions are the device's doing, and not that of one of them."""

_WINDOW_S: Final = 600.0
_LONGEST_REST_S: Final = 600.0
_WAIT_S: Final = 0.25

_log = logging.getLogger(__name__)


class DeviceGate(Periodic):
    """Who may use a worker's device, and why nobody may. A context manager; its thread looks while the device is idle.

    ``test``: the self-test, ``None`` to do without. ``own_processes``: those of ours that hold memory of the device.
    ``backoff_s``: how long a device that was taken out rests before it is tested again; each time twice as long, up to
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
        # Held by whoever uses the device: an evaluation, a look or a self-test.
        self._using = threading.Lock()
        self._condition = Condition(WorkerState.TESTING if test else WorkerState.READY)
        self._failures = 0
        self._test_due_at = 0.0
        self._faults: deque[tuple[float, str]] = deque()

    @property
    def condition(self) -> Condition:
        """Whether the device may be used, as far as it was last looked at."""
        if self._stopping.is_set():
            return Condition(WorkerState.STOPPING, "it was asked to end")
        return self._condition

    @contextmanager
    def use(self) -> Iterator[bool]:
        """The device, once it is fit; ``False`` if the worker is stopped before."""
        while not self._stopping.is_set():
            with self._using:
                if self._examine():
                    yield True
                    return
            self._stopping.wait(_WAIT_S)
        yield False

    def fault(self, submission_id: str, detail: str) -> None:
        """The machine has failed while this submission was on the device. For whoever uses it."""
        now = time.monotonic()
        self._faults.append((now, submission_id))
        while now - self._faults[0][0] > _WINDOW_S:
            self._faults.popleft()
        if len(self._faults) >= _FAULTS and len({each for _, each in self._faults}) >= _SUBMISSIONS:
            count, minutes = len(self._faults), _WINDOW_S / 60
            self._faults.clear()
            self._take_out(f"{count} faults within {minutes:.0f} minutes, the last: {detail}")

    def work(self) -> None:
        """Look at the device, unless somebody uses it."""
        if self._stopping.is_set() or not self._using.acquire(blocking=False):
            return
        try:
            self._examine()
        finally:
            self._using.release()

    def _examine(self) -> bool:
        """Whether the device may be used now."""
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
        """Whether the self-test does; what is to be done without one has rested, and that is all."""
        if self._test is None:
            self._failures = 0
            return True
        try:
            result = self._test()
        except EvaluationCancelled:
            return False
        except Exception as error:  # noqa: BLE001 - whatever it is, what cannot be tested is not to be used
            _log.exception("the self-test: unexpected")
            result = SelfTest(f"internal error: {type(error).__name__}: {error}", 0.0)
        if result.passed:
            _log.info("the self-test passed in %.1f s", result.seconds)
            self._failures = 0
        else:
            self._take_out(f"the self-test failed: {result.failure}")
        return result.passed

    def _take_out(self, reason: str) -> None:
        backoff_s = min(self._backoff_s * 2**self._failures, _LONGEST_REST_S)
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
