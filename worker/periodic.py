"""A thread that does periodic work."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

__all__ = ["Periodic"]

_log = logging.getLogger(__name__)


class Periodic(ABC):
    """A context manager whose thread calls ``work`` every ``interval_s``, whatever ``work`` raises.

    ``join_s``: the seconds that the exit waits for a pass in progress; ``None``: until it is done.
    """

    def __init__(self, name: str, interval_s: float, *, join_s: float | None = None) -> None:
        self._interval_s = interval_s
        self._join_s = join_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def work(self) -> None:
        """Do one pass."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(self._join_s)

    def _run(self) -> None:
        while True:
            try:
                self.work()
            except Exception:  # noqa: BLE001 - whatever it is, a thread that ended would tell nobody any more
                _log.warning("%s: a pass failed; trying again", self._thread.name, exc_info=True)
            if self._ended.wait(self._interval_s):
                return
