"""kombu's Redis transport, whose consumers go on after an acknowledgement that Redis did not get.

kombu's own transport forgets a delivery only once Redis has got the acknowledgement. Where Redis goes away during a
task, the delivery counts against the prefetch for ever. The consumer then asks for no more messages, and never notices
the lost connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kombu.transport import redis, virtual

__all__ = ["QoS", "RedisChannel", "RedisTransport"]


class QoS(redis.QoS):
    """A QoS that forgets a delivery even where Redis cannot be reached, and raises the error all the same.

    Redis then delivers the message again after the visibility timeout, if it still has it.
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
            # The part of kombu's method that needs no connection.
            virtual.QoS.ack(self, delivery_tag)  # type: ignore[no-untyped-call] # kombu's
            raise


class RedisChannel(redis.Channel):
    """kombu's channel with our ``QoS``."""

    QoS = QoS


class RedisTransport(redis.Transport):
    """The transport of the broker URLs ``redis://`` and ``rediss://``."""

    Channel = RedisChannel
