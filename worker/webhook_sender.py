"""The sender of webhooks at the ends of batches.

Workers send them. Where machines that run candidates must have no network (``KERNELJUDGE_SEND_WEBHOOKS=false``), a
separate process does: ``python -m worker.webhook_sender``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import httpx
from sqlalchemy.orm import Session, sessionmaker

from evaluator import logs
from runtime.public_transport import Forbidden, Network, PublicTransport
from runtime.settings import Settings
from storage.batches.webhooks import Delivery, Webhooks, signature, standard_signature
from storage.database import DatabaseUnusable, create_engine_for, prepare_database, session_factory
from worker.heartbeat import HEARTBEAT
from worker.periodic import Periodic

__all__ = ["WebhookSender", "main"]

_ATTEMPT_S: Final = 10.0
"""The limit for a whole attempt, however slowly an answer comes in."""
_AT_ONCE: Final = 16

_log = logging.getLogger(__name__)


class WebhookSender(Periodic):
    """A thread that makes due deliveries, some at a time. A context manager.

    ``networks``: those that it may reach beside public addresses. ``alive`` is called after each check for due
    deliveries. The thread is not the reconciler's, because a receiver that does not answer must not delay a worker's
    heartbeat.
    """

    def __init__(
        self,
        sessions: sessionmaker[Session],
        readers: sessionmaker[Session],
        *,
        interval_s: float,
        networks: Sequence[Network] = (),
        transport: httpx.AsyncBaseTransport | None = None,
        attempt_s: float = _ATTEMPT_S,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        # A delivery that is in progress at the end is made again by another worker.
        super().__init__("webhook sender", interval_s, join_s=1.0)
        self._sessions = sessions
        self._readers = readers
        self._alive = alive
        self._attempt_s = attempt_s
        self._networks = tuple(networks)
        self._transport = transport

    def work(self) -> None:
        self.deliver()

    def deliver(self) -> int:
        """Make every delivery that is due; return their number."""
        count = 0
        while not self._ended.is_set():
            due = list(self._take())
            self._alive()
            if not due:
                break
            count += len(due)
            # Not ``asyncio.run``, which would wait for name servers that do not answer.
            loop = asyncio.new_event_loop()
            try:
                loop.run_until_complete(self._make_all(due))
            finally:
                loop.close()
        return count

    def _take(self) -> Iterator[Delivery]:
        """Take some of the due deliveries."""
        for _ in range(_AT_ONCE):
            with self._readers() as session:
                if not Webhooks(session).is_due():
                    return
            with self._sessions.begin() as session:
                delivery = Webhooks(session).take_due()
            if delivery is None:
                return
            yield delivery

    async def _make_all(self, deliveries: Sequence[Delivery]) -> None:
        """Send each delivery and record its result. A slow receiver does not delay the others."""
        # Redirects are not followed: the requested address was checked, but the redirect's target was not.
        async with httpx.AsyncClient(
            transport=self._transport or PublicTransport(self._networks),
            timeout=self._attempt_s,
            follow_redirects=False,
            trust_env=False,
        ) as client:
            made = (self._make(client, delivery) for delivery in deliveries)
            for fault in await asyncio.gather(*made, return_exceptions=True):
                if fault is not None:
                    raise fault

    async def _make(self, client: httpx.AsyncClient, delivery: Delivery) -> None:
        fault = await self._send(client, delivery)
        if fault:
            fields = {"batch": delivery.batch_id}
            _log.warning("attempt %d to tell of its end: %s", delivery.attempt, fault, extra={"fields": fields})
        # At once, before the delivery is due again and another sender takes it.
        with self._sessions.begin() as session:
            Webhooks(session).record(delivery, fault)

    async def _send(self, client: httpx.AsyncClient, delivery: Delivery) -> str:
        """Return why the receiver did not accept it, or an empty text. Of the answer, only its status is shown."""
        timestamp = str(int(time.time()))
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "kerneljudge",
            "X-Kerneljudge-Batch": delivery.batch_id,
            "X-Kerneljudge-Timestamp": timestamp,
            "X-Kerneljudge-Signature": signature(delivery.secret, timestamp, delivery.body),
            # The same for receivers that use a library of Standard Webhooks. A batch ends once, so its id is unique.
            "webhook-id": delivery.batch_id,
            "webhook-timestamp": timestamp,
            "webhook-signature": standard_signature(delivery.secret, delivery.batch_id, timestamp, delivery.body),
        }
        try:
            async with asyncio.timeout(self._attempt_s):
                async with client.stream("POST", delivery.url, content=delivery.body, headers=headers) as answer:
                    return "" if answer.is_success else f"the answer was {answer.status_code}"
        except TimeoutError:
            return f"no answer within {self._attempt_s:g} s"
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            _log.info("no answer from a receiver: %s: %s", type(error).__name__, error)
            return _reason(error)


def _reason(error: Exception) -> str:
    """Return the words for the batch's owner, who must not learn about the sender's network from them."""
    if isinstance(error, Forbidden):
        return "the service sends webhooks to public addresses alone, and to networks that its operator names"
    if isinstance(error, httpx.TimeoutException):
        return "no answer in time"
    if isinstance(error, httpx.ConnectError):
        return "no connection to the receiver"
    if isinstance(error, httpx.InvalidURL | UnicodeError):
        return "the address is not valid"
    return "no valid answer of HTTP"


def _note_alive() -> None:
    with contextlib.suppress(OSError):  # the health check will notice it; deliveries go on
        HEARTBEAT.touch()


def main() -> int:
    """Deliver until SIGTERM or SIGINT; return the exit status."""
    try:
        settings = Settings.load()
        logs.configure(settings.log_format, settings.log_level)
    except ValueError as error:
        print(f"python -m worker.webhook_sender: {error}", file=sys.stderr)
        return 2
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: ended.set())
    try:
        prepare_database(settings)
    except DatabaseUnusable as error:
        print(f"python -m worker.webhook_sender: {error}", file=sys.stderr)
        return 3
    database = create_engine_for(settings)
    sessions, readers = session_factory(database), session_factory(database, read_only=True)
    try:
        with WebhookSender(
            sessions, readers, interval_s=settings.reconcile_s, networks=settings.webhook_reach, alive=_note_alive
        ):
            _log.info("telling of the ends of batches")
            ended.wait()
    finally:
        database.dispose()
    return 0


if __name__ == "__main__":
    sys.exit(main())
