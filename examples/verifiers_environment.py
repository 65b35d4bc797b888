"""An environment for verifiers: one turn for each problem, scored by a rubric that asks a kerneljudge service."""

import os
from typing import Any

from kerneljudge import Client, KernelRewards, RewardShape
from kerneljudge.client import DEFAULT_URL

URL = os.environ.get("KERNELJUDGE_URL", DEFAULT_URL)

kernel_reward = KernelRewards(URL, RewardShape(correct=0.3, log_speedup=1.0, cap=2.0), timeout_s=900).for_verifiers()


def rows() -> list[dict[str, Any]]:
    """A question for each problem that the service has."""
    with Client(URL) as service:
        problems = [service.problem(problem["id"]) for problem in service.problems()]
    return [
        {"question": f"Write a faster ModelNew for:\n{problem['reference']}", "info": {"problem": problem["id"]}}
        for problem in problems
    ]


def load_environment() -> Any:
    """What ``vf-eval`` and the trainers load."""
    import verifiers as vf
    from datasets import Dataset

    return vf.SingleTurnEnv(dataset=Dataset.from_list(rows()), rubric=vf.Rubric(funcs=[kernel_reward]))
