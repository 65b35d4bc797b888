"""kombu's Redis transport, whose consumers go on after an acknowledgement that Redis did not get.

kombu's own forgets a delivery only once Redis has been told. Where Redis went away during a task, the delivery then
counts against the prefetch for ever: nothing more is asked for, and so the lost connection is never noticed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kombu.transport import redis, virtual

__all__ = ["QoS", "RedisChannel", "RedisTransport"]


class QoS(redis.QoS):
    """Forgets what was taken even where Redis cannot be told, and raises all the same.

    Redis then hands the message out again after the visibility timeout, if it still has it.
    """

    def ack(self, delivery_tag: str) -> None:
        with self._forgetting(delivery_tag):
            super().ack(delivery_tag)  # type: ignore[no-untyped-call] # kombu's

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        with self._forgetting(delivery_tag):
            super().reject(delivery_tag, requeue)  # type: ignore[no-untyped-call] # kombu's

    @contextmanager
    def _forgetting(self, delivery_tag: str) -> Iterator[None]:
        try:
            yield
        except Exception:
            # Of all that kombu's does, the part that needs no connection.
            virtual.QoS.ack(self, delivery_tag)  # type: ignore[no-untyped-call] # kombu's
            raise


class RedisChannel(redis.Channel):
    """kombu's, with our ``QoS``."""

    QoS = QoS


class RedisTransport(redis.Transport):
    """The transport of the broker URLs ``redis://`` and ``rediss://``."""

    Channel = RedisChannel
