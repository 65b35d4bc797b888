"""One agent, which reads the feedback about its answer and hands in a better one, a few times."""

from __future__ import annotations

import verifiers.v1 as vf
from pydantic import Field

from kerneljudge_verifiers.taskset import KernelTask

__all__ = ["KernelEnv", "KernelEnvConfig"]


class KernelEnvConfig(vf.EnvConfig):
    """The agent, and how often it may hand in."""

    # It talks, and no code of it is executed here: the service judges that.
    agent: vf.AgentConfig = vf.AgentConfig(harness={"id": "null"}, runtime={"type": "subprocess"})
    turns: int = Field(1, ge=1)
    """The most answers of an episode. After each but the last, the agent gets the feedback."""


class KernelEnv(vf.Env[KernelEnvConfig]):
    """A conversation of ``turns`` answers."""

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        """Play one episode. Raises ``RequestRefused`` where the service refuses the problem or the key."""
        assert isinstance(task, KernelTask)
        async with agents.agent.interaction(task) as conversation:
            trace = conversation.trace
            try:
                segment = await conversation.turn()
                episode = task.episode(trace)
                while not segment.terminated:
                    feedback = await episode.hand_in(segment.last_reply, task.data.problem)
                    if episode.turns >= self.config.turns:
                        break
                    segment = await conversation.turn(feedback)
            except BaseException:
                task.forget(trace)
                raise
