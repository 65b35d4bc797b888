"""A verifier over blocks of its own, for tests that play the runner."""

from __future__ import annotations

import os

from evaluator.config import EvalConfig
from evaluator.judge.correctness.reference import Reference
from evaluator.judge.correctness.verify import ExpectedDeviations, Verifier
from evaluator.judge.device.cpu import CpuDevice
from evaluator.judge.tf32 import tolerances_as_stated
from evaluator.problems.problem import Problem
from evaluator.protocol.shared_memory import Block, BlockLayout, create_block

__all__ = ["constructed_reference", "verifier_of", "verifier_over_blocks"]


def verifier_over_blocks(
    problem: Problem, size: str = "smoke", slice_elements: int | None = None, usual: ExpectedDeviations | None = None
) -> tuple[Verifier, dict[str, Block]]:
    """For forward and backward calls of a problem without weights, on a CPU. ``usual``: what is excused of the
    baseline."""
    return verifier_of(constructed_reference(problem, size), problem, slice_elements, usual=usual)


def constructed_reference(problem: Problem, size: str) -> Reference:
    """The reference with its weights, on a CPU."""
    reference = Reference(problem, size, "float32", CpuDevice())
    reference.construct(1, frozenset(os.sched_getaffinity(0)))
    return reference


def verifier_of(
    reference: Reference,
    problem: Problem,
    slice_elements: int | None,
    *,
    weights: bool = False,
    usual: ExpectedDeviations | None = None,
) -> tuple[Verifier, dict[str, Block]]:
    """For calls of ``reference``; ``weights``: with a block for their gradients."""
    device, signature = CpuDevice(), reference.signature
    tensors = {
        "inputs": signature.input_tensors,
        "outputs": signature.outputs,
        "upstream": signature.outputs,
        "input_gradients": signature.float_inputs,
    }
    if weights:
        tensors["weight_gradients"] = tuple(spec for _, spec in signature.weights)
    blocks = {name: create_block(BlockLayout(specs), device.torch_device) for name, specs in tensors.items()}
    tolerances = tolerances_as_stated(problem, EvalConfig(), reference.signature)
    return Verifier(reference, blocks, tolerances, device.generator, slice_elements, usual), blocks
