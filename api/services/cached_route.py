"""Routes that share one answer among all callers without a key (see ``api.services.response_cache``)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi import Request, Response
from fastapi.routing import APIRoute

from api.services.auth import identify
from api.services.container import Services

__all__ = ["SharedRoute"]

_MAX_KEY: Final = 2048
"""Keys take memory as well. No address of ours is that long."""


class SharedRoute(APIRoute):
    """A route whose answers depend on the address, on ``Accept`` and on the caller, and on nothing else."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return a handler that looks into the shared answers first, and calls FastAPI's for the others."""
        make = super().get_route_handler()

        async def handle(request: Request) -> Response:
            services: Services = request.app.state.services
            caller = await identify(request, services)
            if caller.key_id is not None:
                return await make(request)
            # The key contains the host as well, because pages name their own address.
            key = (str(request.base_url), request.url.path, request.url.query, request.headers.get("accept", ""))
            if sum(map(len, key)) > _MAX_KEY:
                return await make(request)
            return await services.response_cache.get(key, lambda: make(request))

        return handle
