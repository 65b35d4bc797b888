"""Webhooks at the ends of batches: the due deliveries and their results.

Each webhook is a row with the time of the next attempt, so that none is lost when a process ends. A sender first
postpones that time, and only then makes the attempt. The sender is ``worker.webhook_sender``.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
from sqlalchemy import ColumnElement, or_, select, update
from sqlalchemy.orm import Session

from kerneljudge.summaries.summary import summarise
from storage.batches.batches import Batches
from storage.clock import database_now
from storage.metrics.counters import count
from storage.metrics.metrics import DELIVERIES
from storage.models import Batch, Webhook

__all__ = ["Delivery", "InvalidUrl", "Webhooks", "checked_secret", "checked_url", "signature", "standard_signature"]

_FIRST_PAUSE: Final = timedelta(seconds=30)
_LAST_PAUSE: Final = timedelta(hours=1)
_MAX_ATTEMPTS: Final = 30
"""With these pauses, attempts go on for about a day."""
_BASE64_FOLLOWS: Final = "whsec_"


class InvalidUrl(ValueError):
    """An address that is not allowed for a webhook."""


@dataclass(frozen=True)
class Delivery:
    """One attempt: the body, its address and the secret of its signature."""

    batch_id: str
    attempt: int
    url: str
    secret: str
    body: bytes


def checked_url(url: str) -> str:
    """Return ``url`` if it is an address of the web. Raises ``InvalidUrl``."""
    try:
        parts = urlsplit(url)
        port = parts.port
        # Names with an empty or too long part, and invalid punycode, are none that the sender can resolve.
        (parts.hostname or "").encode("idna")
        _ = httpx.URL(url).host
    except (ValueError, httpx.InvalidURL) as error:
        raise InvalidUrl(f"not an address: {error}") from error
    if parts.scheme not in ("http", "https"):
        raise InvalidUrl("must begin with http:// or https://")
    if not parts.hostname or port == 0 or not url.isascii() or any(char <= " " for char in url):
        raise InvalidUrl("must name a host, and be ASCII without spaces")
    if parts.username is not None or parts.password is not None:
        raise InvalidUrl("must not hold a password: requests are signed instead")
    return url


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """Return the signature for the receiver: HMAC-SHA256 over ``timestamp``, a full stop and ``body``."""
    return "sha256=" + hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def standard_signature(secret: str, message_id: str, timestamp: str, body: bytes) -> str:
    """Return the signature of Standard Webhooks: HMAC-SHA256 over ``message_id``, ``timestamp`` and ``body``.

    Their key is the secret itself, or the bytes that a secret with the prefix ``whsec_`` has in base64.
    """
    try:
        key = _standard_key(secret)
    except ValueError:
        key = secret.encode()  # a batch from before secrets were checked
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def checked_secret(secret: str) -> str:
    """Return ``secret``, if it can be the key of both signatures. Raises ``ValueError``."""
    try:
        key = _standard_key(secret)
    except ValueError as error:
        raise ValueError(f"must be base64 after {_BASE64_FOLLOWS}: {error}") from error
    if not key:
        raise ValueError(f"must hold a key after {_BASE64_FOLLOWS}")
    return secret


def _standard_key(secret: str) -> bytes:
    if not secret.startswith(_BASE64_FOLLOWS):
        return secret.encode()
    encoded = secret.removeprefix(_BASE64_FOLLOWS)
    return base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)


class Webhooks:
    """Queries and changes within one session; nothing here commits."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def is_due(self) -> bool:
        """Whether there is an attempt to make; a read, where ``take_due`` writes."""
        due = select(Webhook.batch_id).where(_is_due(database_now(self._session)))
        return self._session.scalar(due.limit(1)) is not None

    def take_due(self, now: datetime | None = None) -> Delivery | None:
        """Take the attempt that has been due longest, or ``None``.

        No other sender takes the same attempt, and the next one is due after a pause.
        """
        now = now or database_now(self._session)
        due = select(Webhook.batch_id, Webhook.attempts).where(_is_due(now)).order_by(Webhook.due_at)
        for batch_id, attempts in self._session.execute(due.limit(10)).all():
            again_at = now + _pause(attempts + 1) if attempts + 1 < _MAX_ATTEMPTS else None
            taken = self._session.scalar(
                update(Webhook)
                .where(Webhook.batch_id == batch_id, Webhook.attempts == attempts, _is_due(now))
                .values(attempts=attempts + 1, due_at=again_at)
                .returning(Webhook.batch_id)
                .execution_options(synchronize_session=False)
            )
            if taken is not None:
                webhook = self._session.get(Webhook, batch_id, populate_existing=True)
                assert webhook is not None
                return Delivery(batch_id, attempts + 1, webhook.url, webhook.secret, self._body(batch_id))
        return None

    def record(self, delivery: Delivery, fault: str) -> None:
        """Record the result of an attempt; ``fault`` is empty where the receiver has accepted it."""
        values: dict[str, Any] = {"message": fault}
        if not fault:
            values |= {"delivered_at": database_now(self._session), "due_at": None}
        self._session.execute(
            update(Webhook)
            .where(Webhook.batch_id == delivery.batch_id, Webhook.attempts == delivery.attempt)
            .values(values)
            .execution_options(synchronize_session=False)
        )
        count(self._session, DELIVERIES, "refused" if fault else "taken")

    def _body(self, batch_id: str) -> bytes:
        batches = Batches(self._session)
        batch = self._session.get(Batch, batch_id, populate_existing=True)
        assert batch is not None
        graded = batches.graded(batch_id)
        summary = summarise(graded, batches.facts({each.problem for each in graded}))
        progress = batches.progress(batch)
        content = {
            "event": "batch.finished",
            "batch": {
                "id": batch.id,
                "name": batch.name,
                "status": str(batch.state),
                "items": batch.items,
                "errors_total": batch.errors,
                "statuses": {str(status): count for status, count in progress.statuses.items()},
                "results": f"/api/v1/batches/{batch.id}/results",
            },
            "summary": summary.to_dict(),
        }
        return json.dumps(content).encode()


def _is_due(now: datetime) -> ColumnElement[bool]:
    """Return the SQL condition that an attempt is due; one beyond the longest pause is: the clock was set back."""
    return or_(Webhook.due_at <= now, Webhook.due_at > now + _LAST_PAUSE)


def _pause(attempts: int) -> timedelta:
    return min(_FIRST_PAUSE * (1 << min(attempts - 1, 10)), _LAST_PAUSE)
