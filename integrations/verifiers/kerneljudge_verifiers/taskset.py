"""One task for each problem of the service. Its reward is that of the answers that an episode handed in."""

from __future__ import annotations

import os
from functools import cache
from typing import Any, Literal

import verifiers.v1 as vf
from pydantic import Field

from kerneljudge import Client, KernelRewards, RewardShape
from kerneljudge.client import DEFAULT_URL
from kerneljudge.records import ProblemRecord
from kerneljudge.requests import SubmissionOptions
from kerneljudge.rewards import Episode

__all__ = ["KernelConfig", "KernelData", "KernelTask", "KernelTaskConfig", "KernelTaskset", "ShapeConfig"]


class ShapeConfig(vf.BaseConfig):
    """The reward of a verdict: ``kerneljudge.RewardShape``. Without a number, a rollout in doubt fails."""

    correct: float = 0.3
    log_speedup: float = 1.0
    cap: float = 2.0
    roofline: float = 0.0
    least: float = 0.1
    track: Literal["inference", "training"] = "inference"
    estimate: Literal["low", "point"] = "low"
    missing_gradients: float = 0.0
    ungraded: float | None = None
    unmeasured: float | None = None


class KernelTaskConfig(vf.TaskConfig):
    """The service, the options of each submission, and the reward, under ``--env.taskset.task``."""

    url: str = ""
    """The service; empty: ``KERNELJUDGE_URL``, or else this machine. The key is ``KERNELJUDGE_API_KEY``."""
    timeout_s: float = 900.0
    """The time for one grading."""
    device: Literal["cpu", "cuda"] | None = None
    size: str | None = None
    tier: Literal["check", "quick", "full"] | None = None
    label: str | None = None
    shape: ShapeConfig = ShapeConfig()


class KernelConfig(vf.TasksetConfig):
    """The choice of problems, under ``--env.taskset``."""

    problems: list[str] = Field(default_factory=list)
    """Their ids; empty: all that the service has."""
    task: KernelTaskConfig = KernelTaskConfig()


class KernelData(vf.TaskData):
    """The prompt, and the id of the problem."""

    problem: str


class KernelTask(vf.Task[KernelData, vf.State, KernelTaskConfig]):
    """A problem: write a faster ``ModelNew``."""

    @property
    def key(self) -> str:
        return self.data.problem

    def episode(self, trace: vf.Trace) -> Episode:
        """Return the answers of ``trace`` so far."""
        return _EPISODES.setdefault(trace.id, Episode(_rewards(self.config.model_dump_json())))

    @staticmethod
    def forget(trace: vf.Trace) -> None:
        """Forget the answers of ``trace``, once it is scored or has failed."""
        _EPISODES.pop(trace.id, None)

    @vf.reward
    async def kernel(self, trace: vf.Trace) -> float:
        """Return the reward of the episode. Raises ``NoReward`` where there is none."""
        episode = self.episode(trace)
        try:
            # Other environments than ours hand nothing in meanwhile.
            if not episode.turns:
                await episode.hand_in(trace.last_reply, self.data.problem)
            trace.info["kerneljudge"] = _told(episode)
            trace.record_metrics({"passed": float(episode.passed), "submissions": float(episode.turns)})
            return episode.reward()
        finally:
            self.forget(trace)


class KernelTaskset(vf.Taskset[KernelTask, KernelConfig]):
    """The problems of a service."""

    def load(self) -> list[KernelTask]:
        """Return a task for each problem. Raises ``RequestRefused`` where one does not exist."""
        with Client(_url(self.config.task.url)) as service:
            ids = self.config.problems or [problem["id"] for problem in service.problems()]
            problems = [service.problem(each) for each in ids]
        return [
            KernelTask(
                KernelData(id=each["id"], name=each["title"], problem=each["id"], prompt=_prompt(each)),
                self.config.task,
            )
            for each in problems
        ]


_EPISODES: dict[str, Episode] = {}
"""By the trace's id. A task is shared by its rollouts, and a trace goes into files."""


def _url(url: str) -> str:
    return url or os.environ.get("KERNELJUDGE_URL", DEFAULT_URL)


@cache
def _rewards(config: str) -> KernelRewards:
    """Return the grader of a configuration (as JSON). All tasks of one share its connections."""
    task = KernelTaskConfig.model_validate_json(config)
    options: SubmissionOptions = {"device": task.device, "size": task.size, "tier": task.tier, "label": task.label}
    shape = RewardShape(**task.shape.model_dump())
    return KernelRewards(_url(task.url), shape, options=options, timeout_s=task.timeout_s)


def _prompt(problem: ProblemRecord) -> str:
    return (
        "Rewrite this PyTorch model as a faster class ModelNew, with inline CUDA and a backward. "
        f"Answer with one Python code block.\n\n```python\n{problem['reference']}\n```"
    )


def _told(episode: Episode) -> list[dict[str, Any]]:
    """Return the answers as they go into the trace's record."""
    return [
        {
            "submission": None if each.record is None else each.record["id"],
            "verdict": None if each.record is None else each.record["verdict"],
            "speedup": each.speedup,
            "reward": each.reward,
            "doubt": None if each.doubt is None else str(each.doubt),
        }
        for each in episode.graded
    ]
