"""The command line, as the tests of the client have it."""

from __future__ import annotations

from tests.kerneljudge.conftest import app, cli, online, pauses, seeds, service, transport

__all__ = ["app", "cli", "online", "pauses", "seeds", "service", "transport"]
