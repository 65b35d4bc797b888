"""GRPO by TRL, rewarded by a kerneljudge service. The data set's column ``problem`` says what is to be written.

pip install trl
KERNELJUDGE_URL=http://127.0.0.1:8000 python examples/trl_grpo.py Qwen/Qwen2.5-Coder-1.5B-Instruct
"""

import os
import sys

from kerneljudge import Client, KernelRewards, RewardShape
from kerneljudge.client import DEFAULT_URL

URL = os.environ.get("KERNELJUDGE_URL", DEFAULT_URL)

# TRL leaves a reward of None out: no verdict or no figure counts for nothing.
kernel_reward = KernelRewards(URL, RewardShape(correct=0.3, log_speedup=1.0, cap=2.0), timeout_s=900).for_trl()


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
                    f"backward. Answer with one Python code block.\n\n```python\n{problem['reference']}\n```",
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
        reward_funcs=kernel_reward,
        args=GRPOConfig(output_dir="grpo", num_generations=8, max_completion_length=4096),
        train_dataset=Dataset.from_list(rows()),
    ).train()


if __name__ == "__main__":
    main(sys.argv[1])
