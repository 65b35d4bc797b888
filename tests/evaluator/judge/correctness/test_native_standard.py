"""Timed calls are compared with the native-precision reference where trials have shown it to be exact enough."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import torch

from evaluator.evaluation import Gradients, Verdict
from evaluator.judge.correctness.commitment import INPUT_BLOCKS, Commitment
from evaluator.judge.correctness.native_standard import NativeErrors, NativeStandard
from evaluator.judge.correctness.reference import Reference
from evaluator.judge.correctness.verify import CallFindings
from evaluator.judge.inputs.drawing import Variant
from evaluator.problems.loading import load_problem
from evaluator.problems.problem import Tolerance
from evaluator.protocol.control_page import CallReport
from tests.evaluator.verifying import constructed_reference, verifier_of

# The gradient of the bias is nothing but rounding: the mean is subtracted after it.
_REFERENCE: Final = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(24, 16)

    def forward(self, x):
        y = self.layer(x){factor}
        return torch.tanh(y - y.mean(0))


def get_inputs():
    return [torch.randn(64, 24)]


def get_init_inputs():
    return []
"""
_INEXACT: Final = " * (1.00004 if x.dtype is torch.float32 else 1.0)"
_MANIFEST: Final = 'title = "T"\ndescription = "D"\n[sizes.full]\n'
_RESULTS: Final = ("outputs", "input_gradients", "weight_gradients")
_WEIGHT, _BIAS = 0, 1


