"""Metadata of users: a JSON object beside a submission, which is stored, returned and never interpreted."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

__all__ = ["MAX_DEPTH", "MAX_METADATA_BYTES", "canonical_json", "checked_metadata"]

MAX_METADATA_BYTES: Final = 4096
"""The size limit of one submission's metadata, as canonical JSON in UTF-8."""

MAX_DEPTH: Final = 16
"""The limit of objects and lists inside each other, the outermost object included."""


def canonical_json(value: Any) -> str:
    """Return ``value`` as JSON with sorted names and without white space. Equal values have equal texts."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True)


def checked_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return ``metadata``. Raises ``ValueError`` if it is too large or too deep, or cannot be stored as it is."""
    for value, depth in _parts(metadata, 1):
        if depth > MAX_DEPTH:
            raise ValueError(f"at most {MAX_DEPTH} objects and lists may be inside each other")
        if isinstance(value, str) and "\x00" in value:
            raise ValueError("it must not contain NUL characters")
        if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
            raise ValueError("it must not contain halves of surrogate pairs")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError("its numbers must be finite")
    size = len(canonical_json(metadata).encode())
    if size > MAX_METADATA_BYTES:
        raise ValueError(f"it has {size} bytes as canonical JSON, and {MAX_METADATA_BYTES} are allowed")
    return metadata


def _parts(value: Any, depth: int) -> Iterator[tuple[Any, int]]:
    """Yield every value and name in ``value``, with the depth of the innermost object or list around it."""
    waiting = [(value, depth)]
    while waiting:
        part, level = waiting.pop()
        yield part, level
        if isinstance(part, Mapping):
            waiting += [(each, level) for each in part]
            waiting += [(each, level + isinstance(each, dict | list)) for each in part.values()]
        elif isinstance(part, list):
            waiting += [(each, level + isinstance(each, dict | list)) for each in part]
