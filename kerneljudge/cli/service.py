"""The connection of a command to a service."""

from __future__ import annotations

from kerneljudge.client import DEFAULT_URL, Client

__all__ = ["connect", "reachable"]


def connect(url: str) -> Client:
    """Return the client that every command uses."""
    return Client(url)


def reachable(url: str | None) -> Client | None:
    """Return a client of the service at ``url``.

    Without a ``url``, it is the default service, or ``None`` where that is down.
    """
    client = connect(url or DEFAULT_URL)
    return client if url or client.is_up() else None
