"""Numbers in the bodies of requests."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator

__all__ = ["WholeNumber"]


def _whole(value: object) -> object:
    """Return a whole number for one that is written with a fraction of zero; JSON knows no difference."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WholeNumber = Annotated[int, BeforeValidator(_whole)]
"""An integer as JSON Schema defines it: ``2.0`` is one, and ``true`` and ``"2"`` are none."""
