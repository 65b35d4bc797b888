"""Rewards for trainers: from raw model answers to floats, for the interfaces of several trainers.

rewards = KernelRewards("http://127.0.0.1:8000", RewardShape(correct=0.3, log_speedup=1.0), timeout_s=900)
await rewards(completions, problems)        # a list of floats, and None where there is no reward
rewards.for_trl()                           # async def reward(prompts, completions, problem, **columns)
rewards.for_verl()                          # async def compute_score(data_source, solution_str, ...)
rewards.for_trl_environment()               # a class for environment_factory, with a tool that gives feedback
rewards.for_skyrl()                         # a class with init, step and close
"""

from kerneljudge.completions import Completion, text_of
from kerneljudge.rewards.environments import Episode
from kerneljudge.rewards.kernel_rewards import Graded, KernelRewards
from kerneljudge.rewards.shape import NoReward, RewardShape, Ungraded, Unmeasured

__all__ = [
    "Completion",
    "Episode",
    "Graded",
    "KernelRewards",
    "NoReward",
    "RewardShape",
    "Ungraded",
    "Unmeasured",
    "text_of",
]
