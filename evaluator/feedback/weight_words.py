"""Sentences about the weights in a wrong answer. Torch-free."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

__all__ = ["listed", "sentences_about"]

_MAX_NAMES: Final = 3
_GROUPS: Final = {
    "without_counterpart": ("has no counterpart in the candidate", "have no counterpart in the candidate"),
    "differing": (
        "was constructed with another value under the same seed",
        "were constructed with other values under the same seed",
    ),
    "transposed": ("was found transposed", "were found transposed"),
}


def sentences_about(weights: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """A sentence for each group of ``details["weights"]`` of an evaluation; the names are the reference's."""
    for group, (one, several) in _GROUPS.items():
        found = weights.get(group, ())
        if found:
            names = [f"{weight['name']} ({', '.join(map(str, weight['shape']))})" for weight in found]
            yield f"{listed(names)} {one if len(names) == 1 else several}"


def listed(names: Sequence[str]) -> str:
    """List the first names, and the number of the others."""
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
