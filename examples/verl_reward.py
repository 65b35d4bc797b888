"""A reward function for verl. Rows have ``extra_info["problem"]`` (or the problem's id as ``ground_truth``).

    python -m verl.trainer.main_ppo ... \\
        custom_reward_function.path=examples/verl_reward.py custom_reward_function.name=compute_score
"""

import os

from kerneljudge import KernelRewards, RewardShape
from kerneljudge.client import DEFAULT_URL

compute_score = KernelRewards(
    os.environ.get("KERNELJUDGE_URL", DEFAULT_URL),
    # verl cannot do without a number. A candidate that passed on too noisy a machine was right, and gets that part.
    # Without a verdict there is no honest number: it raises.
    RewardShape(correct=0.3, log_speedup=1.0, cap=2.0, unmeasured=0.3, ungraded="raise"),
    timeout_s=900,
).for_verl()
