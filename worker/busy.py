"""A clock of a process's busy time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["BusyClock"]


class BusyClock:
    """A clock that runs while at least one thread is ``working``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads = 0
        self._since = 0.0
        self._seconds = 0.0

    @property
    def seconds(self) -> float:
        """The busy seconds so far, including work in progress."""
        with self._lock:
            return self._seconds + (time.monotonic() - self._since if self._threads else 0.0)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Count this thread as busy until the end of the context."""
        with self._lock:
            if not self._threads:
                self._since = time.monotonic()
            self._threads += 1
        try:
            yield
        finally:
            with self._lock:
                self._threads -= 1
                if not self._threads:
                    self._seconds += time.monotonic() - self._since
