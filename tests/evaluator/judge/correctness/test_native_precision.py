"""Limits by the reference's own error where a call is compared in parts: kernels round by the number of rows."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final

import pytest
import torch

from evaluator.evaluation import Gradients, Verdict
from evaluator.judge.correctness.commitment import INPUT_BLOCKS, Commitment
from evaluator.judge.correctness.compare import compare_slice
from evaluator.judge.correctness.native_precision import further_off
from evaluator.judge.inputs.drawing import Variant
from evaluator.problems.loading import load_problem
from evaluator.problems.problem import Tolerance
from evaluator.protocol.control_page import CallReport
from tests.evaluator.verifying import constructed_reference, verifier_of

# A fifth off where all rows are there at once, in float32 alone: no part of them shows it.
REFERENCE: Final = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))

    def forward(self, x):
        y = x * self.weight
        return y * 1.2 if len(x) == 64 and x.dtype is torch.float32 else y


def get_inputs():
    return [torch.randn(64, 8)]


def get_init_inputs():
    return []
"""
MANIFEST: Final = 'title = "T"\ndescription = "D"\n[sizes.full]\n[reference]\nrow_independent = true\n'
_FEW_ROWS: Final = 32 * 8
_RESULTS: Final = ("outputs", "input_gradients", "weight_gradients")


def test_a_sum_that_overflows_over_all_rows_alone_may_be_infinite() -> None:
    """In float16 a sum of 61,920 is infinite or not by the order of its terms, which the number of rows decides."""
    exact = torch.tensor([61_920.0, -61_920.0, 61_920.0, 100.0, 5.0], dtype=torch.float64)
    of_slice = torch.tensor([61_888.0, -61_888.0, 61_888.0, 100.0, 5.0], dtype=torch.float16)
    of_all = torch.tensor([math.inf, -math.inf, -math.inf, math.inf, math.nan], dtype=torch.float16)
    near = further_off(of_slice, of_all, exact, of_all)
    assert near[:4].tolist() == of_all[:4].tolist()
    assert near[4].isnan()
    found = compare_slice(of_all, exact, near, Tolerance(1e-2, 1e-2))
    assert (found.wrong, found.undetermined) == (0, 5)
    # Of another class it is wrong; and what is finite is compared all the same, and what the reference has is.
    negative = further_off(of_slice, of_all, exact, -of_all)
    assert compare_slice(-of_all, exact, negative, Tolerance(1e-2, 1e-2)).wrong == 4
    finite = torch.tensor([61_888.0, -61_888.0, 0.0, 100.0, 5.0], dtype=torch.float16)
    assert compare_slice(finite, exact, further_off(of_slice, of_all, exact, finite), Tolerance(1e-2, 1e-2)).wrong == 1
    assert (
        compare_slice(of_all, exact, further_off(of_slice, of_slice, exact, of_all), Tolerance(1e-2, 1e-2)).wrong == 5
    )


class _Calls:
    """Calls in slices of 32 rows. Results are the reference's own of all rows, in float32, times a factor for
    each block."""

    def __init__(self, folder: Path) -> None:
        (folder / "reference.py").write_text(REFERENCE)
        (folder / "problem.toml").write_text(MANIFEST)
        problem = load_problem(folder)
        self._reference = constructed_reference(problem, "full")
        self.verifier, self._blocks = verifier_of(self._reference, problem, _FEW_ROWS, weights=True)
        assert self.verifier.commitments.sliced

    def given(self, commitment: Commitment) -> None:
        """Draw inputs and upstream gradients, and commit to them."""
        for name in INPUT_BLOCKS:
            given = torch.randn(64, 8)
            self._blocks[name].tensors[0].copy_(given)
            self.verifier.commitments.commit(commitment, {name: [given]})

    def delivered(self, commitment: Commitment, *names: str, **factors: float) -> None:
        """Deliver results to the blocks ``names``, and commit to them."""
        leaf = self._blocks["inputs"].tensors[0].clone().requires_grad_()
        model, _ = self._reference.constructed([leaf])
        output = model(leaf)
        found = torch.autograd.grad(output, [leaf, *model.parameters()], self._blocks["upstream"].tensors[0])
        values = dict(zip(_RESULTS, (output.detach(), *found), strict=True))
        for name in names:
            self._blocks[name].tensors[0].copy_(values[name] * factors.get(name, 1.0))
            self.verifier.commitments.commit(commitment, {name: self._blocks[name].tensors})
        self.verifier.commitments.pick(commitment, [*INPUT_BLOCKS, *names])
        for name in INPUT_BLOCKS:
            self._blocks[name].tensors[0].fill_(torch.nan)  # as nobody restores what there are copies of


@pytest.fixture
def calls(tmp_path: Path) -> _Calls:
    return _Calls(tmp_path)


@pytest.mark.parametrize("spot_check", [False, True])
def test_outputs_may_be_as_far_off_as_the_references_of_all_rows(calls: _Calls, spot_check: bool) -> None:
    assert calls.verifier.commitments.may_spot_check(gradients=False)
    for factor, verdict in ((1.0, None), (2.0, Verdict.WRONG_OUTPUT)):
        commitment = calls.verifier.commitments.prepare([*INPUT_BLOCKS, "outputs"], spot_check=spot_check)
        calls.given(commitment)
        calls.delivered(commitment, "outputs", outputs=factor)
        findings = calls.verifier.verify_outputs(commitment, Variant.SIGNED, with_native=False)
        assert findings.verdict is verdict, findings.message


@pytest.mark.parametrize("wrong", [None, "outputs", "input_gradients", "weight_gradients"])
def test_gradients_may_be_as_far_off_as_the_references_of_all_rows(calls: _Calls, wrong: str | None) -> None:
    commitment = Commitment()
    calls.given(commitment)
    calls.delivered(commitment, *_RESULTS, **({} if wrong is None else {wrong: 2.0}))
    report = CallReport(device_ms=1.0, peak_bytes=0, present=7, forward_ms=0.5)
    findings = calls.verifier.verify_gradients(commitment, report, 1, Variant.SIGNED, with_native=False)
    if wrong is None:
        assert (findings.verdict, findings.gradients) == (None, Gradients.MATCH), findings.message
    else:
        assert findings.verdict is (Verdict.WRONG_OUTPUT if wrong == "outputs" else Verdict.WRONG_GRADIENT)


def test_of_two_results_the_one_that_is_further_off_counts() -> None:
    exact = torch.tensor([1.0, 1.0, 1.0, 1.0, 1.0], dtype=torch.float64)
    one, other = torch.tensor([1.0, 1.5, torch.nan, 1.25, 1.25]), torch.tensor([2.0, 1.0, 3.0, torch.nan, torch.inf])
    found = further_off(one, other, exact, torch.ones(5))
    assert found[[0, 1, 3, 4]].tolist() == [2.0, 1.5, 1.25, 1.25]
    assert found[2].isnan()
