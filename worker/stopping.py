"""The stop of a worker process."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

__all__ = ["Stop"]


class Stop:
    """A request to end: nothing is claimed from then on, and work in progress goes back after ``drain_s`` seconds."""

    def __init__(self, drain_s: float) -> None:
        self.stopping = threading.Event()
        self.requeueing = threading.Event()
        self._drain_s = drain_s

    def soon(self) -> None:
        """Stop, called from the handler of a signal; the next signal ends this process at once."""
        if self.stopping.is_set():
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _end_at_once)
        self.stopping.set()
        if self._drain_s > 0:
            timer = threading.Timer(self._drain_s, self.requeueing.set)
            timer.daemon = True
            timer.start()
        else:
            self.requeueing.set()

    def now(self) -> None:
        """Stop, and hand all work in progress back at once."""
        self.stopping.set()
        self.requeueing.set()


def _end_at_once(number: int, _frame: FrameType | None) -> None:
    # The engine's processes end with this one, and the leases of the work in progress expire.
    os._exit(128 + number)
