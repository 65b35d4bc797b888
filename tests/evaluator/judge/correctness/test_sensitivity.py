"""How far gradients move next to a kink, in the rows in doubt alone, and where terms cancel whatever the inputs are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from evaluator.judge.correctness.reference import GradientSlice, Reference
from evaluator.judge.correctness.sensitivity import Rounding, Sensitivity
from evaluator.judge.device.cpu import CpuDevice
from evaluator.judge.inputs.drawing import InputSource, Variant
from evaluator.problems.problem import Problem, Tolerance
from evaluator.protocol.shared_memory import TensorSpec

_KINK = 5


@pytest.fixture
def reference(problems: dict[str, Problem], tmp_path: Path) -> Reference:
    made = Reference(problems["linear_relu_divide"], "smoke", "float32", CpuDevice(tmp_path))
    made.construct(7, frozenset(os.sched_getaffinity(0)))
    return made


def _near_a_kink(reference: Reference) -> tuple[list[Any], list[torch.Tensor]]:
    """Inputs of which row ``_KINK`` has an output at exactly zero, and upstream gradients."""
    torch.manual_seed(3)
    values = [value.clone() for value in reference.get_inputs()]
    weight, bias = (value.double() for value in reference.state_values())
    row = values[0][_KINK].double()
    row -= (row @ weight[0] + bias[0]) / weight[0].square().sum() * weight[0]
    values[0][_KINK] = row.float()
    (output,) = reference.signature.outputs
    return values, [torch.randn(output.shape)]


def _sensitivity(
    reference: Reference,
    values: list[Any],
    upstream: list[torch.Tensor],
    *,
    alone: bool,
    kind: type[Sensitivity] = Sensitivity,
) -> Sensitivity:
    return kind(
        reference,
        Tolerance(atol=1e-4, rtol=1e-4),
        lambda: torch.Generator().manual_seed(1),
        range(1),
        lambda _number: (values, upstream),
        rows_alone=alone,
    )


def _on_the_other_side(
    reference: Reference, values: list[Any], upstream: list[torch.Tensor], exact: GradientSlice
) -> torch.Tensor:
    """The gradient of the input as somebody has it for whom that output was on the other side of zero."""
    right = exact.inputs[0]
    assert right is not None
    other = right.clone()
    other[_KINK] += upstream[0][_KINK, 0].double() * reference.state_values()[0][0].double() / 2.0
    return other


def test_rows_that_are_not_in_doubt_have_no_room(reference: Reference) -> None:
    values, upstream = _near_a_kink(reference)
    exact, own = reference.exact_gradients(values, upstream), reference.native_gradients(values, upstream)
    assert own.inputs[0] is not None
    actual = _on_the_other_side(reference, values, upstream, exact)
    sensitivity = _sensitivity(reference, values, upstream, alone=True)
    moved = sensitivity.of_input(0, 0, exact, actual.float(), own.inputs[0])
    assert moved is not None
    rows = moved.abs().sum(1).nonzero().view(-1).tolist()
    assert rows == [_KINK]
    by_rows = sensitivity.near_weight(0)
    assert by_rows is not None
    assert float(by_rows[0].abs().max()) > 0
    term = upstream[0][_KINK, 0].abs() * values[0][_KINK].abs() / 2.0
    assert torch.allclose(by_rows[0].float(), term, rtol=0.05, atol=1e-3)


def test_where_rows_do_not_stand_alone_everything_moves(reference: Reference) -> None:
    values, upstream = _near_a_kink(reference)
    exact, own = reference.exact_gradients(values, upstream), reference.native_gradients(values, upstream)
    assert own.inputs[0] is not None
    actual = _on_the_other_side(reference, values, upstream, exact)
    sensitivity = _sensitivity(reference, values, upstream, alone=False)
    moved = sensitivity.of_input(0, 0, exact, actual.float(), own.inputs[0])
    assert moved is not None
    assert moved.shape == actual.shape
    assert sensitivity.near_weight(0) is None
    assert sensitivity.of_weight(0, exact.weights) is not None


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("variant", [variant for variant in Variant if variant is not Variant.ZEROS])
def test_inputs_of_gradient_calls_have_no_zeros(variant: Variant, dtype: str) -> None:
    spec = TensorSpec((300, 70), dtype)
    source = InputSource(
        lambda: [torch.relu(torch.randn(300, 70)).to(spec.torch_dtype)], torch.device("cpu"), variants=True
    )
    for seed in range(3):
        (made,) = source.make([spec], variant, seed, avoid_zero=True)
        assert int((made == 0).sum()) == 0


@pytest.mark.parametrize("variants", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_inputs_of_one_kind_have_zeros_in_gradient_calls_as_well(dtype: str, variants: bool) -> None:
    spec = TensorSpec((300, 70), dtype)
    source = InputSource(
        lambda: [torch.relu(torch.randn(300, 70)).to(spec.torch_dtype)], torch.device("cpu"), variants=variants
    )
    (made,) = source.make([spec], Variant.ZEROS, 3, avoid_zero=True)
    zeros = made == 0
    if not variants:  # as they are written: of half of the numbers a rectifier makes zeros
        assert 0.4 < float(zeros.float().mean()) < 0.6
        return
    assert 4 <= int(zeros.all(dim=1).sum()) <= 5
    assert 0.02 < float(zeros.float().mean()) < 0.04
    assert zeros.any(dim=0).all()


def test_terms_that_cancel_whatever_the_inputs_are_show_when_results_within_are_moved(
    problems: dict[str, Problem], tmp_path: Path
) -> None:
    softmax = Reference(problems["softmax"], "smoke", "float32", CpuDevice(tmp_path))
    softmax.construct(7, frozenset(os.sched_getaffinity(0)))
    torch.manual_seed(3)
    values: list[Any] = [torch.randn(value.shape) for value in softmax.get_inputs()]
    values[0][..., 0] = 20.0
    upstream = [torch.randn(spec.shape) for spec in softmax.signature.outputs]
    upstream[0][..., 0] = 4.0
    exact, own = softmax.exact_gradients(values, upstream), softmax.native_gradients(values, upstream)
    right, near = exact.inputs[0], own.inputs[0]
    assert right is not None
    assert near is not None
    by_inputs, by_results = (
        _sensitivity(softmax, values, upstream, alone=False, kind=kind).of_input(0, 0, exact, near, near)
        for kind in (Sensitivity, Rounding)
    )
    assert by_inputs is not None
    assert by_results is not None
    assert float(by_inputs[..., 0].max()) < 1e-6
    # Results are moved by 1e-5, and four times as far is allowed.
    assert 2e-5 < float(by_results[..., 0].median()) < 1e-3
    assert float(by_results[..., 1:].median()) < 1e-9, "where nothing cancels, it is in proportion"


@pytest.mark.parametrize("problem", ["softmax", "log_softmax", "cross_entropy"])
def test_a_softmax_moves_by_roundings_of_the_logarithm_of_its_sum(
    problem: str, problems: dict[str, Problem], tmp_path: Path
) -> None:
    """In float32 the logarithm is off by up to 2⁻¹² among numbers about 4000, and by 2⁻²⁴ among ones."""
    reference = Reference(problems[problem], "smoke", "float32", CpuDevice(tmp_path))
    reference.construct(7, frozenset(os.sched_getaffinity(0)))
    size = 4000.0
    for scale, least, most in ((size, 1e-5, 4e-3), (1.0, 0.0, 2e-6)):
        values = list(reference.get_inputs())
        values[0] = torch.zeros_like(values[0]) - scale
        values[0][:, 1] = scale
        values[0][:, 0] = scale - 8.0 * scale / size
        if len(values) > 1:
            values[1] = torch.ones_like(values[1])
        exact = reference.exact_outputs(values)
        upstream = [torch.ones(tuple(output.shape)) for output in reference.signature.outputs]
        if problem == "softmax":
            moved = reference.perturbed_outputs(values, 0.0, torch.Generator().manual_seed(1))
            largest = max(float((one[0] - exact[0]).abs().max()) for one in moved)
        else:
            if problem == "log_softmax":
                upstream[0][:, 1] = -1.0
            gradient = reference.exact_gradients(values, upstream).inputs[0]
            assert gradient is not None
            moves = reference.rounded_gradients(values, upstream, 0.0, torch.Generator().manual_seed(1))
            largest = max(float((one.inputs[0] - gradient).abs().max()) for one in moves)
            largest *= len(gradient) if problem == "cross_entropy" else 1 / gradient.shape[1]
        assert least <= largest < most, (scale, largest)


@pytest.mark.parametrize(
    ("fill", "masked", "most"),
    [(-1e9, 5, 1e-6), (float(torch.finfo(torch.float32).min), 5, 1e-6), (-1e9, 512, 2e-3), (-1e9, 0, 1e-6)],
)
def test_the_number_that_scores_are_masked_by_is_not_rounded(
    fill: float, masked: int, most: float, problems: dict[str, Problem], tmp_path: Path
) -> None:
    """Its rounding would excuse anything. Where every score is masked, an exponent moves by 2⁻¹⁰ at the most."""
    reference = Reference(problems["softmax"], "smoke", "float32", CpuDevice(tmp_path))
    reference.construct(7, frozenset(os.sched_getaffinity(0)))
    values = [torch.zeros_like(reference.get_inputs()[0])]
    values[0][:, :masked] = fill
    (exact,) = reference.exact_outputs(values)
    for (moved,) in reference.perturbed_outputs(values, 0.0, torch.Generator().manual_seed(1)):
        assert bool(moved.isfinite().all())
        assert float((moved - exact).abs().max() / exact.abs().max()) < most
