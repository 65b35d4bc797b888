"""The reference's own error: asked for in every element of the first trials, and later only where something looks
wrong, with the same findings."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from evaluator.evaluation import Gradients, Verdict
from evaluator.judge.compare import compare_slice, found_right
from evaluator.judge.device import CpuDevice
from evaluator.judge.inputs import Variant
from evaluator.judge.reference import Reference
from evaluator.judge.verify import CallFindings, Commitment, Verifier
from evaluator.memory import BlockLayout, create_block
from evaluator.problem import Tolerance, load_problem
from evaluator.protocol import CallReport

REFERENCE = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 48)

    def forward(self, x):
        return torch.relu(self.linear(x))


def get_inputs():
    return [torch.randn(256, 64)]


def get_init_inputs():
    return []
"""
MANIFEST = """\
title = "T"
description = "D"
[sizes.full]
[reference]
row_independent = true
[tolerance]
float32 = { atol = 1e-4, rtol = 1e-4 }
"""
# Less than float32 can do: the reference is outside of it, too.
STRICT = MANIFEST.replace("1e-4", "1e-9")
TOLERANCE = Tolerance(1e-4, 1e-4)


class Calls:
    """Forward and backward calls of a layer with weights, in four slices, as the reference itself would make them in
    float32 until a test changes something. ``asked``: how often the reference's own gradients were."""

    def __init__(self, folder: Path, manifest: str, monkeypatch: pytest.MonkeyPatch) -> None:
        folder.mkdir()
        (folder / "reference.py").write_text(REFERENCE)
        (folder / "problem.toml").write_text(manifest)
        problem, device = load_problem(folder), CpuDevice()
        self.reference = Reference(problem, "full", "float32", device)
        self.reference.construct(1, frozenset(os.sched_getaffinity(0)))
        signature = self.reference.signature
        weights = tuple(spec for _, spec in signature.weights)
        specs = {
            "inputs": signature.input_tensors,
            "outputs": signature.outputs,
            "upstream": signature.outputs,
            "input_gradients": signature.float_inputs,
            "weight_gradients": weights,
        }
        self.blocks = {name: create_block(BlockLayout(found), device.torch_device) for name, found in specs.items()}
        tolerance = problem.tolerance("float32")
        self.verifier = Verifier(self.reference, self.blocks, tolerance, device.generator, 64 * 64)
        assert self.verifier.sliced
        self.asked = 0
        own = self.reference.own_gradients

        def counted(*arguments: object) -> object:
            self.asked += 1
            return own(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(self.reference, "own_gradients", counted)

    def call(self, *, with_own: bool, change: Callable[[Calls], None] = lambda _calls: None) -> CallFindings:
        commitment, delivered = Commitment(), ["outputs", "input_gradients", "weight_gradients"]
        torch.manual_seed(3)
        for name in ("inputs", "upstream"):
            self.blocks[name].tensors[0].copy_(torch.randn_like(self.blocks[name].tensors[0]))
            self.verifier.commit(commitment, name, self.blocks[name].tensors)
        model, (x,) = self.reference.constructed([self.blocks["inputs"].tensors[0]])
        y = model(x)
        found = torch.autograd.grad(y, [x, *model.parameters()], self.blocks["upstream"].tensors[0])
        for name, values in (("outputs", [y]), ("input_gradients", found[:1]), ("weight_gradients", found[1:])):
            for target, value in zip(self.blocks[name].tensors, values, strict=True):
                target.copy_(value.detach())
        change(self)
        for name in delivered:
            self.verifier.commit(commitment, name, self.blocks[name].tensors)
        self.asked = 0
        report = CallReport(device_ms=1.0, peak_bytes=0, present=15, forward_ms=0.5)
        return self.verifier.verify_gradients(commitment, report, 3, Variant.SIGNED, with_own=with_own)


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(tmp_path / "usual", MANIFEST, monkeypatch)


def test_it_is_not_asked_for_where_everything_is_right(calls: Calls) -> None:
    whole = calls.call(with_own=True)
    assert calls.asked == 4
    again = calls.call(with_own=False)
    assert calls.asked == 0
    assert (whole.gradients, again.gradients) == (Gradients.MATCH, Gradients.MATCH)
    assert [tally.max_abs for tally in again.tallies] == [tally.max_abs for tally in whole.tallies]
    assert all(tally.passed and tally.total == tally.right for tally in again.tallies)
    assert whole.tallies[0].reference_max_rel > 0 == again.tallies[0].reference_max_rel


def test_where_the_tolerance_is_less_than_rounding_it_widens_the_limits_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(tmp_path / "strict", STRICT, monkeypatch)
    for with_own in (True, False):
        findings = calls.call(with_own=with_own)
        assert findings.gradients is Gradients.MATCH, findings.message
        # Once for each slice, and without knowing it from before once more for the sums over all of them.
        assert calls.asked == (4 if with_own else 8)
        assert all(tally.widened > 1 for tally in findings.tallies)


@pytest.mark.parametrize(
    ("name", "index", "verdict"),
    [
        ("outputs", 0, Verdict.WRONG_OUTPUT),
        ("input_gradients", 0, Verdict.WRONG_GRADIENT),
        ("weight_gradients", 0, Verdict.WRONG_GRADIENT),
        ("weight_gradients", 1, Verdict.WRONG_GRADIENT),
    ],
)
@pytest.mark.parametrize("value", [9.0, float("nan"), float("inf")])
def test_what_is_wrong_is_found_with_the_same_words(
    calls: Calls, name: str, index: int, verdict: Verdict, value: float
) -> None:
    def change(calls: Calls) -> None:
        calls.blocks[name].tensors[index].view(-1)[7] += value

    found = [calls.call(with_own=with_own, change=change) for with_own in (True, False)]
    assert [findings.verdict for findings in found] == [verdict, verdict]
    # How far an element may be off where little is wrong is found by random moves.
    messages = {re.sub(r"allowed [^)]*\)", "", findings.message) for findings in found}
    assert len(messages) == 1, messages


def test_a_gradient_that_the_reference_does_not_have_in_its_precision_is_no_candidates_either(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = calls.reference.own_gradients

    def without_inputs(*arguments: object) -> object:
        found = own(*arguments)  # type: ignore[arg-type]
        found.inputs = [None]
        return found

    def change(calls: Calls) -> None:
        calls.blocks["input_gradients"].tensors[0].view(-1)[7] += 9.0

    monkeypatch.setattr(calls.reference, "own_gradients", without_inputs)
    for with_own in (True, False):
        assert calls.call(with_own=with_own, change=change).gradients is Gradients.MATCH


def test_the_comparison_alone_says_the_same_or_nothing() -> None:
    expected = torch.randn(40, 50, dtype=torch.float64)
    actual = expected.float()
    found = found_right(actual, expected, TOLERANCE)
    whole = compare_slice(actual, expected, actual, TOLERANCE)
    assert found is not None
    assert (found.total, found.right, found.max_abs, found.max_rel) == (2000, 2000, whole.max_abs, whole.max_rel)
    actual[3, 4] += 0.01
    assert found_right(actual, expected, TOLERANCE) is None


@pytest.mark.parametrize("where", [0, 1999])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_nothing_is_right_by_the_scale_of_what_is_not_finite(where: int, value: float) -> None:
    expected = torch.randn(2000, dtype=torch.float64)
    expected[where] = value
    for actual in (torch.zeros(2000), expected.float()):
        assert found_right(actual, expected, TOLERANCE) is None


def test_integers_are_right_or_not() -> None:
    expected = torch.arange(10)
    found = found_right(expected.clone(), expected, TOLERANCE)
    assert found is not None
    assert (found.total, found.right) == (10, 10)
    assert found_right(expected + 1, expected, TOLERANCE) is None
