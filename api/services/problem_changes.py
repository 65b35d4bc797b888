"""Problems that clients create, update, publish and withdraw. Each change is a transaction of its own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from api.http.errors import Conflict, FieldError, Forbidden, InvalidRequest, NotFound
from api.schemas.problems import ProblemRequest
from api.services.auth import Caller
from api.services.container import Services
from evaluator.errors import ProblemError
from evaluator.problems.created import CREATED, CREATED_FIELDS, parse_created
from evaluator.problems.problem import Problem
from storage.access.quotas import charge_problem
from storage.access.visibility import Visibility
from storage.created_problems import (
    TooManyProblems,
    create_problem,
    locked_problem,
    publish_problem,
    refuse_too_many,
    restore_problem,
    sees_problem,
    update_problem,
    withdraw_problem,
)
from storage.ids import keyed_id, new_id
from storage.models import CreatedProblem
from storage.problems import stored_problem

__all__ = ["NewProblem", "create", "publish", "restore", "update", "withdraw"]

_NAMED: Final = re.compile(r"\[?([a-z_]+)")


@dataclass(frozen=True)
class NewProblem:
    """The id of a problem, and whether this request made it."""

    id: str
    created: bool


def create(services: Services, body: ProblemRequest, caller: Caller, key: str | None) -> NewProblem:
    """Store a new problem. With an idempotency ``key`` that was used for the same content, it is the earlier one.

    It is private, or public where callers are not identified. Raises ``ApiError``, ``QuotaSpent``.
    """
    _refuse_references(services)
    problem_id = new_id(CREATED) if key is None else keyed_id(CREATED, caller.client, key)
    problem = _parsed(problem_id, body)
    try:
        return _created(services, problem, caller)
    except IntegrityError:
        # Another request with the same key has stored it meanwhile.
        return _created(services, problem, caller)


def _created(services: Services, problem: Problem, caller: Caller) -> NewProblem:
    with services.sessions.begin() as session:
        earlier = session.get(CreatedProblem, problem.id)
        if earlier is not None:
            same = stored_problem(session, problem.id, problem.version) == problem
            if earlier.withdrawn_at is not None or not same:
                raise Conflict("this idempotency key was used before, for another problem or one that is withdrawn")
            return NewProblem(problem.id, created=False)
        visibility = Visibility.PUBLIC if caller.client is None else Visibility.PRIVATE
        create_problem(session, problem, caller.client, visibility)
        if services.settings.problems_per_client:
            try:
                refuse_too_many(session, caller.client, services.settings.problems_per_client)
            except TooManyProblems as error:
                raise Conflict(str(error)) from error
        _charge(services, session, caller)
    return NewProblem(problem.id, created=True)


def update(services: Services, problem_id: str, body: ProblemRequest, caller: Caller) -> None:
    """Make ``body`` the current version of a problem. Raises ``ApiError``, ``QuotaSpent``."""
    _refuse_references(services)
    with services.readers() as session:
        _refuse_others(session.get(CreatedProblem, problem_id), problem_id, caller)
    # Outside of the transaction, because a long source takes a while, and SQLite has one writer at a time.
    problem = _parsed(problem_id, body)
    with services.sessions.begin() as session:
        known = _own(session, problem_id, caller)
        before = known.version
        update_problem(session, known, problem, caller.client)
        if problem.version != before:
            _charge(services, session, caller)


def publish(services: Services, problem_id: str, version: str, caller: Caller) -> None:
    """Show a problem to everyone, if ``version`` is its current one. Raises ``NotFound``, ``Conflict``."""
    with services.sessions.begin() as session:
        known = _own(session, problem_id, caller)
        if known.version != version:
            raise Conflict(f"the current version of problem {problem_id} is {known.version}, and not {version!r}")
        publish_problem(session, known, caller.client)


def withdraw(services: Services, problem_id: str, caller: Caller) -> None:
    """Take a problem off every list. Raises ``ApiError``."""
    with services.sessions.begin() as session:
        withdraw_problem(session, _own(session, problem_id, caller), caller.client)


def restore(services: Services, problem_id: str, caller: Caller) -> None:
    """Undo a withdrawal. Raises ``NotFound``."""
    with services.sessions.begin() as session:
        known = locked_problem(session, problem_id, withdrawn=True)
        if known is None:
            raise NotFound(f"no problem {problem_id!r} that was withdrawn")
        restore_problem(session, known, caller.client)


def _own(session: Session, problem_id: str, caller: Caller) -> CreatedProblem:
    """Return a problem that the caller may change, locked. Raises ``NotFound``, ``Forbidden``."""
    return _refuse_others(locked_problem(session, problem_id), problem_id, caller)


def _refuse_others(known: CreatedProblem | None, problem_id: str, caller: Caller) -> CreatedProblem:
    """Return a problem that the caller may change. Raises ``NotFound``, ``Forbidden``."""
    if known is None or known.withdrawn_at is not None or not sees_problem(caller.viewer, known):
        raise NotFound(f"no problem {problem_id!r} that was created through the API")
    if not caller.viewer.owns(known):
        raise Forbidden(f"problem {problem_id} belongs to another client")
    if known.visibility == Visibility.PUBLIC and not caller.viewer.everything:
        # Others rely on it, and an administrator has decided that they see this content.
        raise Forbidden(f"problem {problem_id} is public, so only administrators change or withdraw it")
    return known


def _refuse_references(services: Services) -> None:
    if not services.settings.request_references:
        raise Forbidden("this service takes no references from clients (KERNELJUDGE_REQUEST_REFERENCES)")


def _parsed(problem_id: str, body: ProblemRequest) -> Problem:
    try:
        return parse_created(problem_id, body.source, body.fields())
    except ProblemError as error:
        named = _NAMED.match(str(error))
        field = named[1] if named is not None and named[1] in CREATED_FIELDS else "source"
        raise InvalidRequest(str(error), errors=[FieldError(field=field, message=str(error))]) from error


def _charge(services: Services, session: Session, caller: Caller) -> None:
    """Charge a version to the quota of the caller's key, with the last lock of the transaction."""
    limit = services.settings.problems_per_day
    if caller.key_id is not None and limit:
        charge_problem(session, caller.key_id, limit)
