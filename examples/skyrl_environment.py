"""An environment for SkyRL-gym with four turns. Rows have the problem's id as ``reward_spec["ground_truth"]``.

    import skyrl_gym
    skyrl_gym.register(id="kernels", entry_point="skyrl_environment:KernelEnvironment")

Put this file on the path of Python modules, and name ``kernels`` as ``env_class`` of the rows.
"""

import os

from kerneljudge import KernelRewards, RewardShape
from kerneljudge.client import DEFAULT_URL

KernelEnvironment = KernelRewards(
    os.environ.get("KERNELJUDGE_URL", DEFAULT_URL),
    # SkyRL cannot do without a number. A candidate that passed on too noisy a machine was right, and gets that part.
    RewardShape(correct=0.3, log_speedup=1.0, cap=2.0, unmeasured=0.3, ungraded="raise"),
    timeout_s=900,
).for_skyrl(turns=4)
