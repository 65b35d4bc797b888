"""Tolerances of problems whose reference rounds to TF32. No CPU does: a reference in half precision has its bits."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from evaluator.config import EvalConfig
from evaluator.judge.candidate_session import SessionContext
from evaluator.judge.correctness.limits import Tolerances
from evaluator.judge.correctness.reference import Reference
from evaluator.judge.device.cpu import CpuDevice
from evaluator.judge.inputs.drawing import InputSource
from evaluator.judge.inputs.planting import planter_of
from evaluator.judge.tf32 import one_digit, relative_error, settle_tolerances
from evaluator.problems.problem import Problem, Tolerance

# float16 has as many bits as TF32, and the float64 reference ignores the cast.
_ROUNDS = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Conv2d(16, 16, 3, padding=1) for _ in range({layers})))

    def forward(self, x):
        for layer in self.layers:
            x = nn.functional.conv2d(x.half().float(), layer.weight.half().float(), layer.bias, padding=1)
        return x


def get_inputs():
    return [torch.randn(4, 16, 12, 12)]


def get_init_inputs():
    return []
"""
_EXACT = _ROUNDS.replace(".half().float()", "")
_ON_CUDA = EvalConfig(device="cuda")
_USUAL = Tolerance(1e-4, 1e-4)


def _problem(source: str, layers: int = 1) -> Problem:
    text = source.format(layers=layers)
    return Problem(id=f"convolutions_{layers}_{len(text)}", title="", description="", source=text, sizes={"full": {}})


def _settled(problem: Problem, folder: Path, config: EvalConfig = _ON_CUDA) -> tuple[Tolerances, str, InputSource]:
    device = CpuDevice(folder)
    reference = Reference(problem, "full", "float32", device)
    reference.construct(1, frozenset(os.sched_getaffinity(0)))
    planter = planter_of(problem, "float32", reference.signature.rows, reference.signature.outputs)
    source = InputSource(reference.get_inputs, torch.device("cpu"), variants=True, planter=planter)
    tolerances = Tolerances(_USUAL, _USUAL)
    common = SimpleNamespace(
        problem=problem,
        config=config,
        reference=reference,
        source=source,
        tolerances=tolerances,
        training=True,
        problem_key=(problem.id, problem.version),
    )
    return tolerances, settle_tolerances(cast(SessionContext, common), None), source


def test_the_tolerance_follows_from_the_references_own_error(tmp_path: Path) -> None:
    one, note, source = _settled(_problem(_ROUNDS), tmp_path)
    assert 1e-3 <= one.outputs.atol <= 4e-3
    assert one.outputs.atol <= one.gradients.atol <= 6e-3
    assert f"the tolerance of outputs is {one.outputs.rtol:g}, that of gradients {one.gradients.rtol:g}" in note
    assert source._planter is not None
    assert source._planter.tolerance == one.outputs.atol + one.outputs.rtol
    several, _, _ = _settled(_problem(_ROUNDS, layers=6), tmp_path)
    assert one.gradients.atol < several.gradients.atol <= 1e-2


def test_it_is_the_usual_one_where_the_reference_is_exact(tmp_path: Path) -> None:
    found, note, _ = _settled(_problem(_EXACT), tmp_path)
    assert found == Tolerances(_USUAL, _USUAL)
    assert "the tolerance of outputs is 0.0001" in note


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
def test_it_is_the_usual_one_without_tf32(
    changes: dict[str, Any], config: EvalConfig, said: str, tmp_path: Path
) -> None:
    found, note, _ = _settled(replace(_problem(_ROUNDS), **changes), tmp_path, config)
    assert found == Tolerances(_USUAL, _USUAL)
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


def test_an_error_is_relative_to_the_scale_and_zeros_do_not_count() -> None:
    exact = torch.tensor([2.0, -2.0, 2.0, -2.0], dtype=torch.float64)
    own = exact.float() + torch.tensor([0.0, 0.0, 0.02, -0.02])
    assert relative_error(exact, own) == pytest.approx(0.01, rel=1e-3)
    assert relative_error(exact, exact.float()) == 0.0
    assert relative_error(exact[:0], own[:0]) == 0.0


@pytest.mark.parametrize(("value", "rounded"), [(1.01e-3, 2e-3), (2e-3, 2e-3), (9.5e-4, 1e-3), (4.3e-2, 5e-2)])
def test_a_tolerance_has_one_digit(value: float, rounded: float) -> None:
    assert one_digit(value) == rounded
