"""``enum.StrEnum``, which Python 3.10 does not have."""

from __future__ import annotations

import sys

__all__ = ["StrEnum"]

if sys.version_info >= (3, 11):
    from enum import StrEnum
else:
    from enum import Enum

    class StrEnum(str, Enum):
        """An enumeration whose members are texts, and are written as such."""

        __str__ = str.__str__
