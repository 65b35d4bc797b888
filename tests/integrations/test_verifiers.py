"""The taskset for verifiers against a service that grades.

verifiers itself is not among the tests' libraries. The classes below have the parts of ``verifiers.v1`` that our
taskset uses, and an agent whose replies are given.
"""

from __future__ import annotations

import asyncio
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Generic, TypeVar

import pytest
from pydantic import BaseModel

from kerneljudge.rewards import NoReward
from tests.api.conftest import PROBLEM_IDS, LiveServer
from tests.kerneljudge.graded import PASSED, answer, graded_service

FOLDER = Path(__file__).parents[2] / "integrations" / "verifiers"

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")


class TaskConfig(BaseModel):
    pass


class TasksetConfig(BaseModel):
    task: TaskConfig = TaskConfig()


class AgentConfig(BaseModel):
    harness: dict[str, str]
    runtime: dict[str, str]


class TaskData(BaseModel):
    id: str
    name: str
    prompt: str


class Task(Generic[A, B, C]):
    def __init__(self, data: A, config: C) -> None:
        self.data = data
        self.config = config


class Taskset(Generic[A, B]):
    def __init__(self, config: B) -> None:
        self.config = config


class Env(Generic[A]):
    def __init__(self, config: A) -> None:
        self.config = config


@dataclass
class Trace:
    id: str
    last_reply: str = ""
    info: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)

    def record_metrics(self, values: dict[str, float]) -> None:
        self.metrics |= values


class Conversation:
    """An agent with ``replies``. Once it is left, the task scores its trace."""

    def __init__(self, task: Any, replies: Sequence[str]) -> None:
        self.trace = Trace(f"trace {id(self)}")
        self.heard: list[str | None] = []
        self.reward: float | None = None
        self._task = task
        self._replies = list(replies)

    def interaction(self, task: Any) -> Conversation:
        assert task is self._task
        return self

    async def turn(self, message: str | None = None) -> SimpleNamespace:
        self.heard.append(message)
        if not self._replies:
            return SimpleNamespace(terminated=True, last_reply="")
        self.trace.last_reply = self._replies.pop(0)
        return SimpleNamespace(terminated=False, last_reply=self.trace.last_reply)

    async def __aenter__(self) -> Conversation:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.reward = await self._task.kernel(self.trace)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A service that grades."""
    with graded_service(tmp_path_factory.mktemp("verifiers")) as live:
        yield live


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The package, as verifiers finds it: by its name."""
    stand_in = ModuleType("verifiers.v1")
    for name in ("TaskConfig", "TasksetConfig", "AgentConfig", "TaskData", "Task", "Taskset", "Env", "Trace"):
        setattr(stand_in, name, globals()[name])
    for name, value in {"BaseConfig": BaseModel, "EnvConfig": BaseModel, "State": object, "Agents": object}.items():
        setattr(stand_in, name, value)
    setattr(stand_in, "reward", lambda function: function)  # noqa: B010 - of which a module's type does not know
    whole = ModuleType("verifiers")
    setattr(whole, "v1", stand_in)  # noqa: B010 - the same
    monkeypatch.setitem(sys.modules, "verifiers", whole)
    monkeypatch.setitem(sys.modules, "verifiers.v1", stand_in)
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in [name for name in sys.modules if name.startswith("kerneljudge_verifiers")]:
        monkeypatch.delitem(sys.modules, name)
    return __import__("kerneljudge_verifiers")


def tasks(package: ModuleType, live: LiveServer, problems: Sequence[str] = (), **config: Any) -> list[Any]:
    settings = sys.modules["kerneljudge_verifiers.taskset"]
    task = settings.KernelTaskConfig(url=live.url, device="cpu", **config)
    loaded: list[Any] = package.KernelTaskset(settings.KernelConfig(problems=list(problems), task=task)).load()
    return loaded


def play(package: ModuleType, task: Any, replies: Sequence[str], turns: int) -> Conversation:
    config = sys.modules["kerneljudge_verifiers.env"].KernelEnvConfig(turns=turns)
    conversation = Conversation(task, replies)
    asyncio.run(package.KernelEnv(config).run(task, SimpleNamespace(agent=conversation)))
    assert sys.modules["kerneljudge_verifiers.taskset"]._EPISODES == {}
    return conversation


def test_the_package_is_named_as_it_is_found(package: ModuleType) -> None:
    project = tomllib.loads((FOLDER / "pyproject.toml").read_text())
    assert project["project"]["name"].replace("-", "_") == package.__name__
    assert project["tool"]["setuptools"]["packages"] == [package.__name__]
    assert package.__all__ == ["KernelEnv", "KernelTaskset"]


def test_each_problem_of_the_service_is_a_task(package: ModuleType, live: LiveServer) -> None:
    assert [task.key for task in tasks(package, live)] == PROBLEM_IDS
    (task,) = tasks(package, live, ["relu"])
    assert "class Model(" in task.data.prompt


def test_one_turn_is_rewarded(package: ModuleType, live: LiveServer) -> None:
    (task,) = tasks(package, live, ["relu"])
    played = play(package, task, [answer(), "not asked for"], turns=1)
    assert played.reward == PASSED
    assert played.heard == [None]
    assert played.trace.metrics == {"passed": 1.0, "submissions": 1.0}
    (told,) = played.trace.info["kerneljudge"]
    assert (told["verdict"], told["speedup"], told["doubt"]) == ("passed", 2.0, None)


def test_the_agent_reads_the_feedback_and_hands_in_again(package: ModuleType, live: LiveServer) -> None:
    (task,) = tasks(package, live, ["relu"])
    played = play(package, task, [answer("build: refuse"), answer(), "not asked for"], turns=2)
    assert played.heard[0] is None
    assert str(played.heard[1]).startswith("Verdict: compile error")
    assert len(played.heard) == 2
    assert played.reward == PASSED
    assert [each["verdict"] for each in played.trace.info["kerneljudge"]] == ["compile_error", "passed"]


def test_an_agent_that_stops_early_has_the_reward_of_its_answers(package: ModuleType, live: LiveServer) -> None:
    (task,) = tasks(package, live, ["relu"])
    assert play(package, task, [answer()], turns=4).reward == PASSED


def test_another_environment_has_the_last_reply_graded(package: ModuleType, live: LiveServer) -> None:
    (task,) = tasks(package, live, ["relu"])
    assert asyncio.run(task.kernel(Trace("other", last_reply=answer()))) == PASSED


def test_a_rollout_without_a_verdict_fails(package: ModuleType, live: LiveServer) -> None:
    (task,) = tasks(package, live, ["relu"], timeout_s=0.3)
    with pytest.raises(NoReward, match="no verdict within"):
        play(package, task, [answer("evaluate: sleep 60", "verifiers")], turns=1)
    (task,) = tasks(package, live, ["relu"], timeout_s=0.3, shape={"ungraded": -0.5})
    assert play(package, task, [answer("evaluate: sleep 60", "verifiers 2")], turns=1).reward == -0.5
