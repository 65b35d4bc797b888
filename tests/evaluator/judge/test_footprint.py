"""The memory of tensors while something is computed, counted on any device."""

from __future__ import annotations

import pytest
import torch

from evaluator.judge.correctness.reference import Reference
from evaluator.judge.device.cpu import CpuDevice
from evaluator.judge.footprint import Footprint
from evaluator.judge.reference_memory import Use, use_of
from evaluator.problems.problem import Problem

MIB = 2**20


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_tensors_count_as_long_as_they_are_there(device: str) -> None:
    x = torch.ones(MIB // 4, device=device, requires_grad=True)
    with Footprint() as found:
        y = x * 2
        z = y.view(2, -1).t()
        del y
        z = z.exp()  # the product is not needed any more
        (gradient,) = torch.autograd.grad(z, [x], torch.ones_like(z))
        gradient.add_(1)
    # Product and exponential; then the latter, what flows back to it, through it and to the input.
    assert (found.peak_bytes, found.peak_double_bytes) == (4 * MIB, 8 * MIB)
    assert found.largest_double_bytes == 2 * MIB


def test_integers_and_masks_do_not_grow_in_double() -> None:
    x = torch.ones(MIB, device="meta", dtype=torch.float16)
    with Footprint() as found:
        kept = [x > 0, x.argsort(), x.to(torch.complex64)]
    assert len(kept) == 3
    assert found.peak_bytes >= (1 + 8 + 8) * MIB
    assert found.peak_double_bytes >= (1 + 8 + 16) * MIB


def test_the_use_of_a_reference_is_that_of_its_calls(problems: dict[str, Problem]) -> None:
    """Of a ReLU on 6 GiB: the output and the gradient; of its slices as much of their elements."""
    problem, elements = problems["relu"], 2**25
    reference = Reference(problem, "full", "float32", CpuDevice())
    use = use_of(problem, reference, elements, gradients=True)
    six = reference.signature.outputs[0].size_bytes
    assert (use.drawn, use.whole) == (six, 2 * six)
    assert use.part <= 2 * 4 * elements < 1.1 * use.part
    assert (use.exact, use.largest) == (2 * use.part, use.part)
    assert use_of(problem, reference, elements, gradients=False).whole == six
    half = use.share(2)
    assert (half.drawn, half.whole, half.part) == (six // 2, six, use.part)
    assert Use(8, 64, 64, 128, 16).share(4) == Use(2, 16, 16, 32, 4)


def test_a_reference_that_refuses_to_be_watched_has_a_use_all_the_same(
    problems: dict[str, Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = problems["gelu"]
    reference = Reference(problem, "smoke", "float32", CpuDevice())

    def refused() -> None:
        raise RuntimeError

    monkeypatch.setattr(reference, "on_meta", refused)
    monkeypatch.setattr("evaluator.judge.reference_memory._USES", {})
    use = use_of(problem, reference, None, gradients=True)
    assert use.whole >= 2 * sum(spec.size_bytes for spec in reference.signature.tensors)
    assert use.exact == 2 * use.part
