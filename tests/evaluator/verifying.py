"""A verifier over blocks of its own, for tests that play the runner."""

from __future__ import annotations

import os

from evaluator.judge.device import CpuDevice
from evaluator.judge.reference import Reference
from evaluator.judge.verify import Verifier
from evaluator.memory import Block, BlockLayout, create_block
from evaluator.problem import Problem

__all__ = ["verifier_over_blocks"]


def verifier_over_blocks(
    problem: Problem, size: str = "smoke", slice_elements: int | None = None
) -> tuple[Verifier, dict[str, Block]]:
    """For forward and backward calls of a problem without weights, on a CPU."""
    device = CpuDevice()
    reference = Reference(problem, size, "float32", device)
    reference.construct(1, frozenset(os.sched_getaffinity(0)))
    signature = reference.signature
    tensors = {
        "inputs": signature.input_tensors,
        "outputs": signature.outputs,
        "upstream": signature.outputs,
        "input_gradients": signature.float_inputs,
    }
    blocks = {name: create_block(BlockLayout(specs), device.torch_device) for name, specs in tensors.items()}
    return Verifier(reference, blocks, problem.tolerance("float32"), device.generator, slice_elements), blocks
