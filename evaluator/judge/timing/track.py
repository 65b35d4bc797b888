"""The tracks: kinds of measurement, each with figures of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from evaluator.protocol.control_page import CallMode

__all__ = ["INFERENCE", "INFERENCE_WARM", "TRAINING", "Track"]


@dataclass(frozen=True)
class Track:
    """The subject of a measurement. ``cold``: neither inputs nor weights are in the caches, and the device is busy
    until the call has requested its first kernels. Otherwise calls are as in a user's own loop, including the time of
    the requests."""

    name: str
    mode: CallMode
    cold: bool = True

    @property
    def title(self) -> str:
        return self.name.replace("_", ", ")


INFERENCE: Final = Track("inference", CallMode.FORWARD)
INFERENCE_WARM: Final = Track("inference_warm", CallMode.FORWARD, cold=False)
TRAINING: Final = Track("training", CallMode.BACKWARD)
