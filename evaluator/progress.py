"""The progress of an evaluation, and its callers' part in it. Torch-free."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

__all__ = ["NO_CALLBACKS", "Callbacks", "Progress", "never_cancelled"]


@dataclass(frozen=True)
class Progress:
    """The progress of an evaluation. ``share`` (0 to 1) is within the stage."""

    stage: str
    message: str = ""
    share: float | None = None


def _ignore(_progress: Progress) -> None:
    """Ignore the progress."""


def never_cancelled() -> bool:
    """Let the evaluation go on."""
    return False


@dataclass(frozen=True)
class Callbacks:
    """The functions that an evaluation calls in its own thread. They return at once.

    ``progress`` gets each step. Once ``cancelled`` returns true, the evaluation ends with ``EvaluationCancelled``.
    """

    progress: Callable[[Progress], None] = _ignore
    cancelled: Callable[[], bool] = never_cancelled


NO_CALLBACKS: Final = Callbacks()
"""The progress is ignored, and nothing is cancelled."""
