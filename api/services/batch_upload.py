"""Storing a batch from the body of a request, line by line. Memory does not grow with the body."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import anyio
from fastapi import Request
from pydantic import ValidationError
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from api.http.errors import (
    ApiError,
    Conflict,
    InvalidRequest,
    NotFound,
    PayloadTooLarge,
    ServiceUnavailable,
    UnsupportedMediaType,
    from_validation,
)
from api.http.middleware import media_type
from api.schemas.batches import BatchHeader, BatchRequest
from api.schemas.submissions import SubmissionRequest
from api.services.auth import Caller
from api.services.catalogue import Catalogue
from api.services.container import Services
from api.services.submit import (
    charge,
    check_parent,
    default_device,
    held_problems,
    private_alone,
    refuse_withdrawn,
    resolve,
    visibility_for,
)
from kerneljudge.records import DeviceKind
from storage.access.quotas import QuotaSpent, refund_submissions
from storage.access.visibility import Visibility
from storage.batches.batches import BatchClosed, Batches, BatchLine, LineError
from storage.models import Batch
from storage.queue.fair_order import QueueFull, refuse_if_full
from storage.submissions.deduplication import Ranks
from storage.submissions.new_submission import NewSubmission
from storage.submissions.parents import seen_ids

__all__ = ["NDJSON", "receive"]

NDJSON: Final = "application/x-ndjson"

_LINES_PER_CHUNK: Final = 200
_BYTES_PER_CHUNK: Final = 4 * 2**20
_SECONDS_PER_CHUNK: Final = 5.0

Line = tuple[int, Any]
"""A line's number and its content: bytes, an element of a JSON list, or ``None`` where it was too long."""


async def receive(request: Request, services: Services, caller: Caller, idempotency_key: str | None) -> Batch:
    """Store the batch that ``request`` brings. Return the batch.

    With a key that was used before for the same body, the earlier batch is returned, with ``created`` set to ``False``.
    Raises ``ApiError``, ``QueueFull``, ``QuotaSpent``; then nothing of the batch is graded.
    """
    body = _Body(request, services.settings.max_body_bytes)
    kind = media_type(request.headers)
    if kind not in ("application/json", NDJSON):
        raise UnsupportedMediaType(f"a batch is application/json or {NDJSON}, not {kind or 'without a media type'}")
    if idempotency_key is not None:
        earlier = await run_in_threadpool(_earlier, services, caller, idempotency_key)
        if earlier is not None:
            return await _replayed(earlier, body)
    lines = body.lines() if kind == NDJSON else body.submissions()
    header, first = await _begin(lines)
    intake = _Intake(services, caller, header)
    batch_id = await run_in_threadpool(intake.begin, idempotency_key)
    try:
        await _take_all(intake, first, lines)
        return await run_in_threadpool(intake.end, body.digest)
    except BaseException as error:
        # The sender learns of no batch. So the lines that have come in must not be graded.
        with anyio.CancelScope(shield=True):
            await run_in_threadpool(intake.give_up, _reason(error))
        if isinstance(error, BatchClosed):
            raise Conflict(f"batch {batch_id} was cancelled while it came in") from error
        raise


