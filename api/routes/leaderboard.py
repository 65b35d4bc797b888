"""The route of leaderboards."""

from __future__ import annotations

import itertools
from typing import Annotated

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse

from api.http.errors import InvalidRequest, problems
from api.records.encoding import to_json
from api.records.leaderboards import BOARD_COLUMNS, board, board_rows
from api.services.auth import READS, ViewerDep
from api.services.cached_route import SharedRoute
from api.services.container import ReadSession, ServicesDep
from api.services.exports import CSV, PARQUET, Format, csv_lines, parquet
from api.services.submit import default_device
from evaluator.problems.shapes import MEAN, full_name
from kerneljudge.records import Baseline, Board, DeviceKind, Precision, Track
from storage.leaderboards.read import BoardKey

__all__ = ["router"]

router = APIRouter(prefix="/api/v1/leaderboard", tags=["leaderboard"], route_class=SharedRoute)

_MAX_RANK = 1_000_000
_USUAL_LIMIT = 50


@router.get(
    "",
    dependencies=[READS],
    response_model=Board,
    responses={
        200: {
            "content": {
                CSV: {"schema": {"type": "string"}},
                PARQUET: {"schema": {"type": "string", "format": "binary"}},
            }
        },
        **problems(404, 422),
    },
)
def read_leaderboard(
    services: ServicesDep,
    session: ReadSession,
    viewer: ViewerDep,
    problem: Annotated[str, Query(max_length=200, description="The problem's id.")],
    device: DeviceKind | None = None,
    track: Track = "inference",
    size: Annotated[str | None, Query(max_length=100)] = None,
    shape: Annotated[
        str | None,
        Query(max_length=100, description="A timed shape of the size, or `*`: the mean of the size and these."),
    ] = None,
    precision: Precision | None = None,
    baseline: Annotated[Baseline, Query(description="The baseline of the speedup.")] = "eager",
    device_name: Annotated[
        str | None, Query(max_length=200, description="Only results from devices of this name, such as `NVIDIA H200`.")
    ] = None,
    software: Annotated[
        str | None,
        Query(max_length=200, description="Only results under these versions, as entries have them. Left out: newest."),
    ] = None,
    problem_version: Annotated[
        str | None, Query(max_length=100, description="An earlier version of the problem. Left out: the current one.")
    ] = None,
    limit: Annotated[
        int | None, Query(ge=1, le=500, description="Left out: 50 entries; of CSV and Parquet, all that there are.")
    ] = None,
    cursor: Annotated[int, Query(ge=0, le=_MAX_RANK)] = 0,
    format: Annotated[  # noqa: A002 - its name in the contract
        Format | None,
        Query(description="Left out: by `Accept`. `parquet` where the service has it (extra `parquet`)."),
    ] = None,
    accept: Annotated[str, Header()] = "*/*",
) -> Response:
    """Read a problem's leaderboard as JSON, CSV or Parquet, by `format` or `Accept: text/csv`.

    It has the best result of each author and source, the fastest first. `inference` ranks the forward pass. `training`
    ranks forward and backward, and has only results with matching gradients.

    Devices, sizes, shapes and precisions are never mixed. Parameters that you leave out get the same defaults as for a
    submission. Without `device_name`, the rankings of all devices follow one another.

    Versions of torch and CUDA (`software`) are not mixed either. Without `software`, each device is ranked by its
    newest.
    """
    known = services.catalogue(session, viewer).problem_in(session, problem, problem_version)
    kind = device or default_device(session)
    if size is not None and size not in known.sizes:
        raise InvalidRequest.on("size", f"problem {known.id} has the sizes {', '.join(known.sizes)}")
    size = size or known.default_size(kind)
    if shape is not None:
        timed = [name for name, each in known.shapes_of(size).items() if each.use == "timed"]
        if shape not in (timed and [*timed, MEAN]):
            there = f"the timed shapes {', '.join(timed)}, and {MEAN} for their mean" if timed else "no timed shape"
            raise InvalidRequest.on("shape", f"size {size} of {known.id} has {there}")
    key = BoardKey(
        problem=known.id,
        device=kind,
        track=track,
        size=size if shape is None else full_name(size, shape),
        precision=precision or known.dtype,
        baseline=baseline,
        device_name=device_name,
        software=software,
        problem_version=problem_version,
    )
    if format is None and accept.startswith(CSV):
        format = "csv"  # noqa: A001 - as above
    if format is None or format == "json":
        shown = board(session, known, key, limit=limit or _USUAL_LIMIT, cursor=cursor, viewer=viewer)
        return Response(to_json(Board, shown), media_type="application/json")
    rows = itertools.islice(board_rows(services.readers, known, key, cursor, viewer), limit)
    headers = {"Content-Disposition": f'inline; filename="{known.id}.{format}"'}
    if format == "csv":
        return StreamingResponse(csv_lines(BOARD_COLUMNS, rows), media_type=CSV, headers=headers)
    return StreamingResponse(parquet(BOARD_COLUMNS, rows), media_type=PARQUET, headers=headers)
