"""The calls about problems, which both clients have."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from typing import Any, cast

from typing_extensions import Unpack

from kerneljudge import _http
from kerneljudge.records import ProblemRecord, ProblemSummary
from kerneljudge.requests import NewProblem

__all__ = ["AsyncProblemCalls", "ProblemCalls"]

_PATH = "/api/v1/problems"


class ProblemCalls(ABC):
    """The calls about problems. ``Client`` has them."""

    def problems(self) -> list[ProblemSummary]:
        """Return all problems that you may see, without their references."""
        return cast(list[ProblemSummary], self._request("GET", _PATH)["items"])

    def problem(self, problem_id: str, *, version: str | None = None) -> ProblemRecord:
        """Return a problem with its reference, in its current or an earlier ``version``."""
        return cast(ProblemRecord, self._request("GET", _of(problem_id), params=_params(version)))

    def create_problem(self, **new: Unpack[NewProblem]) -> ProblemRecord:
        """Create a private problem of yours: ``source``, and fields as in ``problem.toml``. Raises ``RequestRefused``.

        The service executes the reference outside the sandbox, so the key needs the scope ``references``.
        """
        return cast(ProblemRecord, self._request("POST", _PATH, body=_given(new), headers=_once()))

    def update_problem(self, problem_id: str, **new: Unpack[NewProblem]) -> ProblemRecord:
        """Replace a problem of yours by a new version. Earlier ones stay readable. Raises ``RequestRefused``."""
        return cast(ProblemRecord, self._request("PUT", _of(problem_id), body=_given(new)))

    def publish_problem(self, problem_id: str, *, version: str) -> ProblemRecord:
        """Show a client's problem to everyone, as an administrator who has read this ``version``.

        Raises ``RequestRefused``, also where it is not the current one any more.
        """
        body = {"visibility": "public", "version": version}
        return cast(ProblemRecord, self._request("PATCH", _of(problem_id), body=body))

    def withdraw_problem(self, problem_id: str) -> None:
        """Take a problem of yours off every list. Raises ``RequestRefused``."""
        self._send("DELETE", _of(problem_id))

    def restore_problem(self, problem_id: str) -> ProblemRecord:
        """Put a problem back on every list, as an administrator. Raises ``RequestRefused``."""
        return cast(ProblemRecord, self._request("DELETE", f"{_of(problem_id)}/withdrawal"))

    @abstractmethod
    def _request(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        """Return the answer as an object. Raises the errors of the client."""

    @abstractmethod
    def _send(self, method: str, path: str, **options: Any) -> Any:
        """Return the answer as it is. Raises the errors of the client."""


class AsyncProblemCalls(ABC):
    """The same calls, to be awaited. ``AsyncClient`` has them."""

    async def problems(self) -> list[ProblemSummary]:
        """Return all problems that you may see, without their references."""
        return cast(list[ProblemSummary], (await self._request("GET", _PATH))["items"])

    async def problem(self, problem_id: str, *, version: str | None = None) -> ProblemRecord:
        """Return a problem with its reference, in its current or an earlier ``version``."""
        return cast(ProblemRecord, await self._request("GET", _of(problem_id), params=_params(version)))

    async def create_problem(self, **new: Unpack[NewProblem]) -> ProblemRecord:
        """Create a private problem of yours: ``source``, and fields as in ``problem.toml``. Raises ``RequestRefused``.

        The service executes the reference outside the sandbox, so the key needs the scope ``references``.
        """
        return cast(ProblemRecord, await self._request("POST", _PATH, body=_given(new), headers=_once()))

    async def update_problem(self, problem_id: str, **new: Unpack[NewProblem]) -> ProblemRecord:
        """Replace a problem of yours by a new version. Earlier ones stay readable. Raises ``RequestRefused``."""
        return cast(ProblemRecord, await self._request("PUT", _of(problem_id), body=_given(new)))

    async def publish_problem(self, problem_id: str, *, version: str) -> ProblemRecord:
        """Show a client's problem to everyone, as an administrator who has read this ``version``.

        Raises ``RequestRefused``, also where it is not the current one any more.
        """
        body = {"visibility": "public", "version": version}
        return cast(ProblemRecord, await self._request("PATCH", _of(problem_id), body=body))

    async def withdraw_problem(self, problem_id: str) -> None:
        """Take a problem of yours off every list. Raises ``RequestRefused``."""
        await self._send("DELETE", _of(problem_id))

    async def restore_problem(self, problem_id: str) -> ProblemRecord:
        """Put a problem back on every list, as an administrator. Raises ``RequestRefused``."""
        return cast(ProblemRecord, await self._request("DELETE", f"{_of(problem_id)}/withdrawal"))

    @abstractmethod
    async def _request(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        """Return the answer as an object. Raises the errors of the client."""

    @abstractmethod
    async def _send(self, method: str, path: str, **options: Any) -> Any:
        """Return the answer as it is. Raises the errors of the client."""


def _of(problem_id: str) -> str:
    return f"{_PATH}/{_http.segment(problem_id)}"


def _params(version: str | None) -> dict[str, str]:
    return {} if version is None else {"version": version}


def _given(new: NewProblem) -> dict[str, Any]:
    return {name: value for name, value in new.items() if value is not None}


def _once() -> dict[str, str]:
    """Return the header that makes a repeated request harmless."""
    return {"Idempotency-Key": secrets.token_hex(16)}
