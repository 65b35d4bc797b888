"""Who is fastest at a problem."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import JSONResponse

from api.boards import board, board_csv
from api.errors import InvalidRequest, problems
from api.intake import default_device
from api.schemas import Board, DeviceKind, Precision, Track
from api.services import ReadSession, ServicesDep

__all__ = ["router"]

router = APIRouter(prefix="/api/v1/leaderboard", tags=["leaderboard"])

_MAX_RANK = 1_000_000


@router.get(
    "",
    response_model=Board,
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}, **problems(404, 422)},
)
def read_leaderboard(
    services: ServicesDep,
    session: ReadSession,
    problem: Annotated[str, Query(max_length=200, description="The problem's id.")],
    device: DeviceKind | None = None,
    track: Track = "inference",
    size: Annotated[str | None, Query(max_length=100)] = None,
    precision: Precision | None = None,
    device_name: Annotated[
        str | None, Query(max_length=200, description="Only results from devices of this name, such as `NVIDIA H200`.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    cursor: Annotated[int, Query(ge=0, le=_MAX_RANK)] = 0,
    accept: Annotated[str, Header()] = "*/*",
) -> Response:
    """The best result of each author and source, the fastest first; as JSON, or CSV by `Accept: text/csv`.

    `inference` ranks the forward pass, `training` forward and backward, with only those in it whose
    gradients match. Devices, sizes and precisions are never mixed: what is left out is chosen as it is for
    a submission, except that without a `device_name` the ranking of one device follows that of another.
    """
    known = services.problem(problem)
    kind = device or default_device(session)
    if size is not None and size not in known.sizes:
        raise InvalidRequest.on("size", f"problem {known.id} has the sizes {', '.join(known.sizes)}")
    ranked = board(
        session,
        known,
        kind,
        track,
        size=size or known.default_size(kind),
        precision=precision or known.dtype,
        device_name=device_name,
        limit=limit,
        cursor=cursor,
    )
    if accept.startswith("text/csv"):
        return Response(board_csv(ranked), media_type="text/csv")
    return JSONResponse(ranked.model_dump(mode="json"))
