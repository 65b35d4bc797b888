"""Episodes of several turns, as TRL and SkyRL-gym call them, against a real service."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import threading
from collections.abc import Iterator, Sequence
from typing import get_type_hints

import pytest

from kerneljudge.completions import Completion
from kerneljudge.grading.local_record import blank_record
from kerneljudge.records import SubmissionRecord
from kerneljudge.rewards import Graded, KernelRewards, NoReward, RewardShape, Ungraded, Unmeasured
from kerneljudge.rewards.environments import Episode
from tests.api.conftest import LiveServer
from tests.kerneljudge.graded import PASSED, answer, graded_service, source


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A service that grades."""
    with graded_service(tmp_path_factory.mktemp("environments")) as live:
        yield live


def test_trl_plays_an_episode(live: LiveServer) -> None:
    kind = KernelRewards(live.url, options={"device": "cpu"}).for_trl_environment(submissions=2)
    environment = kind()
    assert "at most 2 times" in (environment.reset(prompt="p", problem="relu") or "")
    assert asyncio.run(environment.submit(source("build: refuse"))).startswith("Verdict: compile error")
    assert environment.get_reward() == 0
    assert asyncio.run(environment.submit(code=source())).startswith("Verdict: passed")
    assert environment.get_reward() == PASSED
    with pytest.raises(ValueError, match="all 2 submissions are used up"):
        asyncio.run(environment.submit(source()))
    # The trainer uses an environment again.
    environment.reset(prompt="p", problem="relu")
    assert environment.get_reward() == 0
    with pytest.raises(KeyError, match="needs a column 'problem'"):
        environment.reset(prompt="p")


def test_trl_finds_one_tool_and_its_description() -> None:
    kind = KernelRewards().for_trl_environment()
    public = {name for name, _ in inspect.getmembers(kind(), inspect.ismethod) if not name.startswith("_")}
    assert public == {"reset", "get_reward", "submit"}
    # The trainer awaits coroutine functions together, and makes the tool's schema of these.
    assert inspect.iscoroutinefunction(kind().submit)
    assert get_type_hints(kind.submit) == {"code": str, "return": str}
    described = inspect.getdoc(kind.submit) or ""
    assert "Args:\n    code: " in described
    assert "Returns:\n" in described


def test_skyrl_plays_an_episode(live: LiveServer) -> None:
    kind = KernelRewards(live.url, options={"device": "cpu"}).for_skyrl(turns=2)
    environment = kind(env_config={}, extras={"reward_spec": {"ground_truth": "relu"}})
    prompt = [{"role": "user", "content": "Write a faster one."}]
    assert environment.init(prompt) == (prompt, {})
    first = environment.step(answer("build: refuse"))
    ((message),) = first.pop("observations")
    assert message["role"] == "user"
    assert message["content"].startswith("Verdict: compile error")
    assert first == {"reward": 0.0, "done": False, "metadata": {"passed": False, "feedback": message["content"]}}
    last = environment.step(answer())
    assert (last["observations"], last["reward"], last["done"]) == ([], PASSED, True)
    assert environment.get_metrics() == {"passed": 1.0, "turns": 2.0}
    environment.close()
    averaged = kind.aggregate_metrics([{"passed": 1.0, "turns": 2.0}, {"passed": 0.0, "turns": 1.0}])
    assert averaged == {"passed": 0.5, "turns": 1.5}
    assert kind.aggregate_metrics([]) == {}


def test_skyrl_calls_from_many_threads(live: LiveServer) -> None:
    kind = KernelRewards(live.url, options={"device": "cpu"}).for_skyrl()
    rewards: list[float] = []

    def play(number: int) -> None:
        environment = kind(extras={"problem": "relu"})
        rewards.append(environment.step(answer("", f"thread {number}"))["reward"])

    threads = [threading.Thread(target=play, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rewards == [PASSED] * 8


def test_skyrl_needs_the_problem_and_a_reward(live: LiveServer) -> None:
    kind = KernelRewards(live.url, options={"device": "cpu"}, timeout_s=0.3).for_skyrl()
    with pytest.raises(KeyError, match="extras need the problem"):
        kind(extras={})
    environment = kind(extras={"problem": "relu"})
    with pytest.raises(NoReward, match="no verdict within"):
        environment.step(answer("evaluate: sleep 60", "skyrl"))


def test_rewards_can_be_sent_to_other_processes() -> None:
    rewards = pickle.loads(pickle.dumps(KernelRewards("http://127.0.0.1:9", RewardShape(correct=0.5))))  # noqa: S301
    assert rewards.shape.correct == 0.5


class Scripted(KernelRewards):
    """Grades each answer as it is told."""

    def __init__(self, shape: RewardShape, *graded: Graded) -> None:
        super().__init__(shape=shape)
        self._told = list(graded)

    async def grade(
        self,
        completions: Sequence[Completion],
        problems: Sequence[str],  # noqa: ARG002 - the interface
    ) -> list[Graded]:
        return [self._told.pop(0) for _ in completions]


def graded(reward: float, verdict: str = "passed") -> Graded:
    return Graded(reward, known(verdict))


def known(verdict: str) -> SubmissionRecord:
    return blank_record("relu", status="done", verdict=verdict, feedback=f"Verdict: {verdict}")


AWAY = Graded(None, None, Ungraded("away"))
NOISY = Graded(None, known("passed"), Unmeasured("noisy"))
FAILED = graded(0.0, "wrong_output")
CHEAT = graded(-1.0, "rejected")


@pytest.mark.parametrize(
    ("turns", "reward"),
    [
        ([FAILED, graded(0.5), graded(0.25)], 0.5),
        ([graded(0.5), CHEAT, graded(2.0)], -1.0),
        ([CHEAT, NOISY], -1.0),
        ([AWAY, FAILED], 0.0),
        ([AWAY, graded(0.5)], 0.5),
        ([FAILED, NOISY, graded(0.5)], None),
        ([AWAY, AWAY], None),
        ([], -0.125),
    ],
)
def test_the_best_answer_counts_and_no_doubt_is_a_0(turns: list[Graded], reward: float | None) -> None:
    def played(shape: RewardShape) -> Episode:
        episode = Episode(Scripted(shape, *turns))
        for each in turns:
            feedback = asyncio.run(episode.hand_in("x", "relu"))
            assert feedback == (each.feedback or "It was not graded, through no fault of yours.")
        return episode

    shape = RewardShape(penalties={"invalid_source": 0.125})
    assert played(shape).reward_or_none() == reward
    if reward is None:
        with pytest.raises(NoReward):
            played(shape).reward()
        with pytest.raises(NoReward):
            played(RewardShape(ungraded="raise", unmeasured="raise")).reward_or_none()
    else:
        assert played(shape).reward() == reward
