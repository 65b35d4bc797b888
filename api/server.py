"""The web server around the application."""

from __future__ import annotations

import socket
from typing import Final

import uvicorn
from fastapi import FastAPI

from api.app import create_app
from api.http.protocol import BoundedProtocol, close_stalled, raise_descriptor_limit
from api.routes import batches
from api.services.container import Services
from runtime.settings import InvalidSettings, Settings

__all__ = ["Server", "make_server"]

_GRACE_S: Final = 5
_KEEP_ALIVE_S: Final = 75
"""More than the idle timeout of clients and proxies.

Otherwise a connection is closed while a request goes out on it.
"""


class _Protocol(BoundedProtocol):
    streamed = (batches.STREAMED,)


class Server(uvicorn.Server):
    """A server that releases all waiting requests before it waits for open connections to end."""

    def __init__(self, config: uvicorn.Config, services: Services) -> None:
        super().__init__(config)
        self._services = services

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, with as many descriptors as this process may have."""
        raise_descriptor_limit()
        await super().startup(sockets)

    async def on_tick(self, counter: int) -> bool:
        """Close the connections that stand still, once a second. Uvicorn calls this ten times a second."""
        if counter % 10 == 0:
            close_stalled(self.server_state.connections)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Release the waiting requests. Uvicorn calls this once, in the event loop, when it was told to stop."""
        self._services.release_waiting()
        await super().shutdown(sockets)


def make_server(settings: Settings, *, app: FastAPI | None = None) -> Server:
    """Return the server for ``settings``; ``run`` it, or ``serve`` it in a running loop.

    Raises ``InvalidSettings`` where other machines than this one could reach it without a key.
    """
    if settings.exposure is not None:
        raise InvalidSettings(settings.exposure)
    app = app or create_app(settings)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        # The strict parser. The faster httptools takes trailers for headers, and takes a body for a request where a
        # client asks for an upgrade.
        http=_Protocol,
        loop="auto",  # uvloop where it is installed
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
        timeout_keep_alive=_KEEP_ALIVE_S,
    )
    return Server(config, app.state.services)
