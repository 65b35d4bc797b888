"""A Celery broker that is a folder: one file a message, one folder a queue, no server.

kombu's own ``filesystem`` transport writes a message in place, so that a consumer may read half of it and crash. It
writes its routing table in the same way. Here a message appears by ``rename``, and belongs to the consumer that
succeeds in unlinking it. Consumers wait at a named pipe, into which a producer writes one byte for each message. A
message therefore arrives at once, and no consumer polls the folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import stat
import time
from pathlib import Path
from queue import Empty
from typing import Any, Final

from kombu.transport import virtual

__all__ = ["FolderChannel", "FolderTransport"]

_LONGEST_DRAIN_S: Final = 0.25
_POLL_S: Final = 0.02
_PIPE: Final = ".arrived"


class FolderChannel(virtual.Channel):
    """Messages below ``transport_options["folder"]``, oldest first."""

    def _put(self, queue: str, message: Any, **_: Any) -> None:
        folder = self._folder(queue)
        name = f"{time.time_ns():020d}-{secrets.token_hex(8)}"
        draft = folder / f".{name}"
        draft.write_text(json.dumps(message))
        draft.rename(folder / name)
        with contextlib.suppress(OSError):  # no consumer waits, or the pipe has bytes enough
            pipe = os.open(folder / _PIPE, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                os.write(pipe, b".")
            finally:
                os.close(pipe)

    def open_pipe(self, queue: str) -> int:
        """Return a descriptor that becomes readable with the next message.

        Raises ``OSError`` where the file system has no pipes.
        """
        path = self._folder(queue) / _PIPE
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path)
        # Opened for writing as well: without a writer, the pipe would be readable all the time.
        pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISFIFO(os.fstat(pipe).st_mode):
            os.close(pipe)
            raise FileExistsError(f"{path} is no pipe")
        return pipe

    @property
    def queues(self) -> frozenset[str]:
        """The queues that this channel consumes from."""
        return frozenset(self._active_queues)

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


class FolderTransport(virtual.Transport):
    """The transport of the broker URL ``folder:///path``."""

    Channel = FolderChannel
    implements = virtual.Transport.implements.extend(asynchronous=False, exchange_type=frozenset(["direct"]))
    # Queues and exchanges as this process declared them; the messages are in the folder.
    global_state = virtual.BrokerState()  # type: ignore[no-untyped-call] # kombu's
    default_port = None
    driver_type = "folder"
    driver_name = "folder"

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)  # type: ignore[no-untyped-call] # kombu's
        self.state = self.global_state
        self._pipes: dict[str, int] = {}

    def drain_events(self, connection: Any, timeout: float | None = None, **_: Any) -> Any:
        """Do as kombu's method, but return soon: a consumer checks only between calls whether it is to stop."""
        deadline = None if timeout is None else time.monotonic() + min(timeout, _LONGEST_DRAIN_S)
        while True:
            try:
                return super().drain_events(connection, 0)  # type: ignore[no-untyped-call] # kombu's
            except TimeoutError:
                left_s = _LONGEST_DRAIN_S if deadline is None else deadline - time.monotonic()
                if left_s <= 0:
                    raise
            self._await_message(left_s)

    def close_connection(self, connection: Any) -> None:
        super().close_connection(connection)  # type: ignore[no-untyped-call] # kombu's
        while self._pipes:
            os.close(self._pipes.popitem()[1])

    def _await_message(self, most_s: float) -> None:
        """Wait up to ``most_s`` seconds until there may be a message to take."""
        if not all(channel.qos.can_consume() for channel in self.channels):
            time.sleep(min(most_s, _POLL_S))  # for room to take one, of which no pipe tells
            return
        new = [(channel, queue) for channel in self.channels for queue in channel.queues - self._pipes.keys()]
        try:
            for channel, queue in new:
                self._pipes[queue] = channel.open_pipe(queue)
        except OSError:
            time.sleep(min(most_s, _POLL_S))
            return
        if new:
            return  # a new pipe tells nothing of earlier messages
        poller = select.poll()
        for pipe in self._pipes.values():
            poller.register(pipe, select.POLLIN)
        for pipe, _ in poller.poll(1000 * most_s)[:1]:
            with contextlib.suppress(BlockingIOError):  # another consumer had it
                os.read(pipe, 1)  # and no more: the next byte is for another consumer

    def driver_version(self) -> str:
        return "1"
