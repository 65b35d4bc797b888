"""The routes of the service itself: health, readiness, metrics and workers."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from fastapi import APIRouter, Response
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from api.http.errors import FieldError, Forbidden, ServiceUnavailable, problems
from api.records.workers import worker_records
from api.services.auth import PROBES, READS, ViewerDep
from api.services.container import READY_S, ReadSession, Services, ServicesDep
from api.services.readiness import degradations, obstacles
from kerneljudge.records import Health, WorkerList
from storage.queue.workers import list_workers

__all__ = ["router"]

router = APIRouter(tags=["service"])

_NO_KEY: Final[dict[str, Any]] = {"security": []}


@router.get("/healthz", dependencies=[PROBES], openapi_extra=_NO_KEY)
async def healthz() -> Health:
    """Check that the process answers."""
    return Health(status="ok", problems=None, degraded=[])


@router.get("/readyz", dependencies=[PROBES], openapi_extra=_NO_KEY, responses=problems())
async def readyz(services: ServicesDep) -> Health:
    """Check that all requirements are met: the database with the schema of this version, problems, folders.

    Otherwise the answer is 503, with an entry of `errors` for each failure. `degraded` lists faults that do not keep
    the service from answering requests: a queue without a living worker, or an unreachable broker. Requests within a
    second share an answer.
    """
    try:
        return await services.readiness.result(partial(_readiness, services))
    except TimeoutError as error:
        reason = f"the database, the broker or a disk has not answered within {READY_S:g} s"
        raise ServiceUnavailable(reason, errors=[FieldError(field="time", message=reason)]) from error


def _readiness(services: Services) -> Health:
    found = obstacles(services)
    if found:
        errors = [FieldError(field=name, message=reason) for name, reason in found.items()]
        raise ServiceUnavailable("; ".join(found.values()), errors=errors)
    with services.readers() as session:
        return Health(status="ok", problems=len(services.problems), degraded=degradations(services, session))


@router.get(
    "/metrics",
    dependencies=[READS],
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **problems(403)},
)
def metrics(services: ServicesDep, viewer: ViewerDep) -> Response:
    """Read the metrics for Prometheus; 403 for a key that sees its client's submissions alone."""
    if viewer.own_only:
        raise Forbidden("this key sees its client's submissions alone, and the metrics count all")
    return Response(generate_latest(services.registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)


@router.get("/api/v1/workers", dependencies=[READS], responses=problems())
def read_workers(session: ReadSession, viewer: ViewerDep) -> WorkerList:
    """List the workers of the last hour, and whether each is still alive."""
    return WorkerList(items=worker_records(session, list_workers(session), viewer))
