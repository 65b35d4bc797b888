"""The routes of submissions: hand one in, follow it, cancel it, retry it."""

from __future__ import annotations

from collections.abc import AsyncIterable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Response
from fastapi.responses import PlainTextResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from api.http.errors import Conflict, Forbidden, NotFound, problems
from api.records.encoding import to_json
from api.records.submissions import attempt_list, current_record, diagnosis_record, samples_record, submission_records
from api.schemas.submissions import PublishRequest, SubmissionRequest, WithdrawalRequest
from api.services.auth import (
    ADMINISTERS,
    READS,
    SUBMITS,
    CallerDep,
    KnownSubmission,
    OwnSubmission,
    ViewerDep,
    seen_submission,
)
from api.services.container import ReadSession, Services, ServicesDep, WaitSeconds, WriteSession
from api.services.submit import submit
from evaluator.evaluation import Status, Verdict
from evaluator.logs import add_fields
from kerneljudge.records import (
    AttemptList,
    DeviceKind,
    DiagnosisRecord,
    SamplesRecord,
    SubmissionPage,
    SubmissionRecord,
    TierName,
)
from kerneljudge.terms.findings import Tool
from storage.access.visibility import Viewer, Visibility
from storage.batches.batches import Batches
from storage.clock import database_now
from storage.grading.diagnoses import Diagnoses, NoDiagnosisWorker, NotDiagnosable
from storage.grading.verification import verify_leaders
from storage.grading.withdrawal import NotPublishable, NotRanked, publish, reinstate, withdraw
from storage.models import Submission
from storage.problems import stored_problem
from storage.submissions.listing import Filters, page_of_submissions
from storage.submissions.submissions import WITH_SOURCE, NotRetriable, Submissions

__all__ = ["IdempotencyKey", "creation_headers", "router"]

router = APIRouter(prefix="/api/v1/submissions", tags=["submissions"])

_RECONNECT_MS = 1000

IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=200,
        description="Sent again with the same content, it leads to what the first request has made.",
    ),
]
Word = Annotated[str | None, Query(max_length=200)]


def _seen_through(known: KnownSubmission, viewer: ViewerDep) -> Submission:
    """Return a submission whose source the viewer may see, together with everything that quotes it."""
    if not viewer.sees_source(known):
        raise Forbidden(f"the author of submission {known.id} hides its source")
    return known


SeenThrough = Annotated[Submission, Depends(_seen_through)]


def creation_headers(what: str) -> dict[str, Any]:
    """Return the OpenAPI description of the headers of an answer to handing in."""
    return {
        "Location": {"description": f"The {what}.", "schema": {"type": "string"}},
        "Idempotency-Replayed": {
            "description": f"`true` where the key led to an earlier {what}.",
            "schema": {"type": "string", "enum": ["true"]},
        },
    }


@router.post(
    "",
    status_code=202,
    dependencies=[SUBMITS],
    response_description="Stored. With `wait`, and if it is over by then, with its verdict.",
    responses={
        202: {"headers": creation_headers("submission")},
        **problems(400, 404, 409, 413, 422, 429),
    },
)
async def create_submission(
    body: SubmissionRequest,
    services: ServicesDep,
    caller: CallerDep,
    response: Response,
    wait: WaitSeconds = 0,
    idempotency_key: IdempotencyKey = None,
) -> SubmissionRecord:
    """Hand in a candidate for grading.

    The answer comes at once, or with `wait` as soon as the submission is over. Without `device`, it is graded on `cuda`
    where a worker with a CUDA device is alive, else on `cpu`.

    Without `size`, it is graded at `full` on `cuda`. On `cpu` it is graded at `smoke` where the problem has that size,
    else at `full`.
    """
    submission = await run_in_threadpool(submit, services, body, caller, idempotency_key)
    add_fields(submission=submission.id)
    if wait and not submission.state.final:
        await services.watcher.until_final(submission.id, wait)
        record = await run_in_threadpool(_read, services, submission.id, caller.viewer)
    else:
        record = await run_in_threadpool(_record, services, submission, caller.viewer)
    response.headers["Location"] = record["links"]["self"]
    if not submission.created:
        response.headers["Idempotency-Replayed"] = "true"
    return record


