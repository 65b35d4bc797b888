"""The routes of batches: hand in many submissions at once, follow them, and fetch their results."""

from __future__ import annotations

from collections.abc import AsyncIterable
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from api.http.errors import Conflict, problems
from api.records.batches import batch_list, batch_record, comparison_record, result_lines, summary_record
from api.records.encoding import to_json
from api.routes.submissions import IdempotencyKey, creation_headers
from api.schemas.batches import BatchRequest
from api.services.auth import READS, SUBMITS, CallerDep, KnownBatch, OwnBatch, ViewerDep, seen_batch
from api.services.batch_upload import NDJSON, receive
from api.services.container import ReadSession, Services, ServicesDep, WriteSession
from api.services.exports import CSV, PARQUET, Format, csv_lines, parquet
from evaluator.logs import add_fields
from kerneljudge.records import BatchList, BatchRecord, ComparisonRecord, SummaryRecord
from storage.access.visibility import Viewer
from storage.batches.batches import Batches
from storage.batches.comparison import NotComparable
from storage.batches.export import BATCH_COLUMNS, batch_rows

__all__ = ["STREAMED", "router"]

_PATH: Final = "/api/v1/batches"

STREAMED: Final = (_PATH, NDJSON)
"""The bodies that are read as they come, and may be larger than other bodies."""

router = APIRouter(prefix=_PATH, tags=["batches"])

_RECONNECT_MS: Final = 1000
_PROBLEM_ID: Final = "^[a-z0-9][a-z0-9_]{0,99}$"
_MAX_PLACE: Final = 2**31 - 1
_NDJSON_BODY: Final = (
    'A submission on each line, as in `POST /api/v1/submissions`. The first line may be `{"batch": {...}}` instead, '
    "with what a `BatchRequest` says besides its submissions. Lines are counted from 1, blank ones included."
)


@router.post(
    "",
    status_code=202,
    dependencies=[SUBMITS],
    response_description="Stored, and being graded.",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": {"$ref": f"#/components/schemas/{BatchRequest.__name__}"}},
                NDJSON: {"schema": {"type": "string", "description": _NDJSON_BODY}},
            },
        }
    },
    responses={
        202: {"headers": creation_headers("batch")},
        **problems(400, 409, 413, 415, 422, 429),
    },
)
async def create_batch(
    request: Request,
    services: ServicesDep,
    caller: CallerDep,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> BatchRecord:
    """Hand in many candidates at once: as JSON in one piece, or line by line as NDJSON, of any length.

    A line that is not a valid submission is reported as an error of its own. A line that equals another one, of this
    batch or another, is graded once. A batch that does not arrive completely is cancelled.
    """
    batch = await receive(request, services, caller, idempotency_key)
    add_fields(batch=batch.id)
    record = await run_in_threadpool(_read, services, batch.id, caller.viewer)
    response.headers["Location"] = record["links"]["self"]
    if not batch.created:
        response.headers["Idempotency-Replayed"] = "true"
    return record


@router.get("", dependencies=[READS], responses=problems(422))
def list_batches(
    session: ReadSession,
    viewer: ViewerDep,
    cursor: Annotated[str | None, Query(max_length=100)] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> BatchList:
    """List the batches that you may see, newest first."""
    return batch_list(session, Batches(session).page(cursor, limit, viewer=viewer), viewer)


@router.get("/{batch_id}", dependencies=[READS], responses=problems(404, 422))
def read_batch(known: KnownBatch, session: ReadSession, viewer: ViewerDep) -> BatchRecord:
    """Read a batch with its progress and its summary so far."""
    return batch_record(session, Batches(session).get(known.id) or known, viewer)


@router.delete("/{batch_id}", dependencies=[SUBMITS], responses=problems(404, 422))
def cancel_batch(own: OwnBatch, session: WriteSession, viewer: ViewerDep) -> BatchRecord:
    """Cancel the submissions of a batch that have not begun and that no other batch waits for.

    A batch that is over stays as it is.
    """
    return batch_record(session, Batches(session).cancel(own.id), viewer)


@router.get("/{batch_id}/summary", dependencies=[READS], responses=problems(404, 422))
def read_summary(
    known: KnownBatch,
    session: ReadSession,
    viewer: ViewerDep,
    problem: Annotated[
        list[Annotated[str, Field(pattern=_PROBLEM_ID)]] | None,
        Query(description="Over these problems alone: those without a candidate count as failures.", max_length=5000),
    ] = None,
) -> SummaryRecord:
    """Summarize the results so far: fast_p, pass@k and means, by level and by tag."""
    return summary_record(session, known.id, viewer, problem)


@router.get("/{batch_id}/comparison", dependencies=[READS], responses=problems(404, 409, 422))
def compare_with(
    known: KnownBatch,
    session: ReadSession,
    viewer: ViewerDep,
    other: Annotated[str, Query(max_length=100, description="The id of the other batch.")],
) -> ComparisonRecord:
    """Compare the batch with another one on the problems that both have: differences of fast_p and pass@k, in pairs.

    The answer is 409 where both have a problem under different conditions: version, device, size, precision, baseline,
    tier, limits, rules or `require_gradients`.
    """
    try:
        return comparison_record(session, known, seen_batch(session, other, viewer), viewer)
    except NotComparable as error:
        raise Conflict(str(error)) from error


_RESULTS: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "A `ResultRecord` on each line.",
        "content": {
            NDJSON: {"schema": {"type": "string"}},
            CSV: {"schema": {"type": "string"}},
            PARQUET: {"schema": {"type": "string", "format": "binary"}},
        },
    }
}


