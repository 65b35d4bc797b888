"""Flags: places in a candidate's source that a reader would want to see. They never decide a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

__all__ = ["Flag", "FlagKind"]


class FlagKind(StrEnum):
    """The kind of a finding; ``docs/methodology.md`` explains each."""

    LIBRARY_ONLY = "library_only"
    UNUSED_KERNEL = "unused_kernel"
    INHERITS_REFERENCE = "inherits_reference"
    EXCEPTION_FALLBACK = "exception_fallback"
    PRECISION_SHORTCUT = "precision_shortcut"
    CACHES_OUTPUTS = "caches_outputs"
    READS_ITS_SURROUNDINGS = "reads_its_surroundings"
    PATCHES_LIBRARIES = "patches_libraries"
    CONCEALS_SOURCE = "conceals_source"


@dataclass(frozen=True)
class Flag:
    """One finding. ``line`` counts from 1 in the candidate's source, where there is such a line."""

    kind: FlagKind
    line: int | None
    message: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON-ready data; ``Flag.from_dict`` takes it back."""
        return {**asdict(self), "kind": str(self.kind)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Flag:
        """Inverse of ``to_dict``. Raises ``KeyError`` or ``ValueError`` on foreign data."""
        return cls(FlagKind(data["kind"]), data["line"], data["message"])
