"""An exception of the candidate's: the kind of its failure, and a text for the candidate's author."""

from __future__ import annotations

import traceback
from pathlib import Path

import torch

from evaluator.protocol.control_page import Failure

__all__ = ["classify", "describe"]

_MAX_FRAMES = 6
_MAX_CHARACTERS = 6000
# The second: torch calls NVML for the memory in use when a CUDA device is full, and a sandbox has no NVML.
_NO_MEMORY = ("can't allocate memory", "DriverAPI::get()->nvmlInit_v2_()")


def classify(error: BaseException) -> Failure:
    """Return ``OUT_OF_MEMORY`` or ``RUNTIME``."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return Failure.OUT_OF_MEMORY
    # Only for torch's own: the text of a candidate's exception is the result of the candidate's code.
    if type(error) is RuntimeError and any(sign in str(error) for sign in _NO_MEMORY):
        return Failure.OUT_OF_MEMORY
    return Failure.RUNTIME


def describe(error: BaseException, directory: Path) -> str:
    """Return ``Type: message`` first, then the frames in the candidate's own files, innermost last."""
    try:
        return _describe(error, directory)
    except BaseException:  # noqa: BLE001 - an exception of the candidate's can do anything when it is looked at
        return f"{type(error).__name__}, which cannot be described"


def _describe(error: BaseException, directory: Path) -> str:
    summary = traceback.TracebackException.from_exception(error, limit=None, capture_locals=False)
    headline = "".join(summary.format_exception_only()).strip()
    frames = [frame for frame in summary.stack if frame.filename.startswith(str(directory))]
    lines = [
        f"  {Path(frame.filename).name}, line {frame.lineno}, in {frame.name}"
        + (f": {frame.line}" if frame.line else "")
        for frame in frames[-_MAX_FRAMES:]
    ]
    return "\n".join([headline, *lines])[:_MAX_CHARACTERS]
