"""The routes of problems, to which candidates can be submitted."""

from __future__ import annotations

from fastapi import APIRouter

from api.http.errors import problems
from api.records.problems import problem_record, problem_summary
from api.services.auth import READS
from api.services.container import ReadSession, ServicesDep
from kerneljudge.records import ProblemList, ProblemRecord

__all__ = ["router"]

router = APIRouter(prefix="/api/v1/problems", tags=["problems"])


@router.get("", dependencies=[READS], responses=problems())
def list_problems(services: ServicesDep, session: ReadSession) -> ProblemList:
    """List all problems to which candidates can be submitted."""
    return ProblemList(items=[problem_summary(problem) for problem in services.vetted(session).problems.values()])


@router.get("/{problem_id}", dependencies=[READS], responses=problems(404, 422))
async def read_problem(problem_id: str, services: ServicesDep, session: ReadSession) -> ProblemRecord:
    """Read a problem with its sizes and the source of its reference."""
    return problem_record(services.problem(problem_id, session))
