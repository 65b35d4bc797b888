"""Rows that workers claim for a time: claim, renew, release, and record faults.

A claim is one ``UPDATE … WHERE`` on a waiting row, so exactly one worker wins. It has a token: a result is dropped if
its worker's claim is gone, because the lease expired or the work was cancelled.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from datetime import datetime, timedelta
from typing import Any, Final, Generic, Protocol, TypeVar

from sqlalchemy import CursorResult, and_, inspect, select, update
from sqlalchemy.orm import Session

from storage.clock import database_now
from storage.models import AttemptOutcome, Leased
from storage.queue.backoff import backoff_after
from storage.queue.wakeups import request_wakeup
from storage.queue.workers import serving_ids

__all__ = ["UNCLAIMED", "LeaseQueue"]

_LONGEST_S: Final = 3600.0
"""No lease is longer, unless this process's own are. Others may have other settings, or older ones."""
_LONGER: Final = 2
UNCLAIMED: Final[dict[str, Any]] = {"claim_token": None, "claim_worker": None, "lease_until": None}
"""The columns of a row that is not claimed."""


class _Claimed(Protocol):
    @property
    def token(self) -> str: ...


_Row = TypeVar("_Row", bound=Leased)
_Claim_contra = TypeVar("_Claim_contra", bound=_Claimed, contravariant=True)


