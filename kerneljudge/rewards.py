"""Rewards for trainers: from raw model answers to floats, for the interfaces of several trainers.

    rewards = KernelRewards("http://127.0.0.1:8000", RewardShape(correct=0.3, log_speedup=1.0))
    await rewards(completions, problems)        # a list of floats
    rewards.for_trl()                           # async def reward(prompts, completions, problem, **columns)
    rewards.for_verl()                          # async def compute_score(data_source, solution_str, ...)
    rewards.for_verifiers()                     # async def reward(completion, info, answer, state)

Each of the three is a coroutine function, because these libraries await a function only if it is one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, Literal, cast

from kerneljudge._http import DEFAULT_CONCURRENCY, DEFAULT_URL
from kerneljudge.async_client import AsyncClient, gather
from kerneljudge.completions import Completion, text_of
from kerneljudge.errors import ClientError, RequestRefused, ServiceUnreachable
from kerneljudge.records import SubmissionRecord
from kerneljudge.requests import NewSubmission, SubmissionOptions
from kerneljudge.terms.outcomes import Gradients, SpeedupStatus, Status, Verdict

__all__ = ["Completion", "Graded", "KernelRewards", "RewardShape", "Unmeasured", "text_of"]

_log = logging.getLogger(__name__)

_UNMEASURED: Final = (SpeedupStatus.UNSETTLED, SpeedupStatus.NOT_VETTED)


class Unmeasured(ClientError):
    """A candidate passed and has no speedup, through no fault of its own."""


@dataclass(frozen=True)
class RewardShape:
    """The conversion of a verdict to a number.

    A passed candidate gets ``correct``, and ``log_speedup`` times the natural logarithm of its speedup on ``track``. At
    most ``cap`` of that second part counts. The sum is never below ``least``, so that a correct kernel is worth more
    than a failure, however slow.

    A candidate that did not pass gets minus its verdict's entry in ``penalties`` (none: 0). Nothing can turn a penalty
    into a gain.

    A candidate without a speedup because it folds in or leaves out constant weights (``weights_fixed``) gets
    ``correct`` alone. ``missing_gradients`` is taken from a passed candidate without the gradients that the problem
    has, though never more than it got.

    ``ungraded`` is for candidates that could not be graded, through no fault of their own. ``unmeasured`` is for passed
    candidates without a speedup on ``track``, because the machine was too noisy, or the problem is not vetted. It is
    ``None`` (no reward, which TRL leaves out), ``"raise"`` (``Unmeasured``), or a number of your own.
    """

    correct: float = 0.3
    log_speedup: float = 1.0
    cap: float = 2.0
    least: float = 0.1
    track: Literal["inference", "training"] = "inference"
    penalties: Mapping[str, float] = field(default_factory=lambda: {Verdict.REJECTED: 1.0})
    missing_gradients: float = 0.0
    ungraded: float = 0.0
    unmeasured: float | Literal["raise"] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.correct:
            raise ValueError(f"0 <= least <= correct must hold, not {self.least} and {self.correct}")
        for name in ("log_speedup", "cap", "missing_gradients"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative")
        if self.track not in ("inference", "training"):
            raise ValueError(f"track must be inference or training, not {self.track!r}")
        for verdict, penalty in self.penalties.items():
            if verdict not in set(Verdict) - {Verdict.PASSED}:
                raise ValueError(f"there is no failing verdict {verdict!r}")
            if not penalty >= 0:
                raise ValueError(f"the penalty for {verdict} must not be negative")

    def reward(self, record: SubmissionRecord) -> float | None:
        """Return the reward for ``record``. Where ``unmeasured`` says so, return ``None`` or raise ``Unmeasured``."""
        if record["status"] != Status.DONE or record["verdict"] is None:
            return self.ungraded
        if record["verdict"] != Verdict.PASSED:
            return -self.penalties.get(record["verdict"], 0.0)
        inference = self.track == "inference"
        speedup = record["speedup"] if inference else record["speedup_training"]
        # A service from before this status sends none.
        status = record.get("speedup_status") if inference else record.get("speedup_training_status")
        if status in _UNMEASURED:
            if self.unmeasured == "raise":
                raise Unmeasured(f"submission {record['id']} passed, and its speedup is {status}")
            return self.unmeasured
        gained = 0.0
        if speedup is not None and speedup > 0:
            gained = min(self.cap, self.log_speedup * math.log(speedup))
        earned = max(self.least, self.correct + gained)
        if record["gradients"] == Gradients.MISSING:
            earned = max(0.0, earned - self.missing_gradients)
        return earned


@dataclass(frozen=True)
class Graded:
    """A reward, and the record behind it.

    ``reward`` is ``None`` as in ``RewardShape.unmeasured``; ``record`` is ``None`` where the service gave none.
    """

    reward: float | None
    record: SubmissionRecord | None

    @property
    def passed(self) -> bool:
        return self.record is not None and self.record["verdict"] == Verdict.PASSED

    @property
    def speedup(self) -> float | None:
        return None if self.record is None else self.record["speedup"]

    @property
    def feedback(self) -> str:
        """The feedback for the model; empty where it was not graded."""
        return "" if self.record is None else self.record.get("feedback") or ""


class KernelRewards:
    """A grader of completions. The service at ``url`` judges them, and ``shape`` turns the verdicts into rewards.

    A problem is its id, or the source of a reference in KernelBench's form, where the service takes references.
    ``options`` go with every submission (``device``, ``size``, ``require_gradients``, ``label``, ...). A submission
    that takes longer than ``timeout_s`` is cancelled and counts as ungraded. The same completion for the same problem
    is graded once in each call.

    Calls under way on one event loop share their connections, which are closed after the last of them. ``connect``
    makes the client (for tests).
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        shape: RewardShape | None = None,
        *,
        api_key: str | None = None,
        options: SubmissionOptions | None = None,
        timeout_s: float | None = None,
        concurrency: int = DEFAULT_CONCURRENCY,
        connect: Callable[..., AsyncClient] = AsyncClient,
    ) -> None:
        self.shape = shape or RewardShape()
        self._url = url
        self._api_key = api_key
        self._options: SubmissionOptions = options or {}
        self._timeout_s = timeout_s
        self._concurrency = concurrency
        self._connect = connect
        self._clients: dict[asyncio.AbstractEventLoop, tuple[AsyncClient, int]] = {}

    async def __call__(self, completions: Sequence[Completion], problems: Sequence[str]) -> list[float | None]:
        """Return the reward of each completion for its problem; ``None`` as in ``RewardShape.unmeasured``.

        Raises ``RequestRefused`` where a problem does not exist.
        """
        return [graded.reward for graded in await self.grade(completions, problems)]

    async def grade(self, completions: Sequence[Completion], problems: Sequence[str]) -> list[Graded]:
        """Return the rewards together with the records."""
        wanted = list(zip(map(text_of, completions), problems, strict=True))
        distinct = list(dict.fromkeys(wanted))
        async with self._connected() as client:
            found = await gather(self._grade(client, *each) for each in distinct)
        graded = dict(zip(distinct, found, strict=True))
        return [graded[each] for each in wanted]

    def for_trl(self, column: str = "problem") -> Callable[..., Awaitable[list[float | None]]]:
        """Return a function for ``reward_funcs`` of TRL's trainers.

        The data set's ``column`` holds the problems' ids.
        """

        async def kernel_reward(
            prompts: Sequence[Any],  # noqa: ARG001 - TRL passes it
            completions: Sequence[Completion],
            **columns: Any,
        ) -> list[float | None]:
            if column not in columns:
                raise KeyError(f"the data set needs a column {column!r} with the problem's id")
            return await self(completions, columns[column])

        return kernel_reward

    def for_verl(self) -> Callable[..., Awaitable[dict[str, float]]]:
        """Return a function for verl's ``custom_reward_function``.

        The problem's id is ``extra_info["problem"]``, or else the ground truth. The other entries are metrics. Raises
        ``Unmeasured`` where there is no reward, which verl cannot do without: ``RewardShape.unmeasured`` may be a
        number.
        """

        async def compute_score(
            data_source: str,  # noqa: ARG001 - verl passes it
            solution_str: str,
            ground_truth: Any,
            extra_info: Mapping[str, Any] | None = None,
            **_others: Any,
        ) -> dict[str, float]:
            problem = str((extra_info or {}).get("problem") or ground_truth)
            (graded,) = await self.grade([solution_str], [problem])
            # verl needs the same metrics of every sample. A passed candidate without a figure does not have a speedup
            # of 0.
            nothing = math.nan if graded.passed else 0.0
            speedup = nothing if graded.speedup is None else graded.speedup
            return {"score": _needed(graded), "passed": float(graded.passed), "speedup": speedup}

        return compute_score

    def for_verifiers(self) -> Callable[..., Awaitable[float]]:
        """Return a function for a rubric of verifiers.

        The problem's id is ``info["problem"]``, or else the answer. The feedback is put into ``state["feedback"]`` for
        the environment's next turn. Raises ``Unmeasured`` as for verl.
        """

        async def kernel_reward(
            completion: Completion, info: Mapping[str, Any], answer: Any, state: dict[str, Any]
        ) -> float:
            problem = str((info or {}).get("problem") or answer)
            (graded,) = await self.grade([completion], [problem])
            state["feedback"] = graded.feedback
            return _needed(graded)

        return kernel_reward

    async def _grade(self, client: AsyncClient, completion: str, problem: str) -> Graded:
        new = cast(NewSubmission, {**self._options, **_asked(problem), "response": completion})
        submission_id = None
        try:
            submission_id = str((await client.submit(**new))["id"])
            record = await client.wait(submission_id, timeout_s=self._timeout_s)
        except TimeoutError as error:
            assert submission_id is not None
            return await self._given_up(client, submission_id, str(error))
        except RequestRefused as error:
            if error.status != HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                raise
            # This refusal alone is the completion's fault, and not the request's.
            return Graded(-self.shape.penalties.get(Verdict.INVALID_SOURCE, 0.0), None)
        except ServiceUnreachable as error:
            return self._ungraded(problem.partition("\n")[0], str(error))
        if record["status"] != Status.DONE:
            _log.warning("%s was not graded: %s, %s", record["id"], record["status"], record["message"])
        return Graded(self.shape.reward(record), record)

    async def _given_up(self, client: AsyncClient, submission_id: str, why: str) -> Graded:
        """Cancel the submission. Its verdict will not be read, so it is not worth a device's time."""
        try:
            await client.cancel(submission_id)
        except ClientError as error:
            why = f"{why}, and could not be cancelled: {error}"
        return self._ungraded(submission_id, why)

    def _ungraded(self, what: str, why: str) -> Graded:
        _log.warning("%s was not graded: %s", what, why)
        return Graded(self.shape.ungraded, None)

    def _new_client(self) -> AsyncClient:
        return self._connect(self._url, api_key=self._api_key, concurrency=self._concurrency)

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[AsyncClient]:
        """Open the client of the running event loop. Connections belong to one loop, and trainers have several."""
        loop = asyncio.get_running_loop()
        client, users = self._clients.get(loop) or (self._new_client(), 0)
        self._clients[loop] = (client, users + 1)
        try:
            yield client
        finally:
            users = self._clients[loop][1] - 1
            if users:
                self._clients[loop] = (client, users)
            else:
                del self._clients[loop]
                await client.close()


def _asked(problem: str) -> NewSubmission:
    """Return the problem as a request has it. An id is one word."""
    return {"reference": {"source": problem}} if "\n" in problem else {"problem": problem}


def _needed(graded: Graded) -> float:
    """Return the reward for a trainer that cannot do without. Raises ``Unmeasured``."""
    if graded.reward is None:
        raise Unmeasured("a candidate passed and has no speedup: let RewardShape.unmeasured be a number")
    return graded.reward
