"""Tells whoever wants to know that a batch is over."""

from __future__ import annotations

import logging
import time
from typing import Final

import httpx
from sqlalchemy.orm import Session, sessionmaker

from storage.webhooks import Delivery, Webhooks, signature
from worker.periodic import Periodic

__all__ = ["Courier"]

_TIMEOUT_S: Final = 10.0
_DETAIL_CHARACTERS: Final = 300

_log = logging.getLogger(__name__)


class Courier(Periodic):
    """A thread of every worker that makes the deliveries that are due. A context manager.

    It is no part of the reconciler's: a receiver that does not answer must not keep a worker from its heartbeat.
    """

    def __init__(
        self,
        sessions: sessionmaker[Session],
        readers: sessionmaker[Session],
        *,
        interval_s: float,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        # A delivery that is under way at the end is made again by another worker.
        super().__init__("courier", interval_s, join_s=1.0)
        self._sessions = sessions
        self._readers = readers
        # Redirects are not followed: what was asked for was checked, and where they lead to was not.
        self._http = httpx.Client(transport=transport, timeout=_TIMEOUT_S, follow_redirects=False, trust_env=False)

    def work(self) -> None:
        self.deliver()

    def deliver(self) -> int:
        """Make every delivery that is due; returns how many there were."""
        count = 0
        while not self._ended.is_set():
            with self._readers() as session:
                if not Webhooks(session).is_due():
                    break
            with self._sessions.begin() as session:
                delivery = Webhooks(session).take_due()
            if delivery is None:
                break
            count += 1
            fault = self._send(delivery)
            if fault:
                fields = {"batch": delivery.batch_id}
                _log.warning("attempt %d to tell of its end: %s", delivery.attempt, fault, extra={"fields": fields})
            with self._sessions.begin() as session:
                Webhooks(session).record(delivery, fault)
        return count

    def _send(self, delivery: Delivery) -> str:
        """Why it was not taken, or nothing. Of the answer, nobody is shown more than its status."""
        timestamp = str(int(time.time()))
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "kerneljudge",
            "X-Kerneljudge-Batch": delivery.batch_id,
            "X-Kerneljudge-Timestamp": timestamp,
            "X-Kerneljudge-Signature": signature(delivery.secret, timestamp, delivery.body),
        }
        try:
            with self._http.stream("POST", delivery.url, content=delivery.body, headers=headers) as answer:
                return "" if answer.is_success else f"the answer was {answer.status_code}"
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return f"{type(error).__name__}: {error}"[:_DETAIL_CHARACTERS]

    def _run(self) -> None:
        with self._http:
            super()._run()