class _Calls:
    """Forward and backward calls, with the reference's own results in float32; ``float64_calls`` counts its others."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, factor: str = "", rows: int | None = None, model: str = ""
    ) -> None:
        (folder / "reference.py").write_text(model or _REFERENCE.format(factor=factor))
        independent = "[reference]\nrow_independent = true\n" if rows else ""
        (folder / "problem.toml").write_text(_MANIFEST + independent)
        problem = load_problem(folder)
        self._reference = constructed_reference(problem, "full")
        self.verifier, self._blocks = verifier_of(self._reference, problem, rows and 40 * rows, weights=True)
        self.float64_calls = 0
        for name in ("exact_outputs", "exact_gradients"):
            monkeypatch.setattr(Reference, name, self._counted(getattr(Reference, name)))

    def _counted(self, compute: Any) -> Any:
        def counted(*arguments: Any) -> Any:
            self.float64_calls += 1
            return compute(*arguments)

        return counted

    def backward(
        self,
        *,
        trial: bool = False,
        variant: Variant = Variant.MIXED,
        off: tuple[str, int, float] | None = None,
        times: tuple[str, float] | None = None,
        present: int = 0b1111,
    ) -> CallFindings:
        """Verify a call. ``off``: a block, the place of a tensor in it, and the error of its first element. ``times``:
        a block whose tensors all have this factor."""
        commitment = Commitment()
        for name in INPUT_BLOCKS:
            given = torch.randn(self._blocks[name].tensors[0].shape)
            self._blocks[name].tensors[0].copy_(given)
            self.verifier.commitments.commit(commitment, {name: [given]})
        leaf = self._blocks["inputs"].tensors[0].clone().requires_grad_()
        model, _ = self._reference.constructed([leaf])
        output = model(leaf)
        found = torch.autograd.grad(output, [leaf, *model.parameters()], self._blocks["upstream"].tensors[0])
        for name, values in zip(_RESULTS, ([output.detach()], found[:1], found[1:]), strict=True):
            for target, value in zip(self._blocks[name].tensors, values, strict=True):
                target.copy_(value)
            if off is not None and off[0] == name:
                self._blocks[name].tensors[off[1]].view(-1)[0] += off[2]
            if times is not None and times[0] == name:
                for target in self._blocks[name].tensors:
                    target.mul_(times[1])
            self.verifier.commitments.commit(commitment, {name: self._blocks[name].tensors})
        self.verifier.commitments.pick(commitment, [*INPUT_BLOCKS, *_RESULTS])
        report = CallReport(device_ms=1.0, peak_bytes=0, present=present, forward_ms=0.5)
        self.float64_calls = 0
        return self.verifier.verify_gradients(commitment, report, 0b11, variant, with_native=trial)


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Calls:
    return _Calls(tmp_path, monkeypatch)


def test_a_right_timed_call_needs_no_float64_after_a_trial_on_such_inputs(calls: _Calls) -> None:
    assert calls.backward().gradients is Gradients.MATCH
    assert calls.float64_calls  # nothing is known before a trial
    assert calls.backward(trial=True).gradients is Gradients.MATCH
    findings = calls.backward()
    assert (findings.verdict, findings.gradients, calls.float64_calls) == (None, Gradients.MATCH, 0)
    assert all(tally.passed for tally in findings.tallies)
    assert calls.verifier.influence == {0: 1.0}
    calls.backward(variant=Variant.WIDE)
    assert calls.float64_calls  # of this kind there was no trial


@pytest.mark.parametrize(
    ("off", "verdict"),
    [
        (("outputs", 0, 0.1), Verdict.WRONG_OUTPUT),
        (("input_gradients", 0, 0.1), Verdict.WRONG_GRADIENT),
        (("weight_gradients", _WEIGHT, 1.0), Verdict.WRONG_GRADIENT),
        (("weight_gradients", _BIAS, 1e-2), Verdict.WRONG_GRADIENT),
        (("outputs", 0, float("nan")), Verdict.WRONG_OUTPUT),
    ],
)
def test_the_float64_reference_decides_that_a_call_is_wrong(
    calls: _Calls, off: tuple[str, int, float], verdict: Verdict
) -> None:
    calls.backward(trial=True)
    assert calls.backward(off=off).verdict is verdict
    assert calls.float64_calls


def test_it_decides_as_well_where_little_of_the_limit_is_left(calls: _Calls) -> None:
    """An output of about one has a limit of 1e-4 of itself and of the scale."""
    calls.backward(trial=True)
    decided = []
    for share in (0.2, 0.5, 0.99, 1.5):
        torch.manual_seed(3)
        findings = calls.backward()
        scale = float(calls._blocks["outputs"].tensors[0].square().mean().sqrt())
        limit = 1e-4 * (scale + float(calls._blocks["outputs"].tensors[0].view(-1)[0].abs()))
        torch.manual_seed(3)
        findings = calls.backward(off=("outputs", 0, share * limit))
        decided.append((findings.verdict, calls.float64_calls > 0))
    assert decided == [(None, False), (None, False), (None, True), (Verdict.WRONG_OUTPUT, True)]


def test_a_missing_gradient_is_noticed(calls: _Calls) -> None:
    calls.backward(trial=True)
    findings = calls.backward(present=0b1011)
    assert findings.verdict is Verdict.WRONG_GRADIENT
    assert "layer.weight is missing" in findings.message
    # A candidate may leave out a gradient that is nothing but rounding.
    assert calls.backward(present=0b0111).gradients is Gradients.MATCH
    assert not calls.float64_calls
    assert calls.backward(present=0).gradients is Gradients.MISSING


def test_after_two_calls_that_need_float64_too_it_is_used_at_once(
    calls: _Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls.backward(trial=True)
    for _ in range(2):
        calls.backward(off=("outputs", 0, 0.1))
    monkeypatch.setattr(NativeStandard, "_are_right_gradients", None)
    assert calls.backward().gradients is Gradients.MATCH


def test_a_reference_that_is_inexact_in_its_own_precision_is_no_standard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = _Calls(tmp_path, monkeypatch, _INEXACT)
    assert calls.backward(trial=True).verdict is None
    assert calls.backward().verdict is None
    assert calls.float64_calls


_SUM_OF_WEIGHTS: Final = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Parameter(torch.randn(16, 24))
        self.other = nn.Parameter(torch.randn(16, 24))

    def forward(self, x):
        return torch.tanh(x @ (self.one + self.other).t())


def get_inputs():
    return [torch.randn(64, 24)]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("model", [_REFERENCE.format(factor="").replace(" - y.mean(0)", ""), _SUM_OF_WEIGHTS])
@pytest.mark.parametrize("variant", [Variant.MIXED, Variant.WIDE])
def test_sums_over_slices_are_right_in_every_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, variant: Variant
) -> None:
    """Autograd gives two parameters one gradient, where only their sum is used."""
    calls = _Calls(tmp_path, monkeypatch, rows=16, model=model)
    assert calls.verifier.commitments.sliced
    for trial in (True, False):
        findings = calls.backward(trial=trial, variant=variant)
        assert findings.gradients is Gradients.MATCH, findings.message
        assert all(tally.widened < 2 for tally in findings.tallies)
        assert (calls.float64_calls > 0) == (trial or variant is Variant.WIDE)
        # The gradient of a bias alone would be nearly right.
        assert calls.backward(trial=trial, variant=variant, times=("weight_gradients", 0.9)).verdict is not None


def test_a_half_precision_reference_is_no_standard() -> None:
    """It loses the numbers that make the scale: what is far off would be within its limits."""
    errors, tolerance = NativeErrors(), Tolerance(1e-2, 1e-2)
    exact = torch.full((4096,), 2e-9, dtype=torch.float64)
    exact[::64] = 1.0
    errors.learn("the output", Variant.MIXED, exact, exact.half(), tolerance, gradient=False)
    assert not errors.are_small("the output", Variant.MIXED)
    errors.learn("output 1", Variant.MIXED, exact, exact.float(), tolerance, gradient=False)
    assert errors.are_small("output 1", Variant.MIXED)


def test_integers_and_absent_gradients_must_be_the_same_in_trials() -> None:
    errors, tolerance, exact = NativeErrors(), Tolerance(1e-2, 1e-2), torch.arange(10)
    errors.learn("the output", Variant.MIXED, exact, exact.clone(), tolerance, gradient=False)
    assert errors.are_small("the output", Variant.MIXED)
    errors.learn("the output", Variant.MIXED, exact, exact + 1, tolerance, gradient=False)
    assert not errors.are_small("the output", Variant.MIXED)
    errors.absent.add(("the gradient of w", Variant.MIXED))
    assert errors.are_small("the gradient of w", Variant.MIXED)
    errors.learn("the gradient of w", Variant.MIXED, exact.double(), exact.float(), tolerance, gradient=True)
    assert not errors.are_small("the gradient of w", Variant.MIXED)


def test_a_gradient_is_only_rounding_where_it_is_so_in_every_trial() -> None:
    errors, tolerance, place = NativeErrors(), Tolerance(1e-3, 1e-3), ("the gradient of b", Variant.MIXED)
    noise = torch.randn(4096) * 1e-6
    errors.learn(*place, noise.double() * 1e-9, noise, tolerance, gradient=True)
    assert errors.are_small(*place)
    assert errors.rounding[place] == pytest.approx(float(noise.abs().max()))
    real = torch.randn(4096, dtype=torch.float64)
    errors.learn(*place, real, (1.1 * real).float(), tolerance, gradient=True)
    assert not errors.are_small(*place)


def test_errors_are_those_of_all_slices_and_trials() -> None:
    errors, tolerance, exact = NativeErrors(), Tolerance(1e-3, 1e-3), torch.ones(4096, dtype=torch.float64)
    place = "the output", Variant.MIXED

    def learn(error: float, elements: int = 4096, *, gradient: bool = False) -> None:
        native = exact.clone()
        native[:elements] += error
        errors.learn(*place, exact, native, tolerance, gradient=gradient)

    assert not errors.are_small(*place)
    for error, part in ((1e-6, 1 / 64), (2e-4, 1 / 8), (1e-6, 1 / 8)):
        learn(error)
        assert errors.are_small(*place)
        assert errors.narrowed(*place, tolerance).rtol == pytest.approx((1 - 2 * part) * 1e-3)
    learn(3e-4)
    assert not errors.are_small(*place)
    errors.parts.clear()
    learn(1.0, 4, gradient=True)  # next to kinks, gradients may be far off
    assert errors.are_small(*place)
    learn(1.0, 4)
    assert not errors.are_small(*place)
    errors.parts.clear()
    learn(float("nan"), 1, gradient=True)
    assert not errors.are_small(*place)
