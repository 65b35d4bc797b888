"""What the judge draws: kinds of inputs."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from evaluator.judge.inputs import drawing as inputs_module
from evaluator.judge.inputs.drawing import InputSource, Variant, make_upstream
from evaluator.protocol.shared_memory import TensorSpec

_SHAPE = (50, 41)
_SCALE = 3.0


def _made(variant: Variant, dtype: str = "float32", seed: int = 5) -> torch.Tensor:
    spec = TensorSpec(_SHAPE, dtype)
    source = InputSource(lambda: [torch.full(_SHAPE, _SCALE)], torch.device("cpu"), variants=True)
    (made,) = source.make([spec], variant, seed, avoid_zero=False)
    assert TensorSpec.of(made) == spec
    return made.view(-1)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("piece", [100, 2**25])
def test_structured_inputs_are_a_lattice_that_goes_on_from_piece_to_piece(
    dtype: str, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs_module, "_PIECE", piece)
    unit = torch.tensor(_SCALE / 16, dtype=torch.float64)
    steps = (_made(Variant.STRUCTURED, dtype).double() / unit).round()
    assert set(steps.tolist()) == set(range(-33, 34))
    assert set(steps.diff().tolist()) == {31.0, 31.0 - 67.0}
    assert torch.equal(steps[67:], steps[:-67])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_wide_inputs_have_magnitudes_of_twenty_powers_of_two_and_both_signs(dtype: str) -> None:
    made = _made(Variant.WIDE, dtype).double()
    powers = (made.abs() / _SCALE).log2()
    assert -10.1 < float(powers.min()) < -9.5
    assert 9.5 < float(powers.max()) < 10.1
    # As many of each power: nothing depends on the sign.
    for sign in (-1.0, 1.0):
        ours = powers[made.sign() == sign]
        assert 0.4 < len(ours) / len(powers) < 0.6
        assert abs(float(ours.mean())) < 1.0
        assert float(ours.std()) == pytest.approx(20 / math.sqrt(12), rel=0.1)
    assert not torch.equal(made, _made(Variant.WIDE, dtype, seed=6).double())
    assert torch.equal(made, _made(Variant.WIDE, dtype).double())


_KEPT = torch.arange(1.0, 65.0)
_NUMPY = np.arange(1.0, 65.0, dtype=np.float32)
_STORAGE = torch.arange(1.0, 65.0).untyped_storage()


@torch.inference_mode()
def _without_autograd() -> list[torch.Tensor]:
    return [torch.arange(1.0, 65.0)]


@pytest.mark.parametrize(
    ("get_inputs", "copied"),
    [
        (lambda: [_KEPT], True),
        (lambda: [_KEPT[:32]], True),
        (lambda: [_KEPT.view(8, 8)], True),
        (lambda: [_KEPT.detach()], True),
        (lambda: [_KEPT.data], True),
        (lambda: [torch.empty(0).set_(_STORAGE)], True),  # type: ignore[call-overload]
        (lambda: [torch.from_numpy(_NUMPY)], True),
        (_without_autograd, True),
        (lambda: [torch.arange(1.0, 65.0)], False),
        (lambda: [torch.arange(1.0, 65.0).view(8, 8)], False),
    ],
    ids=[
        "kept",
        "a part of it",
        "a view of it",
        "detached",
        "its data",
        "kept memory",
        "numpy",
        "made for inference",
        "new",
        "a view of new",
    ],
)
def test_what_get_inputs_keeps_is_copied_and_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch, get_inputs: Callable[[], list[torch.Tensor]], copied: bool
) -> None:
    clones: list[torch.Tensor] = []

    def clone(tensor: torch.Tensor) -> torch.Tensor:
        clones.append(tensor)
        return torch.empty_like(tensor).copy_(tensor)

    monkeypatch.setattr(torch.Tensor, "clone", clone)
    before = get_inputs()[0].numpy().copy()
    source = InputSource(get_inputs, torch.device("cpu"), variants=True)
    specs = [TensorSpec(before.shape, "float32")]
    made = [source.make(specs, Variant.MIXED, seed, avoid_zero=True)[0] for seed in range(3)]
    assert len(clones) == (3 if copied else 0)
    assert (get_inputs()[0].numpy() == before).all()
    assert all((tensor.numpy() != before).any() for tensor in made)
    assert not made[0].equal(made[1])
    assert not made[1].equal(made[2])


@pytest.mark.parametrize("variant", [Variant.STRUCTURED, Variant.SPECIAL, Variant.WIDE])
def test_the_judge_makes_no_ties_where_something_is_chosen_and_the_problem_has_none(variant: Variant) -> None:
    def distinct(get_inputs: Callable[[], list[torch.Tensor]], *, ties: bool) -> int:
        source = InputSource(get_inputs, torch.device("cpu"), variants=True, ties=ties)
        (made,) = source.make([TensorSpec((20, 100), "float32")], variant, 5, avoid_zero=False)
        return len(made.unique())

    assert distinct(lambda: [torch.randn(20, 100)], ties=False) > 1900
    if variant is Variant.STRUCTURED:
        assert distinct(lambda: [torch.randn(20, 100)], ties=True) < 100
        assert distinct(lambda: [torch.randint(9, (20, 100)).float()], ties=False) < 100


def test_upstream_gradients_have_one_sign_in_half_of_the_calls() -> None:
    spec = TensorSpec((400,), "float32")
    kinds = {"mixed": 0, "above": 0, "below": 0}
    sizes = []
    for seed in range(200):
        (made,) = make_upstream([spec], [], seed, torch.device("cpu"))
        sizes.append(float(made.square().mean().sqrt()))
        positive = float((made > 0).float().mean())
        kinds["above" if positive == 1.0 else "below" if positive == 0.0 else "mixed"] += 1
    assert 70 < kinds["mixed"] < 130
    assert min(kinds.values()) > 25
    assert 70 < sum(0.8 < size < 1.25 for size in sizes) < 130
    assert min(sizes) < 1e-3
    assert max(sizes) > 32.0


def test_upstream_gradients_are_of_usual_size_in_float16() -> None:
    spec = TensorSpec((400,), "float16")
    for seed in range(20):
        (made,) = make_upstream([spec], [], seed, torch.device("cpu"))
        assert float(made.float().square().mean().sqrt()) == pytest.approx(1.0, rel=0.25)


def test_upstream_gradients_in_float16_leave_the_gradient_of_a_bias_finite() -> None:
    spec, weights = (
        TensorSpec((128, 8, 64, 64), "float16"),
        [TensorSpec((8, 3), "float16"), TensorSpec((8,), "float16")],
    )
    signed = 0
    for seed in range(8):
        (made,) = make_upstream([spec], weights, seed, torch.device("cpu"))
        assert float(made.double().sum((0, 2, 3)).abs().max()) < torch.finfo(torch.float16).max / 8
        size = float(made.float().square().mean().sqrt())
        if float(made.amin()) * float(made.amax()) < 0:
            assert size == pytest.approx(1.0, rel=0.1)  # both signs: as large as ever
        else:
            signed += 1
            assert 2**-9 < size < 0.1
    assert 1 < signed < 7


@pytest.mark.parametrize("weight", [(1,), (0,), ()])
def test_upstream_gradients_in_float16_are_never_too_small_to_show_anything(weight: tuple[int, ...]) -> None:
    specs = [TensorSpec((512, 4096), "float16"), TensorSpec((4, 1000), "float16")]
    alone = 0
    for seed in range(24):
        first, second = make_upstream(specs, [TensorSpec(weight, "float16")], seed, torch.device("cpu"))
        assert float((first == 0).float().mean()) < 0.02
        assert float((second == 0).float().mean()) < 0.02
        sizes = sorted(float(made.float().square().mean().sqrt()) for made in (first, second))
        alone += sizes[0] < 2**-16
        assert sizes[0] > 2**-9 or sizes[0] == pytest.approx(2**-18, rel=0.3)
    assert 1 < alone < 16


def test_each_output_has_the_only_upstream_gradient_in_some_calls_and_none_is_zero() -> None:
    specs = [TensorSpec((400,), "float32"), TensorSpec((), "float32"), TensorSpec((4,), "int64")]
    alone = [0, 0]
    for seed in range(200):
        first, second, whole = make_upstream(specs, [], seed, torch.device("cpu"))
        sizes = [float(made.abs().mean()) for made in (first, second)]
        assert min(sizes) > 0
        assert float(whole.abs().max()) == 0
        for index in range(2):
            alone[index] += sizes[index] > 1e4 * sizes[1 - index]
    assert min(alone) > 10
    assert sum(alone) < 80
