"""Keeping the beginning of a stranger's output, however much it is. Torch-free."""

from __future__ import annotations

import os
import threading
from typing import Final

__all__ = ["Capture"]

_PIECE_BYTES: Final = 2**16


class Capture:
    """A pipe that never fills: ``descriptor`` is for the writer, everything beyond ``limit_bytes`` is dropped."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._kept = bytearray()
        self._lock = threading.Lock()
        self._reader, self.descriptor = os.pipe()
        self._open = True
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def close_writer(self) -> None:
        """Close the writer's end. Call it once the writer has its own copy of ``descriptor``. Idempotent."""
        if self._open:
            os.close(self.descriptor)
            self._open = False

    def text(self, wait_s: float = 0.0) -> str:
        """Return the output kept so far; waits for the writers' end for at most ``wait_s`` seconds."""
        self._thread.join(wait_s)
        with self._lock:
            return self._kept.decode("utf-8", "replace")

    def _drain(self) -> None:
        while piece := os.read(self._reader, _PIECE_BYTES):
            with self._lock:
                self._kept += piece[: self._limit - len(self._kept)]
        os.close(self._reader)