@router.get("", dependencies=[READS], responses=problems(422))
def list_submissions(
    session: ReadSession,
    viewer: ViewerDep,
    problem: Word = None,
    device: DeviceKind | None = None,
    status: Status | None = None,
    verdict: Verdict | None = None,
    author: Word = None,
    label: Word = None,
    parent: Annotated[str | None, Query(max_length=100, description="Derived from this submission.")] = None,
    tier: TierName | None = None,
    cursor: Annotated[str | None, Query(max_length=100)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> SubmissionPage:
    """List the submissions that meet all of the conditions and that you may see, newest first."""
    filters = Filters(
        problem=problem,
        device=device,
        status=status,
        verdict=verdict,
        author=author,
        label=label,
        parent=parent,
        tier=tier,
    )
    page = page_of_submissions(session, filters, cursor, limit, viewer=viewer)
    return SubmissionPage(items=submission_records(session, page.items, viewer), next_cursor=page.next_cursor)


@router.get("/{submission_id}", dependencies=[READS], responses=problems(404, 422))
async def read_submission(
    submission_id: str, services: ServicesDep, viewer: ViewerDep, wait: WaitSeconds = 0
) -> SubmissionRecord:
    """Read a submission as it is now, or with `wait` as soon as it is over."""
    record = await run_in_threadpool(_seen, services, submission_id, viewer)
    if Status(record["status"]).final or not wait:
        return record
    await services.watcher.until_final(submission_id, wait)
    return await run_in_threadpool(_read, services, submission_id, viewer)


@router.patch("/{submission_id}", dependencies=[SUBMITS], responses=problems(400, 404, 409, 413, 422))
def publish_submission(
    body: PublishRequest, own: OwnSubmission, services: ServicesDep, session: WriteSession, caller: CallerDep
) -> SubmissionRecord:
    """Show others more of your submission: its source, or that it exists at all.

    A submission that was private is ranked from then on. The answer is 409 where others see more already.
    """
    try:
        published = publish(session, own.id, Visibility(body.visibility), caller.client)
    except NotPublishable as error:
        raise Conflict(str(error)) from error
    _verify_leaders(services, session, published)
    return current_record(session, published, caller.viewer)


@router.delete("/{submission_id}", dependencies=[SUBMITS], responses=problems(404, 409, 422))
def cancel_submission(own: OwnSubmission, session: WriteSession, viewer: ViewerDep) -> SubmissionRecord:
    """Cancel a submission; a running one is stopped. A submission that is over stays as it is.

    The answer is 409 where a batch of another client waits for it.
    """
    if not viewer.everything and Batches(session).awaited_by_others(own.id, own.owner):
        raise Conflict(f"another client's batch waits for submission {own.id}")
    return current_record(session, Submissions(session).cancel(own.id), viewer)


@router.post("/{submission_id}/retry", status_code=202, dependencies=[SUBMITS], responses=problems(404, 409, 422))
def retry_submission(own: OwnSubmission, session: WriteSession, viewer: ViewerDep) -> SubmissionRecord:
    """Queue a submission again that `failed`, which is the service's fault; 409 if it has not failed."""
    try:
        return current_record(session, Submissions(session).retry(own.id), viewer)
    except NotRetriable as error:
        raise Conflict(str(error)) from error


@router.put("/{submission_id}/withdrawal", dependencies=[ADMINISTERS], responses=problems(400, 404, 409, 413, 422))
def withdraw_submission(
    body: WithdrawalRequest, known: KnownSubmission, services: ServicesDep, session: WriteSession, caller: CallerDep
) -> SubmissionRecord:
    """Withdraw a submission from the leaderboards; 409 if it has not passed, or is not of the tier `full`.

    Its evaluation stays, and its page shows the reason.
    """
    try:
        withdrawn = withdraw(session, known.id, body.reason, caller.client)
    except NotRanked as error:
        raise Conflict(str(error)) from error
    _verify_leaders(services, session, withdrawn)
    return current_record(session, withdrawn, caller.viewer)


@router.delete("/{submission_id}/withdrawal", dependencies=[ADMINISTERS], responses=problems(404, 422))
def reinstate_submission(known: KnownSubmission, session: WriteSession, caller: CallerDep) -> SubmissionRecord:
    """Put a withdrawn submission back onto the leaderboards."""
    return current_record(session, reinstate(session, known.id, caller.client), caller.viewer)


@router.get(
    "/{submission_id}/source",
    dependencies=[READS],
    response_class=PlainTextResponse,
    responses=problems(403, 404, 422),
)
def read_source(known: SeenThrough, session: ReadSession) -> str:
    """Read the graded source; 403 where its author hides it."""
    return Submissions(session).source_of(known.id)


@router.get(
    "/{submission_id}/reference",
    dependencies=[READS],
    response_class=PlainTextResponse,
    responses=problems(403, 404, 422),
)
def read_reference(known: SeenThrough, session: ReadSession) -> str:
    """Read the reference that it was graded against, in the version of that time; 403 where its author hides it."""
    problem = stored_problem(session, known.problem, known.problem_version)
    assert problem is not None
    return problem.source


@router.get(
    "/{submission_id}/log", dependencies=[READS], response_class=PlainTextResponse, responses=problems(403, 404, 422)
)
def read_log(known: SeenThrough, session: ReadSession) -> str:
    """Read the output of compiler and candidate so far, up to a limit."""
    return Submissions(session).log_of(known.id)


@router.get("/{submission_id}/samples", dependencies=[READS], responses=problems(404, 409, 422))
def read_samples(known: KnownSubmission, session: ReadSession, viewer: ViewerDep) -> SamplesRecord:
    """Read the raw samples behind the figures: every timed call of candidate and baseline.

    The answer is 409 while the submission is under way, and 404 where it ended without being timed.
    """
    submission = Submissions(session).get(known.id) or known
    if not submission.state.final:
        raise Conflict(f"submission {known.id} is {submission.state}: its samples are there once it is done")
    record = samples_record(submission)
    if record is None:
        said = submission.message if viewer.sees_source(submission) else ""
        raise NotFound(f"submission {known.id} has no samples: {said or submission.status}")
    return record


@router.get("/{submission_id}/attempts", dependencies=[READS], responses=problems(404, 422))
def read_attempts(known: KnownSubmission, session: ReadSession, viewer: ViewerDep) -> AttemptList:
    """List every attempt of a worker on the submission, and its outcome."""
    return attempt_list(known, Submissions(session).attempts_of(known.id), viewer)


@router.post("/{submission_id}/diagnosis", status_code=202, dependencies=[SUBMITS], responses=problems(404, 409, 422))
def request_diagnosis(
    own: OwnSubmission,
    session: WriteSession,
    tool: Annotated[Tool, Query(description="`counters` is `ncu`, the others are of `compute-sanitizer`.")] = (
        Tool.MEMCHECK
    ),
) -> DiagnosisRecord:
    """Run the candidate once under a tool, which finds the faulty line, or the speed of each kernel and its reason.

    A worker does so when no evaluation waits. The verdict does not change. While a diagnosis with this tool is under
    way, the answer is that one. An earlier result of the same tool is replaced.

    The answer is 409 where there is nothing to run, where the submission is not for `cuda`, and where no worker has the
    tool.
    """
    try:
        return diagnosis_record(session, Diagnoses(session).request(own.id, tool))
    except (NotDiagnosable, NoDiagnosisWorker) as error:
        raise Conflict(str(error)) from error


@router.get("/{submission_id}/diagnosis", dependencies=[READS], responses=problems(403, 404, 422))
def read_diagnosis(
    known: SeenThrough,
    session: ReadSession,
    tool: Annotated[Tool | None, Query(description="Left out: the one that was asked for last.")] = None,
) -> DiagnosisRecord:
    """Read the result of a tool, with the output of tool and candidate; 404 where no diagnosis was requested."""
    diagnoses = Diagnoses(session)
    if tool is not None:
        found = diagnoses.of_tool(known.id, tool)
    else:
        found = next(iter(diagnoses.of_submission(known.id)), None)
    if found is None:
        raise NotFound(f"submission {known.id} has no diagnosis" + (f" by {tool}" if tool is not None else ""))
    return diagnosis_record(session, found, printed=True)


@router.get(
    "/{submission_id}/events", dependencies=[READS], response_class=EventSourceResponse, responses=problems(404, 422)
)
async def follow_submission(
    known: KnownSubmission, services: ServicesDep, viewer: ViewerDep
) -> AsyncIterable[ServerSentEvent]:
    """Follow a submission by server-sent events: `progress` with the record at each change, `done` with the last one.

    A comment comes at least every 15 seconds. The stream ends with `done`. A stream that ends without it was cut off;
    send the request again.
    """
    with services.watcher.watch(known.id) as watch:
        while await watch.change() is not None:
            record = await run_in_threadpool(_read, services, known.id, viewer)
            final = Status(record["status"]).final
            event, data = "done" if final else "progress", to_json(SubmissionRecord, record)
            yield ServerSentEvent(event=event, raw_data=data, retry=_RECONNECT_MS)
            if final:
                return


def _verify_leaders(services: Services, session: Session, submission: Submission) -> None:
    """Start the verification of submissions that now lead, like that of any other record.

    A change of ``submission`` can make a leader of a result that was never re-evaluated. Nothing is done unless
    ``verify_records`` is ``auto``.
    """
    if services.settings.verify_records == "auto":
        verify_leaders(session, submission, database_now(session))


def _seen(services: Services, submission_id: str, viewer: Viewer) -> SubmissionRecord:
    """Return the record of the submission in the request's path. Raises ``NotFound``."""
    with services.readers() as session:
        submission = seen_submission(session, submission_id, viewer, WITH_SOURCE)
        return current_record(session, submission, viewer, source=submission.source.text)


def _record(services: Services, known: Submission, viewer: Viewer) -> SubmissionRecord:
    """Return the record of a submission that was read or stored just now."""
    with services.readers() as session:
        return current_record(session, known, viewer)


def _read(services: Services, submission_id: str, viewer: Viewer) -> SubmissionRecord:
    with services.readers() as session:
        submission = Submissions(session).get(submission_id)
        assert submission is not None
        return current_record(session, submission, viewer)
