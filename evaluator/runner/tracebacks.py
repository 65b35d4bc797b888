"""An exception of the candidate's as a text for the candidate's author."""

from __future__ import annotations

import traceback
from pathlib import Path

__all__ = ["describe"]

_MAX_FRAMES = 6
_MAX_CHARACTERS = 6000


def describe(error: BaseException, directory: Path) -> str:
    """``Type: message`` first, then the frames in the candidate's own files, innermost last."""
    summary = traceback.TracebackException.from_exception(error, limit=None, capture_locals=False)
    headline = "".join(summary.format_exception_only()).strip()
    frames = [frame for frame in summary.stack if frame.filename.startswith(str(directory))]
    lines = [
        f"  {Path(frame.filename).name}, line {frame.lineno}, in {frame.name}"
        + (f": {frame.line}" if frame.line else "")
        for frame in frames[-_MAX_FRAMES:]
    ]
    return "\n".join([headline, *lines])[:_MAX_CHARACTERS]
