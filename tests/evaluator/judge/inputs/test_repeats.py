"""Inputs that repeat in every draw, and other elements for masks among them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from evaluator.judge.inputs.drawing import InputSource, Variant
from evaluator.judge.inputs.repeats import FEW, MANY, Repeats, flip_some, repeats_of
from evaluator.protocol.shared_memory import TensorSpec


def _causal() -> torch.Tensor:
    return torch.ones(64, 64, dtype=torch.bool).tril()


@pytest.mark.parametrize(
    ("draw", "repeats"),
    [
        (lambda: [torch.randn(8, 4), torch.rand(8, 4), torch.randint(9, (8,))], Repeats()),
        (lambda: [torch.randn(8, 4), _causal(), torch.arange(8)], Repeats(same=(1, 2))),
        (lambda: [torch.ones(8), torch.randn(8)], Repeats(same=(0,))),
        # Two draws are the same by chance now and then.
        (lambda: [torch.randn(8), torch.randint(2, (1,)).bool()], Repeats()),
        (lambda: [functional.normalize(torch.randn(8, 4)), torch.randn(8, 4)], Repeats(related=(0,))),
        (lambda: [functional.normalize(torch.randn(8, 64)).half(), torch.randn(8, 4)], Repeats()),
        (lambda: 2 * [torch.randn(8, 4)], Repeats(related=(0, 1))),
        (lambda: [torch.empty(0), torch.empty(0).long()], Repeats()),
    ],
    ids=["free", "mask and places", "ones", "a coin", "of length one", "rounded", "equal", "empty"],
)
def test_what_repeats_in_draws_is_found(draw: Callable[[], list[torch.Tensor]], repeats: Repeats) -> None:
    torch.manual_seed(0)
    for _ in range(4):
        assert repeats_of(draw, range(len(draw()))) == repeats


def test_nothing_is_drawn_to_look_at_nothing() -> None:
    def draw() -> list[torch.Tensor]:
        raise AssertionError

    assert repeats_of(draw, ()) == Repeats()


@pytest.mark.parametrize("share", [FEW, MANY])
@pytest.mark.parametrize(
    "mask",
    [
        torch.ones(16, 128, dtype=torch.bool),
        torch.zeros(4, 1, 1, 256, dtype=torch.bool),
        _causal(),
        ~_causal(),
        torch.eye(64, dtype=torch.bool),
        torch.arange(4096).remainder(7) < 3,
        _causal().expand(4, 64, 64),
    ],
    ids=["ones", "zeros", "causal", "later", "diagonal", "one row", "expanded"],
)
def test_a_mask_gets_some_other_elements_and_no_row_without_any(mask: torch.Tensor, share: float) -> None:
    before = mask.clone()
    for seed in range(20):
        flipped = flip_some(mask, seed, share)
        assert torch.equal(mask, before)
        assert torch.equal(flipped, flip_some(mask, seed, share))
        assert 0 <= float((flipped != mask).float().mean()) <= share + 1 / mask.numel()
        for dimension in range(mask.dim()):
            if mask.shape[dimension] > 1:
                uniform = flipped.all(dimension) | ~flipped.any(dimension)
                assert not bool((uniform & ~(mask.all(dimension) | ~mask.any(dimension))).any())
    assert not torch.equal(flip_some(mask, 1, MANY), mask)


def test_masks_are_varied_in_all_inputs_but_those_as_written() -> None:
    specs = [TensorSpec((8, 64), "float32"), TensorSpec((64, 64), "bool")]
    source = InputSource(lambda: [torch.randn(8, 64), _causal()], torch.device("cpu"), variants=True)
    source.vary_masks([1])
    for variant in Variant:
        one, again = (source.make(specs, variant, 5, avoid_zero=False)[1] for _ in range(2))
        assert torch.equal(one, again)
        share = float((one != _causal()).float().mean())
        expected = {Variant.AS_WRITTEN: (0.0, 0.0), Variant.MIXED: (1e-4, FEW)}.get(variant, (0.1, MANY))
        assert expected[0] <= share <= expected[1]


def test_inputs_as_written_keep_their_masks() -> None:
    specs = [TensorSpec((64, 64), "bool"), TensorSpec((8,), "float32")]
    source = InputSource(lambda: [_causal(), torch.randn(8)], torch.device("cpu"), variants=False)
    source.vary_masks([0])
    assert torch.equal(source.make(specs, Variant.ZEROS, 5, avoid_zero=False)[0], _causal())
