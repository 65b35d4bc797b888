"""Environments with several turns: a model hands in a candidate, reads the feedback, and hands in a better one.

The classes have the methods that TRL's ``environment_factory`` and SkyRL-gym call, and import neither.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from kerneljudge.terms.outcomes import Verdict

if TYPE_CHECKING:
    from kerneljudge.rewards.kernel_rewards import Graded, KernelRewards

__all__ = ["Episode", "SkyRLEnvironment", "TRLEnvironment", "skyrl_environment", "trl_environment"]

T = TypeVar("T")

_NOT_GRADED: Final = "It was not graded, through no fault of yours."


class Episode:
    """The graded answers of one episode, and its reward."""

    def __init__(self, rewards: KernelRewards) -> None:
        self._rewards = rewards
        self._graded: list[Graded] = []

    @property
    def graded(self) -> Sequence[Graded]:
        """The answers, in order."""
        return tuple(self._graded)

    @property
    def turns(self) -> int:
        """The number of answers."""
        return len(self._graded)

    @property
    def passed(self) -> bool:
        """Whether any answer passed."""
        return any(each.passed for each in self._graded)

    async def hand_in(self, completion: str, problem: str) -> str:
        """Have an answer graded, and return the feedback for the model."""
        (graded,) = await self._rewards.grade([completion], [problem])
        self._graded.append(graded)
        if graded.record is None and graded.doubt is None:
            return "Verdict: invalid source. It is too large."
        return graded.feedback or _NOT_GRADED

    def best(self) -> Graded | None:
        """Return the answer whose reward is the episode's; ``None`` without an answer.

        It is the best one. A penalty is not made up for by another answer, and an answer without a figure by those
        with a verdict only where it would not have been the best. So one that passed without a figure comes first.
        """
        if not self._graded:
            return None
        worst = min(self._graded, key=_amount)
        if _amount(worst) < 0 and worst.doubt is None:
            return worst
        judged = [each for each in self._graded if each.doubt is None or each.passed]
        unmeasured = next((each for each in judged if each.doubt is not None), None)
        return unmeasured or max(judged or self._graded, key=_amount)

    def reward(self) -> float:
        """Return the reward of the episode. Raises ``NoReward`` where there is none."""
        best = self.best()
        return self._rewards.shape.failure(Verdict.INVALID_SOURCE) if best is None else self._rewards.needed(best)

    def reward_or_none(self) -> float | None:
        """Return the reward of the episode, or ``None`` where the shape has it so. Raises ``NoReward`` for "raise"."""
        best = self.best()
        if best is not None and best.doubt is not None:
            return self._rewards.shape.without(best.doubt)
        return self.reward()


def _amount(graded: Graded) -> float:
    return 0.0 if graded.reward is None else graded.reward


class TRLEnvironment(Protocol):
    """The methods that TRL calls. All other public methods would be tools."""

    def reset(self, **columns: Any) -> str | None:
        """Begin an episode with the columns of its row. Returns the text that follows the prompt."""

    async def submit(self, code: str) -> str:
        """Grade a candidate."""

    def get_reward(self) -> float | None:
        """Return the reward of the episode."""


def trl_environment(rewards: KernelRewards, submissions: int, column: str) -> type[TRLEnvironment]:
    """Return the class for ``environment_factory``."""

    class KernelEnvironment:
        def __init__(self) -> None:
            self._episode = Episode(rewards)
            self._problem = ""

        def reset(self, **columns: Any) -> str:
            if column not in columns:
                raise KeyError(f"the data set needs a column {column!r} with the problem's id")
            self._episode, self._problem = Episode(rewards), str(columns[column])
            return f"\n\nHand your candidate in with the tool submit, at most {submissions} times."

        async def submit(self, code: str) -> str:
            """
            Grade a candidate: compile it, compare its outputs and gradients with the reference's, and time it.

            Args:
                code: The complete Python source of the candidate, which defines the class ModelNew.

            Returns:
                The verdict and feedback.
            """
            # TRL shows the model the text of an exception.
            if self._episode.turns >= submissions:
                raise ValueError(f"all {submissions} submissions are used up")
            return await self._episode.hand_in(code, self._problem)

        def get_reward(self) -> float | None:
            return self._episode.reward_or_none()

    return KernelEnvironment


class SkyRLEnvironment(Protocol):
    """The methods that SkyRL-gym calls."""

    def __init__(self, env_config: Any = None, extras: Mapping[str, Any] | None = None) -> None: ...

    def init(self, prompt: list[dict[str, str]]) -> tuple[list[dict[str, str]], dict[str, Any]]:
        """Return the first prompt, and metadata."""

    def step(self, action: str) -> dict[str, Any]:
        """Grade an answer. Returns ``observations``, ``reward``, ``done`` and ``metadata``."""

    def close(self) -> None:
        """End the episode."""

    def get_metrics(self) -> dict[str, Any]:
        """Return the metrics of the episode."""

    @staticmethod
    def aggregate_metrics(metrics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the mean of each metric over many episodes."""


def skyrl_environment(rewards: KernelRewards, turns: int) -> type[SkyRLEnvironment]:
    """Return the class for ``skyrl_gym.register``."""

    class KernelTextEnv:
        def __init__(self, env_config: Any = None, extras: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002
            given = extras or {}
            problem = given.get("problem") or given.get("reward_spec", {}).get("ground_truth")
            if not problem:
                raise KeyError('extras need the problem\'s id, as "problem" or as "ground_truth" of "reward_spec"')
            self.max_turns = turns
            self._problem = str(problem)
            self._episode = Episode(rewards)

        @property
        def turns(self) -> int:
            return self._episode.turns

        def init(self, prompt: list[dict[str, str]]) -> tuple[list[dict[str, str]], dict[str, Any]]:
            return prompt, {}

        def step(self, action: str) -> dict[str, Any]:
            feedback = _loop.run(self._episode.hand_in(action, self._problem))
            done = self._episode.turns >= turns
            return {
                "observations": [] if done else [{"role": "user", "content": feedback}],
                # The rewards of an episode's steps are added up.
                "reward": self._episode.reward() if done else 0.0,
                "done": done,
                "metadata": {"passed": self._episode.passed, "feedback": feedback},
            }

        def close(self) -> None:
            """Nothing of an episode stays."""

        def get_metrics(self) -> dict[str, Any]:
            return {"passed": float(self._episode.passed), "turns": float(self._episode.turns)}

        @staticmethod
        def aggregate_metrics(metrics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
            names = {name for each in metrics for name in each}
            return {name: sum(each.get(name, 0.0) for each in metrics) / len(metrics) for name in sorted(names)}

    return KernelTextEnv


class _Loop:
    """An event loop in a thread of its own, for callers without one.

    Their threads share its connections. It is never closed: closing would wait for the resolver of names, however
    late it is.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: asyncio.AbstractEventLoop | None = None
        self._process = 0

    def run(self, awaitable: Awaitable[T]) -> T:
        """Return the result of ``awaitable``."""

        async def awaited() -> T:
            return await awaitable

        return asyncio.run_coroutine_threadsafe(awaited(), self._started()).result()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            # A forked process has none of the threads of its parent.
            if self._running is None or self._process != os.getpid():
                self._running, self._process = asyncio.new_event_loop(), os.getpid()
                threading.Thread(target=self._running.run_forever, name="kerneljudge rewards", daemon=True).start()
            return self._running


_loop = _Loop()  # the classes are copied to other processes, which a lock cannot be
