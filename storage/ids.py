"""Identifiers that sort in the order in which they were made."""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
import time
from typing import Final

__all__ = ["IdSource", "keyed_id", "new_id"]

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_LENGTH: Final = 26
_BITS: Final = 5
_RANDOM_BITS: Final = 80


class IdSource:
    """A source of ids of 26 digits in base 32: 48 bits of milliseconds, then 80 random bits.

    The ids of one source increase, even within one millisecond or when the clock is set back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def new(self, prefix: str) -> str:
        """Return a new id: ``prefix``, an underscore and the digits."""
        fresh = (time.time_ns() // 1_000_000) << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
        with self._lock:
            # A random step, not 1: the next id must not be predictable from this one.
            self._last = number = fresh if fresh > self._last else self._last + 1 + secrets.randbits(64)
        return _id(prefix, number)


new_id: Final = IdSource().new


def keyed_id(prefix: str, *key: str | None) -> str:
    """Return an id of the same form that is made from ``key``, so that a repeated request leads to the same one."""
    digest = hashlib.sha256(json.dumps([prefix, *key]).encode()).digest()
    return _id(prefix, int.from_bytes(digest) >> (8 * len(digest) - _BITS * _LENGTH))


def _id(prefix: str, number: int) -> str:
    digits = (_ALPHABET[number >> shift & 31] for shift in range(_BITS * (_LENGTH - 1), -1, -_BITS))
    return f"{prefix}_{''.join(digits)}"