class LeaseQueue(ABC, Generic[_Row, _Claim_contra]):
    """The claims on the rows of one table, within one session; nothing here commits.

    A subclass names the ``_table``, and the columns of a row that waits, shows progress or has failed.
    """

    _table: type[_Row]

    def __init__(self, session: Session) -> None:
        self._session = session

    def renew(
        self, claim: _Claim_contra, lease_s: float, progress: tuple[str, str, float | None] | None = None
    ) -> bool:
        """Extend the lease and show ``progress`` (stage, message, share); ``False``: the claim is lost or cancelled."""
        values = {"lease_until": database_now(self._session) + timedelta(seconds=lease_s)}
        return self._set(claim.token, values if progress is None else {**values, **self._progress(*progress)})

    def holds(self, claim: _Claim_contra) -> bool:
        """Whether the claim is still valid; this only reads, while ``renew`` writes."""
        held = select(self._table.claim_token).where(self._table.claim_token == claim.token)
        return self._session.scalar(held) is not None

    def record_fault(self, claim: _Claim_contra, detail: str, *, retriable: bool, max_attempts: int) -> bool:
        """Record a fault of ours: queue the row again after a backoff, or end it as ``failed``.

        It fails if the fault is not ``retriable``, or with the ``max_attempts``-th fault. ``False``: the claim is gone.
        """
        return self._fault(claim.token, "fault", detail, max_attempts if retriable else 0)

    def release(self, claim: _Claim_contra, why: str = "the worker was stopped") -> bool:
        """Queue the row again without a fault. ``False``: the claim is gone."""
        now = database_now(self._session)
        row = self._held(claim.token)
        if row is None or not self._set(claim.token, {**UNCLAIMED, **self._waiting()}):
            return False
        self._ended(row, claim.token, "released", why, now, failed=False)
        self._notify(row)
        return True

    def release_expired(self, max_attempts: int, now: datetime | None = None) -> int:
        """Take rows from workers whose leases have expired; return their number."""
        now = now or database_now(self._session)
        expired = select(self._table.claim_token, self._table.claim_worker).where(self._table.lease_until < now)
        in_order = expired.order_by(*inspect(self._table).primary_key)
        released = 0
        for token, worker in self._session.execute(in_order).all():
            assert token is not None
            detail = f"worker {worker} was lost: it stopped renewing its lease"
            released += self._fault(token, "lost", detail, max_attempts, expired_before=now)
        return released

    def shorten(self, lease_s: float) -> int:
        """Shorten leases that end later than any can, since the clock was set back; return their number.

        ``lease_s``: this process's lease. That of another worker may be longer, up to an hour. A worker that lives
        renews its own.
        """
        latest = database_now(self._session) + timedelta(seconds=max(_LONGEST_S, _LONGER * lease_s))
        beyond = select(self._table.claim_token).where(self._table.lease_until > latest)
        tokens = self._session.scalars(beyond.order_by(*inspect(self._table).primary_key)).all()
        return sum(self._set(token, {"lease_until": latest}) for token in tokens if token is not None)

    @abstractmethod
    def _waiting(self) -> dict[str, Any]:
        """Return the columns of a row that waits again."""

    @abstractmethod
    def _progress(self, stage: str, message: str, share: float | None) -> dict[str, Any]:
        """Return the columns that show progress."""

    @abstractmethod
    def _failed(self, row: _Row, outcome: AttemptOutcome, detail: str, now: datetime) -> dict[str, Any]:
        """Return the columns of a row that has failed for good, its ``message`` among them."""

    @abstractmethod
    def _notify(self, row: _Row) -> None:
        """Request a wake-up for ``row``, which waits again."""

    def _backoff(self, outcome: AttemptOutcome, faults: int) -> timedelta:  # noqa: ARG002 - for subclasses
        """Return the pause before the next attempt, after this many faults."""
        return backoff_after(faults)

    def _ended(
        self, row: _Row, token: str, outcome: AttemptOutcome, detail: str, now: datetime, *, failed: bool
    ) -> None:
        """Note the end of a claim; ``failed``: the row has failed for good."""

    def _take(self, waiting: Any, worker: str, lease_s: float, now: datetime, values: dict[str, Any]) -> str | None:
        """Claim the row that meets ``waiting``, and set ``values``; return the claim's token, or ``None``."""
        token = secrets.token_hex(16)
        until = now + timedelta(seconds=lease_s)
        claimed = {"claim_token": token, "claim_worker": worker, "lease_until": until, "not_before": None}
        return token if self._update(waiting, {**claimed, **values}) else None

    def _fault(
        self,
        token: str,
        outcome: AttemptOutcome,
        detail: str,
        max_attempts: int,
        *,
        expired_before: datetime | None = None,
    ) -> bool:
        now = database_now(self._session)
        row = self._held(token)
        if row is None:
            return False
        faults = row.faults + 1
        failed, backoff = faults >= max_attempts, self._backoff(outcome, faults)
        values: dict[str, Any] = {**UNCLAIMED, "faults": faults}
        if failed:
            values |= self._failed(row, outcome, detail, now)
            detail = values["message"]
        else:
            values |= {**self._waiting(), "message": f"attempt {faults} failed, to be tried again: {detail}"}
            if backoff:
                values["not_before"] = now + backoff
        if not self._set(token, values, expired_before):
            return False
        self._ended(row, token, outcome, detail, now, failed=failed)
        if not failed and not backoff:
            self._notify(row)
        return True

    def _notify_waiting(self, queue: str, waiting: Any) -> None:
        """Request wake-ups for ``queue`` if a row meets ``waiting`` and the queue has no message.

        There is one for each worker that takes from the queue, because only one of them may be able to run the row.
        """
        if self._session.scalar(select(self._table.attempts).where(waiting).limit(1)) is not None:
            workers = len(serving_ids(self._session, queue))
            request_wakeup(self._session, queue, max(1, workers), if_empty=True)

    def _held(self, token: str) -> _Row | None:
        """Return the row that ``token`` holds, as it is in the database now."""
        held = select(self._table).where(self._table.claim_token == token)
        return self._session.scalars(held.execution_options(populate_existing=True)).one_or_none()

    def _set(self, token: str, values: dict[str, Any], expired_before: datetime | None = None) -> bool:
        """Set ``values`` in the row that ``token`` holds; ``False``: the claim is gone, or has not expired before."""
        held = self._table.claim_token == token
        if expired_before is not None:
            held = and_(held, self._table.lease_until < expired_before)
        return self._update(held, values)

    def _update(self, condition: Any, values: dict[str, Any]) -> bool:
        statement = update(self._table).where(condition).values(values).execution_options(synchronize_session=False)
        result = self._session.execute(statement)
        assert isinstance(result, CursorResult)
        return result.rowcount == 1
