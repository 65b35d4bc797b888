"""From a request to a stored submission. Defaults are filled in here, once."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from sqlalchemy.orm import Session

from api.http.errors import Conflict, FieldError, Forbidden, InvalidRequest, NotFound
from api.records.queries import served_queues
from api.schemas.submissions import DeviceRequirements, RulesRequest, SubmissionRequest
from api.services.auth import Caller
from api.services.catalogue import Catalogue
from api.services.container import Services
from evaluator.candidates.candidate import Candidate, InvalidSource, parse_candidate
from evaluator.config import checked_limits
from evaluator.errors import ProblemError
from evaluator.problems.created import is_created
from evaluator.problems.problem import Problem
from kerneljudge.records import DeviceKind, VisibilityName
from kerneljudge.terms.rules import NO_RULES, Rules
from storage.access.keys import Scope
from storage.access.quotas import charge_submissions
from storage.access.visibility import Visibility
from storage.created_problems import hold_existing
from storage.models import Submission
from storage.queue.celery_app import queue_name
from storage.queue.eligibility import NO_REQUIREMENTS, Requirements, capability_number
from storage.queue.fair_order import refuse_if_full
from storage.submissions.new_submission import NewSubmission
from storage.submissions.parents import seen_ids
from storage.submissions.submissions import IdempotencyConflict, Submissions

__all__ = [
    "charge",
    "check_parent",
    "default_device",
    "held_problems",
    "private_alone",
    "refuse_withdrawn",
    "resolve",
    "submit",
    "visibility_for",
]

_log = logging.getLogger(__name__)


def submit(services: Services, body: SubmissionRequest, caller: Caller, idempotency_key: str | None) -> Submission:
    """Store the submission of ``body``, in a transaction of its own.

    Raises ``ApiError``, ``QueueFull``, ``QuotaSpent``.
    """
    with services.sessions.begin() as session:
        check_parent(body, seen_ids(session, [body.parent], caller.viewer))
        known = services.catalogue(session, caller.viewer)
        submissions = Submissions(session)
        devices = _devices(session, body)
        for device in devices:
            try:
                new = resolve(services, known, body, device, caller)
                refuse_withdrawn(new, held_problems(session, [new]))
                submission = submissions.submit(replace(new, idempotency_key=idempotency_key))
            except IdempotencyConflict as error:
                # An earlier request with the same content may have been resolved to another device.
                if device == devices[-1]:
                    raise Conflict(str(error)) from error
            else:
                if submission.created:
                    refuse_if_full(session, services.settings.max_queued, batched=False)
                    charge(session, services, caller, 1)
                    fields = {"submission": submission.id}
                    _log.info("handed in: %s on %s", submission.problem, device, extra={"fields": fields})
                return submission
    raise AssertionError("there is at least one kind of device")


def held_problems(session: Session, submissions: Iterable[NewSubmission]) -> set[str]:
    """Return the ids of the created problems of ``submissions`` that exist, and go on to until the transaction ends."""
    created = {new.problem.id for new in submissions if is_created(new.problem.id)}
    return hold_existing(session, created) if created else set()


def refuse_withdrawn(new: NewSubmission, held: Collection[str]) -> None:
    """Raise ``NotFound`` where the problem of ``new`` was withdrawn since it was looked up."""
    if is_created(new.problem.id) and new.problem.id not in held:
        raise NotFound(f"problem {new.problem.id!r} has just been withdrawn")


def charge(session: Session, services: Services, caller: Caller, count: int) -> datetime | None:
    """Charge ``count`` submissions to the quota of the caller's key.

    Return the day, or ``None`` where there is no quota.

    It takes the last lock of a transaction, so that no two transactions wait for each other. Raises ``QuotaSpent``.
    """
    own = caller.submissions_per_day
    limit = services.settings.submissions_per_day if own is None else own
    if caller.key_id is None or not limit:
        return None
    return charge_submissions(session, caller.key_id, count, limit)


def check_parent(body: SubmissionRequest, seen: Collection[str]) -> None:
    """Raise ``InvalidRequest`` where the parent of ``body`` is not one of ``seen``, which the caller may know of."""
    if body.parent is not None and body.parent not in seen:
        raise InvalidRequest.on("parent", f"no submission {body.parent!r}")


def visibility_for(caller: Caller, wanted: VisibilityName | None) -> Visibility:
    """Return the requested visibility, or ``public``.

    Raises ``InvalidRequest`` for a hidden submission without an owner.
    """
    visibility = Visibility(wanted or Visibility.PUBLIC)
    if visibility is not Visibility.PUBLIC and caller.client is None:
        raise InvalidRequest.on("visibility", "this service asks for no keys, so whatever is handed in is public")
    return visibility


def resolve(
    services: Services, known: Catalogue, body: SubmissionRequest, device: DeviceKind, caller: Caller
) -> NewSubmission:
    """Return the submission of ``body`` with all defaults, on ``device`` if it names none. Raises ``ApiError``.

    ``known`` are the problems that the caller sees. Submissions to private ones are private.
    """
    problem = _problem(services, known, body, caller)
    candidate = _candidate(body)
    if body.size is not None and body.size not in problem.sizes:
        raise InvalidRequest.on("size", f"problem {problem.id} has the sizes {', '.join(problem.sizes)}")
    device = body.device or device
    new = NewSubmission(
        problem=problem,
        candidate=candidate,
        device=device,
        size=body.size or problem.default_size(device),
        precision=body.precision or problem.dtype,
        require_gradients=body.require_gradients,
        baseline=body.baseline or "eager",
        limits=_limits(body.limits),
        tier=body.tier or "full",
        rules=_rules(body.rules, problem),
        label=body.label,
        author=body.author,
        metadata=body.metadata,
        parent=body.parent,
        requirements=_requirements(body.requirements, device),
        owner=caller.client,
        visibility=_visibility(known, problem, caller, body.visibility),
        shares=not caller.own_only,
    )
    refusal = problem.refuses_baseline(new.config)
    if refusal is not None:
        raise InvalidRequest.on("baseline", refusal)
    return new


def _visibility(known: Catalogue, problem: Problem, caller: Caller, wanted: VisibilityName | None) -> Visibility:
    if not known.is_private(problem.id):
        return visibility_for(caller, wanted)
    if wanted not in (None, Visibility.PRIVATE):
        raise InvalidRequest.on("visibility", private_alone(problem.id))
    return visibility_for(caller, "private")


def private_alone(problem_id: str) -> str:
    """Return the reason why a submission to a private problem is refused."""
    return f"problem {problem_id} is private, and so must be its submissions and their batch"


def _problem(services: Services, known: Catalogue, body: SubmissionRequest, caller: Caller) -> Problem:
    if (body.problem is None) == (body.reference is None):
        message = "exactly one of problem and reference must be given"
        raise InvalidRequest(
            message, errors=[FieldError(field=name, message=message) for name in ("problem", "reference")]
        )
    if body.problem is not None:
        return known.problem(body.problem)
    assert body.reference is not None
    if not services.settings.request_references:
        raise InvalidRequest.on(
            "reference", "this service takes no references with requests (KERNELJUDGE_REQUEST_REFERENCES)"
        )
    if Scope.REFERENCES not in caller.scopes:
        raise Forbidden(f"a reference in a request needs a key with the scope {Scope.REFERENCES}")
    try:
        return body.reference.to_problem(body.precision)
    except ProblemError as error:
        raise InvalidRequest.on("reference.source", str(error)) from error


def _limits(wanted: Mapping[str, float] | None) -> dict[str, float]:
    try:
        return checked_limits(wanted or {})
    except ValueError as error:
        raise InvalidRequest.on("limits", str(error)) from error


def _rules(wanted: RulesRequest | None, problem: Problem) -> Rules:
    try:
        rules = NO_RULES if wanted is None else wanted.to_rules()
        problem.rules.joined(rules)
    except ValueError as error:
        raise InvalidRequest.on("rules", str(error)) from error
    return rules


def default_device(session: Session) -> DeviceKind:
    """Return ``cuda`` where a worker that evaluates on CUDA is alive, else ``cpu``."""
    return "cuda" if queue_name("evaluate", "cuda") in served_queues(session) else "cpu"


def _devices(session: Session, body: SubmissionRequest) -> tuple[DeviceKind, ...]:
    if body.device is not None:
        return (body.device,)
    return ("cuda", "cpu") if default_device(session) == "cuda" else ("cpu", "cuda")


def _requirements(asked: DeviceRequirements | None, device: DeviceKind) -> Requirements:
    if asked is None:
        return NO_REQUIREMENTS
    if asked.min_compute_capability is not None and device != "cuda":
        raise InvalidRequest.on("requirements.min_compute_capability", f"device {device} has no compute capability")
    return Requirements(
        device_name=asked.device_name,
        memory_bytes=None if asked.min_memory_gib is None else math.ceil(asked.min_memory_gib * 2**30),
        capability=capability_number(asked.min_compute_capability),
    )


def _candidate(body: SubmissionRequest) -> Candidate | InvalidSource:
    if (body.code is None) == (body.response is None):
        message = "exactly one of code and response must be given"
        raise InvalidRequest(message, errors=[FieldError(field=name, message=message) for name in ("code", "response")])
    if body.code is not None:
        return parse_candidate(code=body.code)
    return parse_candidate(response=body.response)
