"""References whose branches depend on values: what no row reaches in one call, or one slice, counts in the next."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from evaluator.evaluation import Gradients, Verdict
from evaluator.judge.correctness.commitment import Commitment
from evaluator.judge.correctness.native_precision import NativeGradients
from evaluator.judge.correctness.reference import GradientSlice
from evaluator.judge.correctness.verify import CallFindings
from evaluator.judge.inputs.drawing import Variant
from evaluator.problems.loading import load_problem
from evaluator.protocol.control_page import CallReport
from tests.evaluator.verifying import constructed_reference, verifier_of

REFERENCE = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 6)
        self.b = nn.Linear(8, 6)

    def forward(self, x):
        if x.is_meta:
            return self.a(x) + self.b(x)
        chosen = x[:, 0] > 0
        y = x.new_zeros(len(x), 6)
        for rows, expert in ((chosen, self.a), (~chosen, self.b)):
            rows = rows.nonzero().view(-1)
            if len(rows):
                y = y.index_copy(0, rows, expert(x[rows]))
        return y


def get_inputs():
    return [torch.randn(64, 8)]


def get_init_inputs():
    return []
"""
MANIFEST = """\
title = "T"
description = "D"
[sizes.full]
[reference]
row_independent = true
"""
WEIGHTS = ("a.weight", "a.bias", "b.weight", "b.bias")


class Calls:
    """Forward and backward calls in four slices of 16 rows, right in every element but where a test says otherwise.
    ``with_native``: the reference's own error is wanted each time."""

    def __init__(self, folder: Path, *, with_native: bool) -> None:
        self._with_native = with_native
        (folder / "reference.py").write_text(REFERENCE)
        (folder / "problem.toml").write_text(MANIFEST)
        problem = load_problem(folder)
        self.reference = constructed_reference(problem, "full")
        self.verifier, self.blocks = verifier_of(self.reference, problem, 16 * 8, weights=True)
        assert self.verifier.commitments.sliced

    def call(self, x: torch.Tensor, wrong: str | None = None) -> CallFindings:
        commitment = Commitment()
        self.blocks["inputs"].tensors[0].copy_(x)
        self.blocks["upstream"].tensors[0].copy_(torch.randn(64, 6))
        for name in ("inputs", "upstream"):
            self.verifier.commitments.commit(commitment, {name: self.blocks[name].tensors})
        upstream = self.blocks["upstream"].tensors[0]
        leaf = x.clone().requires_grad_()
        model, _ = self.reference.constructed([x])
        output = model(leaf)
        weights = list(model.parameters())
        found = torch.autograd.grad(output, [leaf, *weights], upstream, allow_unused=True)
        self.blocks["outputs"].tensors[0].copy_(output.detach())
        present = 1
        for index, gradient in enumerate(found):
            if gradient is not None:
                present |= 2 << index
                block, at = ("input_gradients", 0) if index == 0 else ("weight_gradients", index - 1)
                factor = 5.0 if index and WEIGHTS[index - 1] == wrong else 1.0
                self.blocks[block].tensors[at].copy_(factor * gradient)
        for name in ("outputs", "input_gradients", "weight_gradients"):
            self.verifier.commitments.commit(commitment, {name: self.blocks[name].tensors})
        report = CallReport(device_ms=1.0, peak_bytes=0, present=present, forward_ms=0.5)
        return self.verifier.verify_gradients(
            commitment, report, (1 << len(WEIGHTS)) - 1, Variant.SIGNED, with_native=self._with_native
        )


@pytest.fixture(params=[False, True])
def calls(request: pytest.FixtureRequest, tmp_path: Path) -> Calls:
    return Calls(tmp_path, with_native=request.param)


def _rows(*, without_b: slice) -> torch.Tensor:
    x = torch.randn(64, 8)
    x[:, 0] = torch.where(torch.arange(64) % 2 == 0, 1.0, -1.0)
    x[without_b, 0] = 1.0
    return x


@pytest.mark.parametrize("without_b", [slice(0, 0), slice(0, 16), slice(16, 32), slice(0, 48)])
def test_a_part_that_a_slice_does_not_reach_is_compared(calls: Calls, without_b: slice) -> None:
    x = _rows(without_b=without_b)
    assert calls.call(x).gradients is Gradients.MATCH
    findings = calls.call(x, wrong="b.weight")
    assert findings.verdict is Verdict.WRONG_GRADIENT
    assert findings.message.startswith("the gradient of b.weight differs")


def test_the_references_own_error_is_known_where_it_is_wanted(tmp_path: Path) -> None:
    for with_native in (False, True):
        calls = Calls(tmp_path, with_native=with_native)
        tallies = calls.call(_rows(without_b=slice(0, 16))).tallies
        assert [tally.passed for tally in tallies] == [True] * (2 + len(WEIGHTS))
        assert {tally.reference_max_rel is not None for tally in tallies} == {with_native}


@pytest.mark.parametrize("with_native", [False, True])
def test_nothing_is_left_of_a_slice_when_the_next_is_computed(
    tmp_path: Path, with_native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(tmp_path, with_native=with_native)
    kept: list[weakref.ref[torch.Tensor]] = []
    alive: list[int] = []

    def watched(compute: Callable[..., GradientSlice]) -> Callable[..., GradientSlice]:
        def noting(values: list[torch.Tensor], upstream: list[torch.Tensor]) -> GradientSlice:
            alive.append(sum(each() is not None for each in kept))
            found = compute(values, upstream)
            gradients = [gradient for gradient in found.inputs if gradient is not None]
            kept.extend(weakref.ref(each) for each in (*values, *upstream, *found.outputs, *gradients))
            return found

        return noting

    for name in ("exact_gradients", "native_gradients"):
        monkeypatch.setattr(calls.reference, name, watched(getattr(calls.reference, name)))
    calls.call(_rows(without_b=slice(0, 16)))
    assert len(kept) == 4 * 4 * (1 + with_native)
    # Of the same slice, its inputs and what is exact; the first computation of a slice finds nothing.
    assert alive == ([0, 4] * 4 if with_native else [0] * 4)


def test_the_references_own_gradients_of_weights_are_those_of_all_slices(tmp_path: Path) -> None:
    reference = Calls(tmp_path, with_native=False).reference
    x, upstream = _rows(without_b=slice(0, 48)), torch.randn(64, 6)
    asked = []

    def slice_of(number: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        asked.append(number)
        return [x[16 * number : 16 * number + 16].clone()], [upstream[16 * number : 16 * number + 16]]

    owns = NativeGradients(reference, range(4), slice_of)
    second = owns.of_slice(1, *slice_of(1))
    assert second() is second()
    whole = reference.native_gradients([x], [upstream])
    for index, right in enumerate(whole.weights):
        assert right is not None
        assert torch.allclose(owns.of_weight(index, torch.zeros_like(right)), right, rtol=1e-4, atol=1e-5)
    assert asked == [1, 0, 2, 3]


def test_a_part_that_a_call_does_not_reach_is_compared_in_the_next(calls: Calls) -> None:
    assert calls.call(_rows(without_b=slice(0, 64))).gradients is Gradients.MATCH
    assert calls.call(_rows(without_b=slice(0, 0)), wrong="b.bias").verdict is Verdict.WRONG_GRADIENT
