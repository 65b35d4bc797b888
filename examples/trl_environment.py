"""GRPO by TRL with several turns: the model hands candidates in by a tool, and reads the feedback.

pip install trl
KERNELJUDGE_URL=http://127.0.0.1:8000 python examples/trl_environment.py Qwen/Qwen3-4B
"""

import os
import sys

from kerneljudge import Client, KernelRewards, RewardShape
from kerneljudge.client import DEFAULT_URL

URL = os.environ.get("KERNELJUDGE_URL", DEFAULT_URL)

# The environment owns the reward: its method get_reward is all that the trainer needs.
KernelEnvironment = KernelRewards(
    URL, RewardShape(correct=0.3, log_speedup=1.0, cap=2.0), timeout_s=900
).for_trl_environment(submissions=4)


def rows() -> list[dict[str, object]]:
    """A prompt for each problem that the service has."""
    with Client(URL) as service:
        problems = [service.problem(problem["id"]) for problem in service.problems()]
    return [
        {
            "prompt": [
                {
                    "role": "user",
                    "content": "Rewrite this PyTorch model as a faster class ModelNew, with inline CUDA and a "
                    f"backward.\n\n```python\n{problem['reference']}\n```",
                }
            ],
            "problem": problem["id"],
        }
        for problem in problems
    ]


def main(model: str) -> None:
    """Train ``model``."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    GRPOTrainer(
        model=model,
        environment_factory=KernelEnvironment,
        args=GRPOConfig(output_dir="grpo", num_generations=8, max_completion_length=16384),
        train_dataset=Dataset.from_list(rows()),
    ).train()


if __name__ == "__main__":
    main(sys.argv[1])
