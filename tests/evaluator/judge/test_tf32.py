"""Tolerances of problems whose reference rounds to TF32. A CPU's convolutions do not round, their operands here do."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from evaluator.config import EvalConfig, SamplingPlan
from evaluator.judge.candidate_session import SessionContext
from evaluator.judge.correctness.compare import compare_slice
from evaluator.judge.correctness.reference import Reference
from evaluator.judge.correctness.tolerances import SettledTolerance, Tolerances
from evaluator.judge.device.cpu import CpuDevice
from evaluator.judge.inputs.drawing import InputSource
from evaluator.judge.inputs.planting import planter_of
from evaluator.judge.tf32 import (
    one_digit,
    relative_error,
    rounded_to_tf32,
    settle_tolerances,
    tolerances_as_stated,
)
from evaluator.problems.problem import Problem, Tolerance

_CONVOLVES = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Conv2d(16, 16, 3, padding=1) for _ in range({layers})))

    def forward(self, x):
        return {result}


def get_inputs():
    return [torch.randn(4, 16, 12, 12)]


def get_init_inputs():
    return []
"""
_ON_CUDA = EvalConfig(device="cuda")
_USUAL = Tolerance(1e-4, 1e-4)


def _problem(layers: int = 1, result: str = "self.layers(x)", stated: Tolerance = _USUAL) -> Problem:
    text = _CONVOLVES.format(layers=layers, result=result)
    return Problem(
        id=f"convolutions_{layers}_{len(text)}",
        title="",
        description="",
        source=text,
        sizes={"full": {}},
        tolerances={"float32": stated},
    )


def _settled(problem: Problem, folder: Path, config: EvalConfig = _ON_CUDA) -> tuple[Tolerances, str, InputSource]:
    reference = Reference(problem, "full", "float32", CpuDevice(folder))
    reference.construct(1, frozenset(os.sched_getaffinity(0)))
    signature = reference.signature
    planter = planter_of(problem, "float32", signature.rows, signature.outputs)
    source = InputSource(reference.get_inputs, torch.device("cpu"), variants=True, planter=planter)
    tolerances = tolerances_as_stated(problem, config, signature)
    common = SimpleNamespace(
        problem=problem,
        config=config,
        reference=reference,
        source=source,
        tolerances=tolerances,
        training=True,
        problem_key=(problem.id, problem.version, config),
    )
    before = torch.backends.cudnn.allow_tf32
    note = settle_tolerances(cast(SessionContext, common), None)
    assert torch.backends.cudnn.allow_tf32 is before
    return tolerances, note, source


def test_the_tolerance_follows_from_the_error_of_rounded_operands(tmp_path: Path) -> None:
    one, note, source = _settled(_problem(), tmp_path)
    (outputs,) = one.outputs
    assert 1e-3 <= outputs.atol == outputs.rtol <= 4e-3
    assert outputs.atol <= one.gradients.atol <= 6e-3
    assert one.stated == _USUAL
    assert f"the tolerance of outputs is {outputs.rtol:g}, that of gradients {one.gradients.rtol:g}" in note
    assert source._planter is not None
    assert source._planter.tolerance == one.gradients.atol + one.gradients.rtol
    several, _, _ = _settled(_problem(layers=8), tmp_path)
    assert one.gradients.atol < several.gradients.atol <= 1e-2


def test_each_output_has_its_own_tolerance(tmp_path: Path) -> None:
    found, _, _ = _settled(_problem(result="(self.layers(x), 2 * x)"), tmp_path)
    assert found.outputs[0].atol > 1e-3
    assert found.outputs[1] == _USUAL


def test_neither_part_of_a_tolerance_becomes_narrower(tmp_path: Path) -> None:
    found, note, _ = _settled(_problem(stated=Tolerance(1e-5, 5e-2)), tmp_path)
    assert 1e-3 <= found.outputs[0].atol <= 4e-3
    assert found.outputs[0].rtol == 5e-2
    assert f"{found.outputs[0].atol:g} (absolute) and 0.05 (relative)" in note


def test_a_verdict_alone_needs_no_gradients(tmp_path: Path) -> None:
    config = replace(_ON_CUDA, sampling=SamplingPlan(gradient_trials=0))
    found, _, _ = _settled(_problem(), tmp_path, config)
    assert found.gradients == found.outputs[0]


