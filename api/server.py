"""The web server around the application."""

from __future__ import annotations

import socket
from typing import Final

import uvicorn
from fastapi import FastAPI

from api.app import create_app
from api.services.container import Services
from runtime.settings import InvalidSettings, Settings

__all__ = ["Server", "make_server"]

_GRACE_S: Final = 5
_KEEP_ALIVE_S: Final = 75
"""Longer than clients and proxies keep a connection that they do not use: else one is closed as a request goes out."""


class Server(uvicorn.Server):
    """Lets everybody who waits go before it waits for open connections to end."""

    def __init__(self, config: uvicorn.Config, services: Services) -> None:
        super().__init__(config)
        self._services = services

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Uvicorn calls this once, in the event loop, when it was told to stop."""
        self._services.release_waiting()
        await super().shutdown(sockets)


def make_server(settings: Settings, *, app: FastAPI | None = None) -> Server:
    """The server for ``settings``; ``run`` it, or ``serve`` it in a running loop.

    Raises ``InvalidSettings`` where others than this machine could reach it without a key.
    """
    if settings.exposure is not None:
        raise InvalidSettings(settings.exposure)
    app = app or create_app(settings)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        # The strict one: the faster httptools takes trailers for headers, and a body for a request where a client
        # asks for an upgrade.
        http="h11",
        loop="auto",  # uvloop where there is one
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
        timeout_keep_alive=_KEEP_ALIVE_S,
    )
    return Server(config, app.state.services)
