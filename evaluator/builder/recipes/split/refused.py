"""The reason why a source is not built by splitting it: for the ladder of recipes, never shown to an author."""

from __future__ import annotations

__all__ = ["Refused"]


class Refused(Exception):
    """This recipe does not build the request; the next one may. ``log`` is a tool's output, where there is one."""

    def __init__(self, reason: str, log: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.log = log
