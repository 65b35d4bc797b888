"""A Celery broker that is a folder: one file a message, one folder a queue, no server.

kombu's own ``filesystem`` transport writes a message in place, so that a consumer may read half of it
and die of that, and keeps its routing table in a file written the same way. Here a message appears by
``rename`` and belongs to whoever succeeds in unlinking it.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from pathlib import Path
from queue import Empty
from typing import Any, Final

from kombu.transport import virtual

__all__ = ["Channel", "Transport"]

_LONGEST_DRAIN_S: Final = 0.25


class Channel(virtual.Channel):
    """Messages below ``transport_options["folder"]``, oldest first."""

    def _put(self, queue: str, message: Any, **_: Any) -> None:
        folder = self._folder(queue)
        name = f"{time.time_ns():020d}-{secrets.token_hex(8)}"
        draft = folder / f".{name}"
        draft.write_text(json.dumps(message))
        draft.rename(folder / name)

    def _get(self, queue: str, timeout: float | None = None) -> Any:  # noqa: ARG002 - the interface
        folder = self._folder(queue)
        for name in self._names(folder):
            try:
                text = (folder / name).read_text()
                (folder / name).unlink()
            except FileNotFoundError:
                continue  # another consumer took it
            return json.loads(text)
        raise Empty

    def _size(self, queue: str) -> int:
        return len(self._names(self._folder(queue)))

    def _purge(self, queue: str) -> int:
        folder = self._folder(queue)
        names = self._names(folder)
        for name in names:
            (folder / name).unlink(missing_ok=True)
        return len(names)

    def _names(self, folder: Path) -> list[str]:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))  # noqa: PTH208 - polled often

    def _folder(self, queue: str) -> Path:
        folder = Path(self.connection.client.transport_options["folder"]) / queue
        folder.mkdir(parents=True, exist_ok=True)
        return folder


class Transport(virtual.Transport):
    """The transport of the broker URL ``folder:///path``."""

    Channel = Channel
    implements = virtual.Transport.implements.extend(asynchronous=False, exchange_type=frozenset(["direct"]))
    # Queues and exchanges as this process declared them; messages are what the folder holds.
    global_state = virtual.BrokerState()  # type: ignore[no-untyped-call] # kombu's
    polling_interval = 0.02
    default_port = None
    driver_type = "folder"
    driver_name = "folder"

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)  # type: ignore[no-untyped-call] # kombu's
        self.state = self.global_state

    def drain_events(self, connection: Any, timeout: float | None = None, **_: Any) -> Any:
        """As kombu's, but back soon: a consumer looks only in between whether it is to stop."""
        if timeout is not None:
            timeout = min(timeout, _LONGEST_DRAIN_S)
        return super().drain_events(connection, timeout)  # type: ignore[no-untyped-call] # kombu's

    def driver_version(self) -> str:
        return "1"
