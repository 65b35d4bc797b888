"""Waiting for something to become true."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

__all__ = ["POLL_S", "until"]

POLL_S: Final = 0.1


def until(condition: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
    """Wait until ``condition`` holds. Raises ``TimeoutError``."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_s:g} s in vain for {what}")
        time.sleep(POLL_S)