@router.get(
    "/{batch_id}/results",
    dependencies=[READS],
    response_class=StreamingResponse,
    responses={**_RESULTS, **problems(404, 422)},
)
def read_results(
    known: KnownBatch,
    services: ServicesDep,
    viewer: ViewerDep,
    cursor: Annotated[
        int, Query(ge=0, le=_MAX_PLACE, description="The `cursor` of the last line that was read; 0: from the start.")
    ] = 0,
    format: Annotated[  # noqa: A002 - its name in the contract
        Format, Query(description="`csv` and `parquet` are of every line, whether it is over or not, by its number.")
    ] = "json",
) -> Response:
    """Read the finished submissions, in the order of completion, as NDJSON.

    The answer ends where no further submission is finished yet. With `format`, it is a table of all lines: as CSV, or
    as Parquet where the service has it (extra `parquet`).
    """
    if format == "json":
        return StreamingResponse(result_lines(services.readers, known.id, cursor, viewer), media_type=NDJSON)
    headers = {"Content-Disposition": f'inline; filename="{known.id}.{format}"'}
    rows = batch_rows(services.readers, known.id, viewer)
    if format == "csv":
        return StreamingResponse(csv_lines(BATCH_COLUMNS, rows), media_type=CSV, headers=headers)
    return StreamingResponse(parquet(BATCH_COLUMNS, rows), media_type=PARQUET, headers=headers)


@router.get(
    "/{batch_id}/events", dependencies=[READS], response_class=EventSourceResponse, responses=problems(404, 422)
)
async def follow_batch(known: KnownBatch, services: ServicesDep, viewer: ViewerDep) -> AsyncIterable[ServerSentEvent]:
    """Follow a batch by server-sent events: `progress` with the record, `done` with the last one.

    The records of `progress` have no summary. At most two events come in a second, and a comment at least every 15
    seconds. The stream ends with `done`. A stream that ends without it was cut off; send the request again.
    """
    with services.batch_watcher.watch(known.id) as watch:
        while (snapshot := await watch.change()) is not None:
            record = await run_in_threadpool(_read, services, known.id, viewer, summary=snapshot.final)
            event = "done" if snapshot.final else "progress"
            yield ServerSentEvent(event=event, raw_data=to_json(BatchRecord, record), retry=_RECONNECT_MS)
            if snapshot.final:
                return


def _read(services: Services, batch_id: str, viewer: Viewer, *, summary: bool = True) -> BatchRecord:
    with services.readers() as session:
        batch = Batches(session).get(batch_id)
        assert batch is not None
        return batch_record(session, batch, viewer, summary=summary)
