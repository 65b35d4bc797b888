"""A taskset of verifiers: write faster kernels, judged by a kerneljudge service."""

from kerneljudge_verifiers.env import KernelEnv
from kerneljudge_verifiers.taskset import KernelTaskset

__all__ = ["KernelEnv", "KernelTaskset"]
