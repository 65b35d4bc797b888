"""Calls in slices whose outputs are one number for all rows, or whose slices each need an input as a whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from evaluator.candidates.candidate import Candidate, parse_candidate
from evaluator.config import EvalConfig, SamplingPlan
from evaluator.engine import Engine
from evaluator.evaluation import Gradients, Verdict
from evaluator.judge.correctness.commitment import Commitment
from evaluator.judge.correctness.reference import Reference
from evaluator.judge.correctness.verify import CallFindings
from evaluator.judge.device.cpu import CpuDevice
from evaluator.judge.inputs.drawing import Variant
from evaluator.judge.pooled_outputs import PooledOutputs
from evaluator.problems.loading import load_problem
from evaluator.problems.problem import Problem
from evaluator.protocol.control_page import CallReport
from tests.evaluator.verifying import constructed_reference, verifier_of

ROWS, SLICED = 50, 16
"""Three slices of 16 rows, and one of 2."""
REFERENCE = """\
import torch
import torch.nn as nn

rows = {rows}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(8) + 0.5)

    def forward(self, {names}):
        return {body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
MANIFEST = 'title = "T"\ndescription = "D"\n[sizes.full]\n[reference]\n'
_X = "torch.randn(rows, 8)"
FORMS = {
    "a mean": ("x, y", "((x - y).square() * self.weight).mean()", f"{_X}, {_X}", 'pooled = "mean"'),
    "a sum": ("x, y", "(x * y * self.weight).sum()", f"{_X}, {_X}", 'pooled = "sum"'),
    "a mean with an input that no slice has alone": (
        "x, y",
        "torch.clamp(1 - x * y * self.weight, min=0).mean()",
        f"{_X}, torch.randn(8)",
        'pooled = "mean"\nwhole_inputs = [1]',
    ),
    "a product of matrices": ("x, y", "(x * self.weight) @ y", f"{_X}, torch.randn(8, 6)", "whole_inputs = [1]"),
    "the first matrix as a whole": ("x, y", "(y * self.weight) @ x", f"torch.randn(8, 6), {_X}", "whole_inputs = [0]"),
}


def _problem(folder: Path, form: str, rows: int = ROWS) -> Problem:
    names, body, inputs, slices = FORMS[form]
    folder.mkdir(exist_ok=True)
    (folder / "reference.py").write_text(REFERENCE.format(rows=rows, names=names, body=body, inputs=inputs))
    (folder / "problem.toml").write_text(MANIFEST + slices + "\n")
    return load_problem(folder)


class Calls:
    """Calls of one form in slices, right in every element except where a test changes one."""

    def __init__(self, folder: Path, form: str) -> None:
        problem = _problem(folder, form)
        self.reference = constructed_reference(problem, "full")
        self.verifier, self.blocks = verifier_of(self.reference, problem, SLICED * 8, weights=True)
        assert [cut[1] - cut[0] for cut in self.verifier.commitments.slices if cut is not None] == [16, 16, 16, 2]

    def call(
        self,
        change: Callable[[dict[str, list[torch.Tensor]]], object] = lambda _blocks: None,
        *,
        backward: bool = True,
        missing: int = 0,
        with_native: bool = False,
    ) -> CallFindings:
        """Verify a call. ``change``: of the delivered tensors, by block; ``missing``: gradients that are not there."""
        torch.manual_seed(1)
        values = self.reference.get_inputs()
        model, leaves = self.reference.constructed(values)
        output = model(*leaves)
        upstream = torch.randn_like(output)
        found = torch.autograd.grad(output, [*leaves, *model.parameters()], upstream)
        contents = {
            "inputs": [*values],
            "upstream": [upstream],
            "outputs": [output.detach()],
            "input_gradients": [*found[:2]],
            "weight_gradients": [*found[2:]],
        }
        for name, tensors in contents.items():
            for target, tensor in zip(self.blocks[name].tensors, tensors, strict=True):
                target.copy_(tensor)
        change({name: list(self.blocks[name].tensors) for name in ("outputs", "input_gradients", "weight_gradients")})
        commitment = Commitment()
        for name in contents if backward else ("inputs", "outputs"):
            self.verifier.commitments.commit(commitment, {name: self.blocks[name].tensors})
        if not backward:
            return self.verifier.verify_outputs(commitment, Variant.SIGNED, with_native=with_native)
        report = CallReport(device_ms=1.0, peak_bytes=0, present=0b1111 & ~missing, forward_ms=0.5)
        return self.verifier.verify_gradients(commitment, report, 1, Variant.SIGNED, with_native=with_native)


@pytest.fixture(params=FORMS)
def calls(request: pytest.FixtureRequest, tmp_path: Path) -> Calls:
    return Calls(tmp_path, request.param)


@pytest.mark.parametrize("with_native", [False, True])
def test_what_is_right_passes_and_every_element_is_counted(calls: Calls, with_native: bool) -> None:
    forward = calls.call(backward=False, with_native=with_native)
    assert forward.verdict is None, forward.message
    findings = calls.call(with_native=with_native)
    assert (findings.verdict, findings.gradients) == (None, Gradients.MATCH), findings.message
    signature = calls.reference.signature
    elements = [spec.size_bytes // 4 for spec in (*signature.outputs, *signature.input_tensors)] + [8]
    assert [tally.total for tally in findings.tallies] == elements
    assert all(tally.passed for tally in findings.tallies)
    assert {tally.reference_max_rel is not None for tally in findings.tallies} == {with_native}
    assert calls.verifier.influence == pytest.approx({0: 1.0, 1: 1.0}, abs=0.5)


@pytest.mark.parametrize("backward", [False, True])
def test_a_wrong_output_is_found(calls: Calls, backward: bool) -> None:
    findings = calls.call(lambda blocks: blocks["outputs"][0].view(-1)[-1:].mul_(1.01), backward=backward)
    assert findings.verdict is Verdict.WRONG_OUTPUT
    assert findings.message.startswith("the output differs from the reference")


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("element", [0, -1])
def test_a_wrong_element_of_a_gradient_is_found_wherever_it_is(calls: Calls, place: int, element: int) -> None:
    findings = calls.call(lambda blocks: blocks["input_gradients"][place].view(-1)[element].add_(1.0))
    assert (findings.verdict, findings.gradients) == (Verdict.WRONG_GRADIENT, Gradients.MISMATCH)
    assert findings.message.startswith(f"the gradient of input {place} differs")


def test_a_wrong_gradient_of_a_weight_is_found(calls: Calls) -> None:
    findings = calls.call(lambda blocks: blocks["weight_gradients"][0][3].mul_(1.1))
    assert findings.verdict is Verdict.WRONG_GRADIENT
    assert findings.message.startswith("the gradient of weight differs")


@pytest.mark.parametrize("place", [0, 1])
def test_a_missing_gradient_of_an_input_is_named(calls: Calls, place: int) -> None:
    findings = calls.call(missing=2 << place)
    assert findings.verdict is Verdict.WRONG_GRADIENT
    assert findings.message.startswith(f"the gradient of input {place} is missing")


def test_a_share_of_one_slice_alone_is_no_gradient_of_a_whole_input(tmp_path: Path) -> None:
    calls = Calls(tmp_path, "a product of matrices")
    values = calls.reference.get_inputs()

    def of_some_rows(blocks: dict[str, list[torch.Tensor]]) -> None:
        model, leaves = calls.reference.constructed([values[0][: ROWS - 2], values[1]])
        output = model(*leaves)
        (found,) = torch.autograd.grad(output, [leaves[1]], torch.randn_like(output))
        blocks["input_gradients"][1].copy_(found)

    assert calls.call(of_some_rows).verdict is Verdict.WRONG_GRADIENT


def _pooled(reference: Reference, rows: list[int]) -> tuple[PooledOutputs, list[torch.Tensor]]:
    """The outputs over slices of this many rows, and the inputs of the whole call."""
    values = list(reference.get_inputs())
    parts = list(zip(*(value.split(rows) for value in values), strict=True))
    shares = [count / ROWS for count in rows]
    return PooledOutputs(reference, shares, lambda number: [part.clone() for part in parts[number]]), values


def test_pooled_outputs_are_those_of_all_rows(tmp_path: Path) -> None:
    reference = constructed_reference(_problem(tmp_path, "a mean"), "full")
    pooled, values = _pooled(reference, [20, 29, 1])
    (exact,) = pooled.exact_outputs([])
    assert torch.allclose(exact, reference.exact_outputs(values)[0], rtol=1e-14)
    (native,) = pooled.native_outputs([])
    assert native.dtype is torch.float32
    assert torch.allclose(native, reference.native_outputs(values)[0], rtol=1e-6)
    held = pooled.saturated_outputs([])
    assert held is not None
    assert torch.allclose(held[0], exact, rtol=1e-12)
    perturbed = [moved for (moved,) in pooled.perturbed_outputs([], 1e-3, torch.Generator().manual_seed(1))]
    assert len({float(moved) for moved in perturbed}) == 24
    assert all(0 < abs(float(moved - exact)) < 1e-2 * float(exact) for moved in perturbed)
    nudged = [moved for (moved,) in pooled.nudged_outputs([], torch.Generator().manual_seed(1))]
    assert len(nudged) == 3
    assert all(0 < abs(float(moved - exact)) < 1e-4 * float(exact) for moved in nudged)


def test_outputs_that_are_no_mean_of_a_few_numbers_are_computed_at_once(tmp_path: Path) -> None:
    large = _problem(tmp_path, "a product of matrices")
    whole = {**large.to_dict(), "pooled": "sum", "whole_inputs": []}
    assert Reference(Problem.from_dict(whole), "full", "float32", CpuDevice()).signature.sliced_rows is None


CANDIDATE = """\
import torch
from model import Model


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        gradient[-1] *= ctx.factor
        return gradient, None


class ModelNew(Model):
    def forward(self, x, y):
        return super().forward(Scaled.apply(x, {factor}), y) * {scale}
"""


@pytest.mark.parametrize("form", ["a mean with an input that no slice has alone", "a product of matrices"])
@pytest.mark.parametrize(
    ("factor", "scale", "verdict"),
    [(1.0, 1.0, Verdict.PASSED), (1.5, 1.0, Verdict.WRONG_GRADIENT), (1.0, 1.001, Verdict.WRONG_OUTPUT)],
)
def test_candidates_are_judged_in_slices(
    form: str, factor: float, scale: float, verdict: Verdict, tmp_path: Path, cpu_engine: Engine
) -> None:
    """More than a slice on a CPU: 2^23 elements."""
    problem = _problem(tmp_path, form, rows=2**20 + 3)
    candidate = parse_candidate(code=CANDIDATE.format(factor=factor, scale=scale))
    assert isinstance(candidate, Candidate)
    plan = SamplingPlan(trials=1, gradient_trials=1, max_samples=0)
    evaluation = cpu_engine.evaluate(problem, candidate, EvalConfig(sampling=plan))
    assert evaluation.verdict is verdict, evaluation.message