@pytest.mark.parametrize(
    ("changes", "config", "said"),
    [
        ({}, EvalConfig(device="cpu"), ""),
        ({}, EvalConfig(device="cuda", precision="bfloat16"), ""),
        ({}, EvalConfig(device="cuda", baseline="ieee"), "begin with TF32 switched off"),
        ({"tf32": False}, EvalConfig(device="cuda"), "begin with TF32 switched off"),
    ],
    ids=["cpu", "half", "ieee", "problem"],
)
def test_it_is_the_problems_without_tf32(
    changes: dict[str, Any], config: EvalConfig, said: str, tmp_path: Path
) -> None:
    found, note, _ = _settled(replace(_problem(), **changes), tmp_path, config)
    stated = _problem().tolerance(config.precision)
    assert found == Tolerances(stated, (stated,), stated)
    assert note.endswith(said)
    assert bool(note) is bool(said)


@pytest.mark.parametrize(
    ("body", "rounds"),
    [
        ("nn.Conv1d(8, 4, 3)", True),
        ("nn.ConvTranspose2d(4, 4, 3)", True),
        ("nn.GRU(8, 8)", True),
        ("nn.Linear(8, 8)", False),
    ],
)
def test_convolutions_and_recurrent_layers_are_known(body: str, rounds: bool, tmp_path: Path) -> None:
    source = f"""\
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = {body}
    def forward(self, x):
        found = self.layer(x)
        return found[0] if isinstance(found, tuple) else found
def get_inputs():
    return [torch.randn(4, 8, 8)]
def get_init_inputs():
    return []
"""
    problem = Problem(id="layer", title="", description="", source=source, sizes={"full": {}})
    assert Reference(problem, "full", "float32", CpuDevice(tmp_path)).signature.rounds_to_tf32 is rounds


def _shortened(tensor: torch.Tensor, bits: int) -> torch.Tensor:
    """The tensor with so many explicit bits of its significand, rounded to nearest."""
    step = 1 << (23 - bits)
    return ((tensor.contiguous().view(torch.int32) + step // 2) & -step).view(torch.float32)


@pytest.mark.parametrize(("bits", "passes"), [(23, True), (10, True), (8, False), (7, False)])
def test_it_lets_no_fewer_bits_pass(bits: int, passes: bool) -> None:
    """The native error counts once: with what it adds to other tolerances, bfloat16 operands were nearly right."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(8, 64, 32, 32, generator=generator)
    weight = torch.randn(64, 64, 3, 3, generator=generator) / 24
    exact = torch.conv2d(x.double(), weight.double())
    native = torch.conv2d(rounded_to_tf32(x), rounded_to_tf32(weight))
    tolerance = one_digit(8 * relative_error(exact, native.double()))
    # Another order of summation, and other operands where there are fewer bits.
    actual = torch.conv2d(_shortened(x, bits).flip(1), _shortened(weight, bits).flip(1))
    found = compare_slice(actual, exact, native, SettledTolerance(tolerance, tolerance))
    assert (found.wrong == 0) is passes
    assert passes or found.wrong > 1e-3 * found.total


def test_rounding_to_tf32_is_to_the_nearest() -> None:
    step = 2.0**-10
    values = torch.tensor([1.0, 1 + 0.49 * step, 1 + 0.51 * step, -1 - 0.51 * step, 0.0, torch.inf])
    assert rounded_to_tf32(values).tolist() == [1.0, 1.0, 1 + step, -1 - step, 0.0, torch.inf]
    whole = torch.arange(3)
    assert rounded_to_tf32(whole) is whole


def test_an_error_is_relative_to_the_scale_and_zeros_do_not_count() -> None:
    exact = torch.tensor([2.0, -2.0, 2.0, -2.0], dtype=torch.float64)
    rounded = exact + torch.tensor([0.0, 0.0, 0.02, -0.02])
    assert relative_error(exact, rounded) == pytest.approx(0.01, rel=1e-3)
    assert relative_error(exact, exact) == 0.0
    assert relative_error(exact[:0], rounded[:0]) == 0.0


@pytest.mark.parametrize(("value", "rounded"), [(1.01e-3, 2e-3), (2e-3, 2e-3), (9.5e-4, 1e-3), (4.3e-2, 5e-2)])
def test_a_tolerance_has_one_digit(value: float, rounded: float) -> None:
    assert one_digit(value) == rounded
