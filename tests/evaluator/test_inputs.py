"""What the judge draws: kinds of inputs."""

from __future__ import annotations

import math

import pytest
import torch

from evaluator.judge import inputs as inputs_module
from evaluator.judge.inputs import InputSource, Variant
from evaluator.memory import TensorSpec

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
