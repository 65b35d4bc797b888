"""The routes of problems, to which candidates can be submitted."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from api.http.errors import problems
from api.records.problems import problem_record, problem_summary
from api.routes.submissions import IdempotencyKey, creation_headers
from api.schemas.problems import ProblemPublication, ProblemRequest
from api.services import problem_changes
from api.services.auth import ADMINISTERS, READS, REFERENCES, CallerDep, ViewerDep
from api.services.container import ReadSession, Services, ServicesDep
from kerneljudge.records import ProblemList, ProblemRecord
from storage.access.visibility import Viewer

__all__ = ["router"]

router = APIRouter(prefix="/api/v1/problems", tags=["problems"])

ProblemId = Annotated[str, Path(max_length=200)]


@router.get("", dependencies=[READS], responses=problems())
def list_problems(services: ServicesDep, session: ReadSession, viewer: ViewerDep) -> ProblemList:
    """List all problems to which you can submit candidates."""
    known = services.catalogue(session, viewer)
    return ProblemList(items=[problem_summary(each, known, viewer) for each in known.problems.values()])


@router.get("/{problem_id}", dependencies=[READS], responses=problems(404, 422))
def read_problem(
    problem_id: ProblemId,
    services: ServicesDep,
    session: ReadSession,
    viewer: ViewerDep,
    version: Annotated[str | None, Query(max_length=100, description="Left out: the current one.")] = None,
) -> ProblemRecord:
    """Read a problem with its sizes and the source of its reference. One that was withdrawn is for its owner."""
    known = services.catalogue(session, viewer).with_withdrawn(session, problem_id, viewer)
    return problem_record(session, known.problem_in(session, problem_id, version), known, viewer)


@router.post(
    "",
    status_code=201,
    dependencies=[REFERENCES],
    responses={201: {"headers": creation_headers("problem")}, **problems(400, 403, 409, 413, 422, 429)},
)
def create_problem(
    body: ProblemRequest,
    services: ServicesDep,
    caller: CallerDep,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> ProblemRecord:
    """Create a problem of yours. Its reference is executed outside the sandbox, so it needs the scope `references`.

    It is private: other clients are told nothing of it, and submissions to it are private as well. An administrator may
    publish it. It is vetted with the first candidate that passes.
    """
    new = problem_changes.create(services, body, caller, idempotency_key)
    response.headers["Location"] = f"/api/v1/problems/{new.id}"
    if not new.created:
        response.headers["Idempotency-Replayed"] = "true"
    return _record(services, new.id, caller.viewer)


@router.put("/{problem_id}", dependencies=[REFERENCES], responses=problems(400, 403, 404, 413, 422, 429))
def update_problem(
    problem_id: ProblemId, body: ProblemRequest, services: ServicesDep, caller: CallerDep
) -> ProblemRecord:
    """Replace a problem of yours by a new version, with leaderboards of its own. Earlier ones stay readable.

    A change of title, description, tags or baselines alone keeps the version. A public problem is changed by
    administrators.
    """
    problem_changes.update(services, problem_id, body, caller)
    return _record(services, problem_id, caller.viewer)


@router.patch("/{problem_id}", dependencies=[ADMINISTERS], responses=problems(400, 404, 409, 413, 422))
def publish_problem(
    problem_id: ProblemId, body: ProblemPublication, services: ServicesDep, caller: CallerDep
) -> ProblemRecord:
    """Show a client's problem and all its versions to everyone.

    Its owner may have changed it since you read it, so you name the version that you have read. Submissions to it stay
    private, and leave its leaderboards. Their owners may publish each.
    """
    problem_changes.publish(services, problem_id, body.version, caller)
    return _record(services, problem_id, caller.viewer)


@router.delete("/{problem_id}", status_code=204, dependencies=[REFERENCES], responses=problems(403, 404, 422))
def withdraw_problem(problem_id: ProblemId, services: ServicesDep, caller: CallerDep) -> None:
    """Withdraw a problem of yours: it is on no list any more. Its submissions stay, and those that wait are graded.

    Its owner and administrators can still read it, and administrators restore it.
    """
    problem_changes.withdraw(services, problem_id, caller)


@router.delete("/{problem_id}/withdrawal", dependencies=[ADMINISTERS], responses=problems(404, 422))
def restore_problem(problem_id: ProblemId, services: ServicesDep, caller: CallerDep) -> ProblemRecord:
    """Restore a problem that was withdrawn: it is on all lists again, as visible as before."""
    problem_changes.restore(services, problem_id, caller)
    return _record(services, problem_id, caller.viewer)


def _record(services: Services, problem_id: str, viewer: Viewer) -> ProblemRecord:
    with services.readers() as session:
        known = services.catalogue(session, viewer)
        return problem_record(session, known.problem(problem_id), known, viewer)
