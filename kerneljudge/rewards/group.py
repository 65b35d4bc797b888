"""The submissions of one call, which are handed in together and awaited until a deadline."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final, cast

from kerneljudge.async_client import AsyncClient, gather
from kerneljudge.errors import ClientError, NoAnswer, RequestRefused, ServiceUnreachable
from kerneljudge.records import BatchRecord, SubmissionRecord
from kerneljudge.requests import NewSubmission
from kerneljudge.rewards.shape import Ungraded

__all__ = ["judged"]

_SHORTEST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0
_PAUSE_SHARE: Final = 0.1  # waiting takes at most so much longer than it must
_CANCELLING_SHARE: Final = 0.1  # of the time until the deadline
_LONGEST_CANCELLING_S: Final = 2.0

Outcome = SubmissionRecord | RequestRefused | Ungraded
"""A record of a submission that is over, the refusal of a completion that is too large, or the reason for neither."""


async def judged(client: AsyncClient, new: Sequence[NewSubmission], timeout_s: float | None) -> list[Outcome]:
    """Have ``new`` graded in one request, and return their outcomes in the same order.

    It returns within ``timeout_s``, whatever the service does. Candidates without a verdict are then cancelled, as
    where the call is cancelled.

    Raises ``RequestRefused`` where the service refuses any of them for another reason than its length.
    """
    group = _Group(client, new)
    try:
        if timeout_s is None:
            await group.grade()
        else:
            cancelling_s = min(_LONGEST_CANCELLING_S, _CANCELLING_SHARE * timeout_s)
            try:
                await asyncio.wait_for(group.grade(), timeout_s - cancelling_s)
            except asyncio.TimeoutError:
                trouble = f" ({client.trouble})" if client.trouble else ""
                await group.give_up(f"no verdict within {timeout_s} s{trouble}", cancelling_s)
    except asyncio.CancelledError:
        await group.give_up("the call was cancelled", _LONGEST_CANCELLING_S)
        raise
    except (ServiceUnreachable, NoAnswer) as error:
        group.fill(Ungraded(str(error)))
    except RequestRefused as error:
        if error.status != HTTPStatus.TOO_MANY_REQUESTS:
            raise
        group.fill(Ungraded(str(error)))
    return [group.outcomes[index] for index in range(len(new))]


class _Group:
    """The submissions under way. ``outcomes`` are by their indices, and grow until all are over."""

    def __init__(self, client: AsyncClient, new: Sequence[NewSubmission]) -> None:
        self.outcomes: dict[int, Outcome] = {}
        self._client = client
        self._new = new
        self._batch: str | None = None
        self._single: dict[int, str] = {}

    async def grade(self) -> None:
        """Wait until all are over."""
        if len(self._new) > 1:
            await self._grade_batch()
        # A batch names its first hundred errors alone.
        await gather(self._grade_single(index) for index in self._missing())

    async def give_up(self, reason: str, within_s: float) -> None:
        """Cancel those that are not over, as their verdicts will not be read and are not worth a device's time."""
        ids = [each for index, each in self._single.items() if index not in self.outcomes]
        requests: list[Any] = [self._client.cancel(each) for each in ids]
        if self._batch is not None:
            requests.append(self._client.cancel_batch(self._batch))
        try:
            await asyncio.wait_for(gather(requests), within_s)
        except (ClientError, asyncio.TimeoutError) as error:
            reason = f"{reason}, and it could not be cancelled: {str(error) or 'no answer'}"
        self.fill(Ungraded(reason))

    def fill(self, outcome: Ungraded) -> None:
        """Give ``outcome`` to all that have none."""
        for index in self._missing():
            self.outcomes[index] = outcome

    def _missing(self) -> list[int]:
        return [index for index in range(len(self._new)) if index not in self.outcomes]

    async def _grade_batch(self) -> None:
        # The lines of a batch may be as hidden as the whole batch, and no more.
        visibility = self._new[0].get("visibility")
        header: dict[str, Any] = {"batch": {} if visibility is None else {"visibility": visibility}}
        lines = b"".join(json.dumps(line).encode() + b"\n" for line in (header, *self._new))
        batch = await self._client.submit_batch(lines, idempotency_key=secrets.token_hex(16))
        self._batch = batch["id"]
        await self._grade_refused(batch)
        over: set[int] = set()
        cursor, begin = 0, time.monotonic()
        while True:
            for result in await self._client.batch_results(self._batch, cursor):
                cursor = result["cursor"]
                # The submission has the metadata of its first line, which may be a line of another batch.
                own: dict[str, Any] = {name: result.get(name) for name in ("label", "metadata", "parent")}
                record = cast(SubmissionRecord, {**result["submission"], **own})
                self.outcomes[result["line"] - 2] = record  # line 1 is the header
                over.add(result["line"])
            if len(over) >= batch["items"]:
                return
            waited_s = time.monotonic() - begin
            await asyncio.sleep(min(_LONGEST_PAUSE_S, max(_SHORTEST_PAUSE_S, _PAUSE_SHARE * waited_s)))

    async def _grade_refused(self, batch: BatchRecord) -> None:
        """Hand refused lines in by themselves, which has the status of their refusals: a batch has a text alone.

        Raises ``RequestRefused`` where the data or the options are at fault, and then cancels the batch.
        """
        try:
            await gather(self._grade_single(error["line"] - 2) for error in batch["errors"])
        except RequestRefused:
            with contextlib.suppress(ClientError):
                await self._client.cancel_batch(batch["id"])
            raise

    async def _grade_single(self, index: int) -> None:
        try:
            record = await self._client.submit(**self._new[index])
            self._single[index] = record["id"]
            self.outcomes[index] = await self._client.wait(record["id"])
        except RequestRefused as error:
            if error.status == HTTPStatus.TOO_MANY_REQUESTS:
                self.outcomes[index] = Ungraded(str(error))
            elif error.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                # This refusal alone is the completion's fault, and not the request's.
                self.outcomes[index] = error
            else:
                raise
        except (ServiceUnreachable, NoAnswer) as error:
            self.outcomes[index] = Ungraded(str(error))
