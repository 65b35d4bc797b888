"""The progress of an evaluation, and its callers' part in it. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Progress", "ignore_progress", "never_cancelled"]


@dataclass(frozen=True)
class Progress:
    """The progress of an evaluation. ``share`` (0 to 1) is within the stage."""

    stage: str
    message: str = ""
    share: float | None = None


def ignore_progress(_progress: Progress) -> None:
    """Ignore the progress."""


def never_cancelled() -> bool:
    """Let the evaluation go on."""
    return False
