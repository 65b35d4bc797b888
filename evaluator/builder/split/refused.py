"""Why a source is not built by splitting it: a value for the ladder of recipes, and nothing that an author reads."""

from __future__ import annotations

__all__ = ["Refused"]


class Refused(Exception):
    """This recipe does not build the request; the next one may. ``log`` is what a tool said, where one spoke."""

    def __init__(self, reason: str, log: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.log = log
