"""How a worker process is asked to end."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

__all__ = ["Stop"]


class Stop:
    """Being asked to end: nothing is taken up from then on, and what is in progress goes back after a while."""

    def __init__(self, drain_s: float) -> None:
        self.stopping = threading.Event()
        self.handing_back = threading.Event()
        self._drain_s = drain_s

    def soon(self) -> None:
        """From the handler of a signal: stop; the next signal ends this process, whatever it is at."""
        if self.stopping.is_set():
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _end_at_once)
        self.stopping.set()
        if self._drain_s > 0:
            timer = threading.Timer(self._drain_s, self.handing_back.set)
            timer.daemon = True
            timer.start()
        else:
            self.handing_back.set()

    def now(self) -> None:
        """Stop, and let nothing go on."""
        self.stopping.set()
        self.handing_back.set()


def _end_at_once(number: int, _frame: FrameType | None) -> None:
    # What the engine started ends with this process, and the lease of what was in progress expires.
    os._exit(128 + number)