class _Body:
    """The body of a request as lines. ``digest`` is the SHA-256 of the part that was read so far."""

    def __init__(self, request: Request, max_line_bytes: int) -> None:
        self._request = request
        self._max_line_bytes = max_line_bytes
        self._hash = hashlib.sha256(media_type(request.headers).encode())

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the bytes as they come. Raises ``InvalidRequest`` where the body breaks off."""
        try:
            async for part in self._request.stream():
                self._hash.update(part)
                yield part
        except ClientDisconnect as error:
            raise InvalidRequest("the body broke off") from error

    async def lines(self) -> AsyncIterator[Line]:
        """Yield every line that is not blank, as bytes; ``None`` for a line that is too long to be kept."""
        number, pending, too_long = 1, bytearray(), False
        async for part in self.parts():
            *ended, rest = part.split(b"\n")
            for piece in ended:
                pending += piece
                if too_long or len(pending) > self._max_line_bytes:
                    yield number, None
                elif pending.strip():
                    yield number, bytes(pending)
                number, too_long = number + 1, False
                pending.clear()
            pending += rest
            if len(pending) > self._max_line_bytes:
                too_long = True
                pending.clear()
        if too_long:
            yield number, None
        elif pending.strip():
            yield number, bytes(pending)

    async def submissions(self) -> AsyncIterator[Line]:
        """Yield the header, as number 0, and each submission of a batch in one piece. Raises ``InvalidRequest``."""
        whole = bytearray()
        async for part in self.parts():
            whole += part
        try:
            batch = BatchRequest.model_validate_json(bytes(whole))
        except ValidationError as error:
            raise from_validation(error) from error
        yield 0, batch
        for number, submission in enumerate(batch.submissions, start=1):
            yield number, submission


class _Intake:
    """One batch that is coming in. Every method is a transaction of its own."""

    def __init__(self, services: Services, caller: Caller, header: BatchHeader) -> None:
        self._services = services
        self._caller = caller
        self._visibility = visibility_for(caller, header.visibility)
        self._charged: dict[datetime, int] = {}
        self._header = header
        given = {} if header.visibility is None else {"visibility": header.visibility}
        self._defaults = {**given, **header.defaults.model_dump(exclude_none=True)}
        self._hidden = False
        self._ranks = Ranks()
        self._items = 0
        self.batch_id = ""

    def begin(self, idempotency_key: str | None) -> str:
        """Create the batch, and return its id. Raises ``ServiceUnavailable`` where it is coming in already."""
        webhook = self._header.webhook
        with self._services.readers() as session:
            self._hide_for(self._services.catalogue(session, self._caller.viewer), self._header.defaults.problem)
        try:
            with self._services.sessions.begin() as session:
                batch = Batches(session).create(
                    name=self._header.name,
                    idempotency_key=idempotency_key,
                    webhook=None if webhook is None else (webhook.url, webhook.secret),
                    owner=self._caller.client,
                    visibility=Visibility.PRIVATE if self._hidden else self._visibility,
                )
        except IntegrityError as error:
            raise _still_coming_in() from error
        self.batch_id = batch.id
        return batch.id

    def take(self, lines: Sequence[Line]) -> None:
        """Store one chunk of lines. Raises ``PayloadTooLarge``, ``QueueFull``, ``QuotaSpent``."""
        accepted, refused = self._read(lines)
        self._items += len(lines)
        most = self._services.settings.max_queued
        if self._items > most:
            raise PayloadTooLarge(f"a batch has at most {most} lines")
        with self._services.sessions.begin() as session:
            if self._hidden:
                Batches(session).hide(self.batch_id)
            accepted, refused = _without_withdrawn(session, accepted, refused)
            Batches(session).add(self.batch_id, accepted, refused, self._ranks)
            refuse_if_full(session, most, batched=True)
            day = charge(session, self._services, self._caller, len(accepted))
        if day is not None:
            self._charged[day] = self._charged.get(day, 0) + len(accepted)

    def _read(self, lines: Sequence[Line]) -> tuple[list[BatchLine], list[LineError]]:
        """Return the valid submissions of some lines, and the errors of the others, by line."""
        requests: dict[int, SubmissionRequest] = {}
        refused: dict[int, str] = {}
        for number, content in lines:
            try:
                requests[number] = SubmissionRequest.model_validate(self._completed(_submission_of(content)))
            except ValidationError as error:
                refused[number] = str(from_validation(error).detail)
            except ApiError as error:
                refused[number] = str(error.detail)
            except (ValueError, RecursionError) as error:
                refused[number] = f"not JSON: {error}"
        with self._services.readers() as session:
            device = default_device(session)
            known = self._services.catalogue(session, self._caller.viewer)
            parents = seen_ids(session, (request.parent for request in requests.values()), self._caller.viewer)
        accepted: list[BatchLine] = []
        for number, request in requests.items():
            self._hide_for(known, request.problem)
            try:
                check_parent(request, parents)
                accepted.append(BatchLine(number, self._resolved(known, request, device)))
            except ApiError as error:
                refused[number] = str(error.detail)
        return accepted, [LineError(number, message) for number, message in sorted(refused.items())]

    def _hide_for(self, known: Catalogue, problem_id: str | None) -> None:
        """Make the batch private for a line to a private problem, even for one with an error, which names it."""
        if self._header.visibility is None and problem_id is not None and known.is_private(problem_id):
            self._hidden = True

    def _completed(self, line: dict[str, Any]) -> dict[str, Any]:
        """Return a line with the batch's defaults. A reference of its own replaces their problem."""
        replaced = {"problem"} if line.get("reference") is not None else set()
        return {**{name: value for name, value in self._defaults.items() if name not in replaced}, **line}

    def end(self, digest: str) -> Batch:
        with self._services.sessions.begin() as session:
            batches = Batches(session)
            batches.received(self.batch_id, digest)
            batch = batches.get(self.batch_id)
        assert batch is not None
        return batch

    def give_up(self, reason: str) -> None:
        with self._services.sessions.begin() as session:
            batches = Batches(session)
            batches.cancel(self.batch_id, reason)
            self._refund(session, batches.cancelled_of(self.batch_id))

    def _refund(self, session: Session, count: int) -> None:
        """Return the ungraded submissions to the quota, since they may be sent again."""
        for day, charged in self._charged.items():
            assert self._caller.key_id is not None
            part = min(count, charged)
            refund_submissions(session, self._caller.key_id, day, part)
            count -= part

    def _resolved(self, known: Catalogue, request: SubmissionRequest, device: DeviceKind) -> NewSubmission:
        """Return the submission of a line. Raises ``ApiError``."""
        new = resolve(self._services, known, request, device, self._caller)
        if new.visibility is Visibility.PRIVATE and self._visibility is not Visibility.PRIVATE:
            if not known.is_private(new.problem.id):
                message = f"a line cannot be private in a batch that is {self._visibility}"
                raise InvalidRequest.on("visibility", message)
            if not self._hidden:
                raise InvalidRequest.on("visibility", private_alone(new.problem.id))
        return new


