"""The grader of completions, and the functions that trainers call."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from kerneljudge._http import DEFAULT_CONCURRENCY, DEFAULT_URL
from kerneljudge.async_client import AsyncClient
from kerneljudge.completions import Completion, text_of
from kerneljudge.errors import RequestRefused
from kerneljudge.records import SubmissionRecord
from kerneljudge.requests import NewSubmission, SubmissionOptions
from kerneljudge.rewards.environments import SkyRLEnvironment, TRLEnvironment, skyrl_environment, trl_environment
from kerneljudge.rewards.group import Outcome, judged
from kerneljudge.rewards.shape import NoReward, RewardShape, Ungraded
from kerneljudge.terms.outcomes import Verdict

__all__ = ["Graded", "KernelRewards"]

_log = logging.getLogger(__name__)

_PATIENT_RETRIES = 10**9  # until the deadline


@dataclass(frozen=True)
class Graded:
    """A reward, and the record behind it.

    ``doubt`` is the reason for having no verdict or no figure. The reward is then what the shape has for it, ``None``
    for "raise". ``record`` is ``None`` where the service gave none.
    """

    reward: float | None
    record: SubmissionRecord | None
    doubt: NoReward | None = None

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
    ``options`` go with every submission (``device``, ``size``, ``require_gradients``, ``label``, ...). The completions
    of a call are handed in as one batch. The same completion for the same problem is graded once in each call.

    Each call returns within ``timeout_s``, whatever the service does. It asks a service that is away or busy again
    until then. Candidates without a verdict are then cancelled, and ungraded. Without ``timeout_s`` a call waits for
    its verdicts however long they take, and gives up a service after some retries.

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
        if timeout_s is not None and not timeout_s > 0:
            raise ValueError(f"timeout_s must be above 0, not {timeout_s}")
        self.shape = shape or RewardShape()
        self._url = url
        self._api_key = api_key
        self._options: SubmissionOptions = options or {}
        self._timeout_s = timeout_s
        self._concurrency = concurrency
        self._connect = connect
        self._clients: dict[asyncio.AbstractEventLoop, tuple[AsyncClient, int]] = {}

    async def __call__(self, completions: Sequence[Completion], problems: Sequence[str]) -> list[float | None]:
        """Return the reward of each completion for its problem; ``None`` where the shape has it so.

        Raises ``NoReward`` where the shape has "raise", and ``RequestRefused`` where a problem does not exist.
        """
        return [self._chosen(graded) for graded in await self.grade(completions, problems)]

    async def grade(self, completions: Sequence[Completion], problems: Sequence[str]) -> list[Graded]:
        """Return the rewards together with the records. Raises ``RequestRefused`` where a problem does not exist."""
        if len(completions) != len(problems):
            raise ValueError(f"there are {len(completions)} completions and {len(problems)} problems")
        wanted = list(zip(map(text_of, completions), problems, strict=True))
        distinct = list(dict.fromkeys(wanted))
        if not distinct:
            return []
        async with self._connected() as client:
            outcomes = await judged(client, [self._new(*each) for each in distinct], self._timeout_s)
        found = {each: self._graded(outcome) for each, outcome in zip(distinct, outcomes, strict=True)}
        graded = [found[each] for each in wanted]
        doubts = [str(each.doubt) for each in graded if isinstance(each.doubt, Ungraded)]
        if doubts:
            _log.warning("%d of %d were not graded: %s", len(doubts), len(graded), doubts[0])
        return graded

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

    def for_trl_environment(self, submissions: int = 4, column: str = "problem") -> type[TRLEnvironment]:
        """Return a class for ``environment_factory`` of TRL's ``GRPOTrainer``.

        Its tool ``submit`` gives the feedback, at most ``submissions`` times an episode.
        """
        return trl_environment(self, submissions, column)

    def for_skyrl(self, turns: int = 1) -> type[SkyRLEnvironment]:
        """Return a class with the methods of SkyRL-gym's ``BaseTextEnv``, with at most ``turns`` turns an episode.

        The data set's ``extras`` have the problem's id as ``problem``, or as ``reward_spec["ground_truth"]``.
        """
        return skyrl_environment(self, turns)

    def for_verl(self) -> Callable[..., Awaitable[dict[str, float]]]:
        """Return a function for verl's ``custom_reward_function``.

        The problem's id is ``extra_info["problem"]``, or else the ground truth. The other entries are metrics. Raises
        ``NoReward`` where there is no reward, which verl cannot do without: ``RewardShape.unmeasured`` and ``ungraded``
        may be numbers.
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
            # verl needs the same metrics of every sample. A candidate without a verdict or a figure does not have a
            # speedup of 0.
            nothing = math.nan if graded.passed or graded.doubt else 0.0
            speedup = nothing if graded.speedup is None else graded.speedup
            return {"score": self.needed(graded), "passed": float(graded.passed), "speedup": speedup}

        return compute_score

    def needed(self, graded: Graded) -> float:
        """Return the reward, for a trainer that cannot do without. Raises ``NoReward`` where there is none."""
        reward = self._chosen(graded)
        if reward is None:
            assert graded.doubt is not None
            raise graded.doubt
        return reward

    def _chosen(self, graded: Graded) -> float | None:
        return graded.reward if graded.doubt is None else self.shape.without(graded.doubt)

    def _new(self, completion: str, problem: str) -> NewSubmission:
        return cast(NewSubmission, {**self._options, **_asked(problem), "response": completion})

    def _graded(self, outcome: Outcome) -> Graded:
        if isinstance(outcome, RequestRefused):
            return Graded(self.shape.failure(Verdict.INVALID_SOURCE), None)
        record = None if isinstance(outcome, Ungraded) else outcome
        doubt = outcome if isinstance(outcome, Ungraded) else self.shape.doubt(outcome)
        if doubt is None:
            assert record is not None
            return Graded(self.shape.reward(record), record)
        try:
            return Graded(self.shape.without(doubt), record, doubt)
        except NoReward:
            return Graded(None, record, doubt)

    def _new_client(self) -> AsyncClient:
        patience = {} if self._timeout_s is None else {"retries": _PATIENT_RETRIES}
        return self._connect(self._url, api_key=self._api_key, concurrency=self._concurrency, **patience)

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
