"""Authentication and authorization: a dependency for each scope, and the ownership of submissions and batches.

Every route names one of ``PROBES``, ``NO_SCOPE``, ``READS``, ``SUBMITS``, ``REFERENCES``, ``ADMINISTERS``; a test
checks that.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import Depends, Request, Security
from fastapi.security import HTTPBearer
from fastapi.security.utils import get_authorization_scheme_param
from sqlalchemy.orm import Session
from sqlalchemy.orm.interfaces import ORMOption
from starlette.concurrency import run_in_threadpool

from api.http.errors import Forbidden, NotFound, Unauthorized
from api.services.container import Services, ServicesDep
from storage.access import audit
from storage.access.keys import Keys, Scope
from storage.access.visibility import Viewer
from storage.batches.batches import Batches
from storage.models import ApiKey, Batch, Submission
from storage.submissions.submissions import Submissions

__all__ = [
    "ADMINISTERS",
    "COOKIE",
    "NO_SCOPE",
    "PROBES",
    "READS",
    "REFERENCES",
    "SUBMITS",
    "Caller",
    "CallerDep",
    "KnownBatch",
    "KnownSubmission",
    "Needs",
    "OwnBatch",
    "OwnSubmission",
    "ViewerDep",
    "address_of",
    "identify",
    "seen_batch",
    "seen_submission",
]

COOKIE: Final = "kerneljudge"
_SAFE: Final = ("GET", "HEAD")

_BEARER: Final = HTTPBearer(
    auto_error=False,
    scheme_name="key",
    description="A key, as `kerneljudge keys create` prints it. A service that is open asks for none.",
)


@dataclass(frozen=True)
class Caller:
    """The caller of a request.

    ``client`` and ``key_id`` are ``None`` where the request has no key. The limits are those of the key, and ``None``
    where the settings have them. ``own_only``: the caller sees the submissions and batches of ``client`` alone.
    """

    scopes: frozenset[Scope]
    client: str | None = None
    key_id: str | None = None
    requests_per_min: int | None = None
    submissions_per_day: int | None = None
    own_only: bool = False

    @property
    def viewer(self) -> Viewer:
        """The viewer that decides which records the caller sees."""
        return Viewer(self.client, everything=Scope.ADMIN in self.scopes, own_only=self.own_only)


_OPEN_CALLER: Final = Caller(frozenset(Scope))


async def identify(request: Request, services: ServicesDep) -> Caller:
    """Return the caller of this request, which is counted once. Raises ``Unauthorized``, ``TooManyRequests``."""
    known: Caller | None = getattr(request.state, "caller", None)
    if known is not None:
        return known
    if services.settings.auth == "open":
        caller = _OPEN_CALLER
    else:
        caller = await _identified(request, services)
    request.state.caller = caller
    return caller


CallerDep = Annotated[Caller, Depends(identify)]


async def _viewer(caller: CallerDep) -> Viewer:
    return caller.viewer


ViewerDep = Annotated[Viewer, Depends(_viewer)]


class Needs:
    """A dependency: the caller has ``scope``; ``None`` permits everyone. Raises ``Unauthorized``, ``Forbidden``."""

    def __init__(self, scope: Scope | None) -> None:
        self.scope = scope

    async def __call__(self, request: Request, services: ServicesDep, caller: CallerDep) -> None:
        if self.scope is None or self.scope in caller.scopes:
            if self.scope is Scope.ADMIN:
                await run_in_threadpool(_note, services, caller, request)
            return
        if caller.key_id is None:
            raise Unauthorized(
                f"this needs a key with the scope {self.scope}, sent as Authorization: Bearer kj_…; whoever runs the "
                "service can make you one"
            )
        raise Forbidden(f"this key does not have the scope {self.scope}")


class _NeedsKey(Needs):
    """The same as ``Needs``, with an entry in the OpenAPI document."""

    async def __call__(
        self,
        request: Request,
        services: ServicesDep,
        caller: CallerDep,
        _documented: Annotated[Any, Security(_BEARER)] = None,
    ) -> None:
        await super().__call__(request, services, caller)


class _Unauthenticated(Needs):
    """The dependency of probes, which are answered for every caller, without a limit on their number."""

    async def __call__(self) -> None:  # type: ignore[override]  # a dependency that depends on nothing
        return


PROBES: Final[Any] = Depends(_Unauthenticated(None))
NO_SCOPE: Final[Any] = Depends(Needs(None))
READS: Final[Any] = Depends(Needs(Scope.READ))
REFERENCES: Final[Any] = Depends(_NeedsKey(Scope.REFERENCES))
SUBMITS: Final[Any] = Depends(_NeedsKey(Scope.SUBMIT))
ADMINISTERS: Final[Any] = Depends(_NeedsKey(Scope.ADMIN))


def _known_submission(submission_id: str, services: ServicesDep, viewer: ViewerDep) -> Submission:
    # It has a session of its own, which is closed at once. A waiting request must not hold a connection.
    with services.readers() as session:
        return seen_submission(session, submission_id, viewer)


def seen_submission(session: Session, submission_id: str, viewer: Viewer, also: Sequence[ORMOption] = ()) -> Submission:
    """Return the submission from ``Submissions.get``. Raises ``NotFound`` also where ``viewer`` does not see it."""
    submission = Submissions(session).get(submission_id, also)
    if submission is None or not viewer.sees(submission):
        raise NotFound(f"no submission {submission_id!r}")
    return submission


KnownSubmission = Annotated[Submission, Depends(_known_submission)]


def _own_submission(known: KnownSubmission, viewer: ViewerDep) -> Submission:
    if not viewer.owns(known):
        raise Forbidden(f"submission {known.id} belongs to another client")
    return known


OwnSubmission = Annotated[Submission, Depends(_own_submission)]


def _known_batch(batch_id: str, services: ServicesDep, viewer: ViewerDep) -> Batch:
    with services.readers() as session:
        return seen_batch(session, batch_id, viewer)


def seen_batch(session: Session, batch_id: str, viewer: Viewer) -> Batch:
    """Return the batch with this id. Raises ``NotFound`` also where ``viewer`` does not see it."""
    batch = Batches(session).get(batch_id)
    if batch is None or not viewer.sees(batch):
        raise NotFound(f"no batch {batch_id!r}")
    return batch


KnownBatch = Annotated[Batch, Depends(_known_batch)]


def _own_batch(known: KnownBatch, viewer: ViewerDep) -> Batch:
    if not viewer.owns(known):
        raise Forbidden(f"batch {known.id} belongs to another client")
    return known


OwnBatch = Annotated[Batch, Depends(_own_batch)]


def address_of(request: Request) -> str:
    """Return the name under which an address is counted.

    For IPv6, where one machine has many addresses, it is the network.
    """
    host = request.client.host if request.client is not None else ""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return f"address:{host}"
    if isinstance(address, ipaddress.IPv6Address):
        return f"address:{ipaddress.ip_network((int(address) >> 64 << 64, 64))}"
    return f"address:{address}"


async def _identified(request: Request, services: Services) -> Caller:
    settings, meter = services.settings, services.meter
    scheme, given = get_authorization_scheme_param(request.headers.get("authorization"))
    token = given if scheme.lower() == "bearer" else None
    # A browser sends its cookie along, whichever site has caused the request. So a cookie is no consent to a change.
    cookie = request.cookies.get(COOKIE) if request.method in _SAFE or _is_page(request) else None
    key = await run_in_threadpool(_key, services, token, cookie) if token is not None or cookie else None
    if key is None:
        if limit := settings.anonymous_requests_per_min:
            request.state.allowance = meter.charge(address_of(request), limit)
        if token is not None:
            raise Unauthorized("this key is not known, or was revoked, or has expired")
        return Caller(frozenset([Scope.READ]) if settings.public_read else frozenset())
    request.state.personal = True
    limit = settings.requests_per_min if key.requests_per_min is None else key.requests_per_min
    if limit:
        request.state.allowance = meter.charge(f"key:{key.id}", limit)
    meter.note_use(key.id)
    scopes = frozenset(scope for each in key.scopes for scope in Scope(each).implied)
    return Caller(
        scopes,
        client=key.client,
        key_id=key.id,
        requests_per_min=key.requests_per_min,
        submissions_per_day=key.submissions_per_day,
        own_only=key.own_only,
    )


def _key(services: Services, token: str | None, cookie: str | None) -> ApiKey | None:
    with services.readers() as session:
        keys = Keys(session)
        if token is not None:
            return keys.good(token)
        return keys.signed_in(cookie) if cookie is not None else None


def _is_page(request: Request) -> bool:
    """Whether this is the form of a page, which checks its origin by itself."""
    return not request.url.path.startswith("/api/")


def _note(services: Services, caller: Caller, request: Request) -> None:
    """Record in the audit trail that a request with the scope of administrators was made."""
    with services.sessions.begin() as session:
        path = request.url.path
        audit.record(
            session, "admin.request", by=caller.client, subject=caller.key_id or "", method=request.method, path=path
        )