def _without_withdrawn(
    session: Session, accepted: list[BatchLine], refused: list[LineError]
) -> tuple[list[BatchLine], list[LineError]]:
    """Return both lists, with the lines to problems that were withdrawn since they were looked up among the refused."""
    held = held_problems(session, (line.new for line in accepted))
    kept, gone = [], []
    for line in accepted:
        try:
            refuse_withdrawn(line.new, held)
            kept.append(line)
        except NotFound as error:
            gone.append(LineError(line.line, str(error.detail)))
    return kept, [*refused, *gone]


async def _begin(lines: AsyncIterator[Line]) -> tuple[BatchHeader, list[Line]]:
    """Return the header of the batch, and the first line if that is not the header. Raises ``InvalidRequest``."""
    first = await anext(lines, None)
    if first is None:
        return BatchHeader(), []
    _, content = first
    if isinstance(content, BatchHeader):
        return content, []
    try:
        given = json.loads(content or b"")
    except (ValueError, RecursionError):
        return BatchHeader(), [first]
    if not isinstance(given, dict) or set(given) != {"batch"}:
        return BatchHeader(), [first]
    try:
        return BatchHeader.model_validate(given["batch"]), []
    except ValidationError as error:
        raise from_validation(error) from error


async def _take_all(intake: _Intake, chunk: list[Line], lines: AsyncIterator[Line]) -> None:
    size, begun = 0, time.monotonic()
    async for number, content in lines:
        chunk.append((number, content))
        size += len(content) if isinstance(content, bytes) else 0
        # The lines of a slow upload are graded meanwhile, too.
        late = time.monotonic() - begun >= _SECONDS_PER_CHUNK
        if late or len(chunk) >= _LINES_PER_CHUNK or size >= _BYTES_PER_CHUNK:
            await run_in_threadpool(intake.take, chunk)
            chunk, size, begun = [], 0, time.monotonic()
    if chunk:
        await run_in_threadpool(intake.take, chunk)


def _submission_of(content: Any) -> dict[str, Any]:
    """Return the object on a line. A visibility of null is left out, so that the batch's own applies.

    Raises ``ApiError``, and ``ValueError`` where the line is not JSON.
    """
    if content is None:
        raise InvalidRequest("the line is too long")
    given = json.loads(content) if isinstance(content, bytes) else content
    if not isinstance(given, dict):
        raise InvalidRequest("a submission is an object")
    return {name: value for name, value in given.items() if name != "visibility" or value is not None}


def _earlier(services: Services, caller: Caller, idempotency_key: str) -> Batch | None:
    """Return the complete batch with this key, if there is one.

    An upload that has stopped, for example because its server ended, makes room for the one that is sent now. Raises
    ``ServiceUnavailable`` while it is still coming in.
    """
    with services.readers() as session:
        earlier = Batches(session).by_key(idempotency_key, caller.client)
    if earlier is None or earlier.received_at is not None:
        return earlier
    with services.sessions.begin() as session:
        left = Batches(session).take_over(earlier.id)
    if left:
        raise _still_coming_in(left)
    with services.readers() as session:
        current = Batches(session).by_key(idempotency_key, caller.client)
    if current is not None and current.received_at is None:
        raise _still_coming_in()  # another request has taken it over meanwhile
    return current


async def _replayed(earlier: Batch, body: _Body) -> Batch:
    async for _ in body.parts():
        """Only for its digest."""
    if body.digest != earlier.content_digest:
        raise Conflict("this idempotency key was used before, for another batch")
    earlier.created = False
    return earlier


def _still_coming_in(left: timedelta = timedelta(seconds=1)) -> ServiceUnavailable:
    seconds = math.ceil(left.total_seconds())
    return ServiceUnavailable("a batch with this idempotency key is coming in at the moment", retry_after_s=seconds)


def _reason(error: BaseException) -> str:
    """Return the words for everybody who sees the batch. The text of an error that is not ours is for the log alone."""
    if isinstance(error, ApiError):
        why = str(error.detail)
    elif isinstance(error, QueueFull | QuotaSpent | BatchClosed):
        why = str(error)
    elif isinstance(error, Exception):
        why = "this service had a fault"
    else:
        why = "the request was ended"
    return f"it did not come in whole: {why}"
