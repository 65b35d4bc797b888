"""Relations of drawn parameters that hold under every seed."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from evaluator.judge.inputs.parameters import constants_of
from evaluator.judge.inputs.relations import related_of


class _Weights(nn.Module):
    def __init__(self, **weights: torch.Tensor) -> None:
        super().__init__()
        for name, weight in weights.items():
            self.register_parameter(name, nn.Parameter(weight))


def _related(make: Callable[[], nn.Module]) -> set[str]:
    def made(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return make()

    one, other = made(1), made(2)
    return set(related_of(one, other, lambda: made(3), constants_of(one, other)))


def _orthogonal(*shape: int) -> torch.Tensor:
    return nn.init.orthogonal_(torch.empty(*shape))


def _symmetric() -> torch.Tensor:
    weight = torch.randn(16, 16)
    return weight + weight.t()


@pytest.mark.parametrize(
    "make",
    [
        lambda: _orthogonal(64, 64),
        lambda: _orthogonal(300, 20),
        lambda: _orthogonal(20, 300),
        lambda: torch.cat([_orthogonal(16, 16) for _ in range(4)]),
        lambda: torch.stack([_orthogonal(16, 16) for _ in range(4)]),
        lambda: nn.functional.normalize(torch.randn(64, 32)),
        lambda: nn.functional.normalize(torch.randn(64, 32), dim=0),
        lambda: nn.functional.normalize(torch.randn(4, 8, 16), dim=-1),
        lambda: nn.functional.normalize(torch.randn(64 * 32), dim=0).view(64, 32),
        lambda: torch.randn(64, 32).softmax(1),
        lambda: nn.functional.layer_norm(torch.randn(8, 3, 3, 3), (3, 3, 3)),
        lambda: torch.randn(64, 4) @ torch.randn(4, 64),
        lambda: torch.randn(1024, 80) @ torch.randn(80, 1024) / 9,
        lambda: torch.randn(2000, 250) @ torch.randn(250, 300) @ torch.randn(300, 300),
        lambda: (torch.randn(128, 100) @ torch.randn(100, 256 * 9)).view(128, 256, 3, 3),
        lambda: torch.randn(4, 128, 90) @ torch.randn(4, 90, 128),
        _symmetric,
    ],
    ids=[
        "square",
        "tall",
        "wide",
        "by blocks",
        "by experts",
        "rows of length one",
        "columns of length one",
        "vectors of length one",
        "length one as a whole",
        "rows that sum to one",
        "standardised",
        "low rank",
        "a rank above the vectors looked at",
        "a rank of 250",
        "low rank of a convolution",
        "low rank of each expert",
        "symmetric",
    ],
)
def test_a_parameter_may_be_related_to_itself(make: Callable[[], torch.Tensor]) -> None:
    assert _related(lambda: _Weights(w=make(), free=torch.randn(16, 16))) == {"w"}


@pytest.mark.parametrize("dimension", [0, 1, None], ids=["rows", "columns", "all"])
def test_a_weight_norm_begins_with_the_lengths_that_there_are(dimension: int | None) -> None:
    found = _related(lambda: parametrizations.weight_norm(nn.Conv2d(8, 16, 3), dim=dimension))
    assert found == {f"parametrizations.weight.original{number}" for number in range(2)}


def test_layers_may_begin_alike() -> None:
    def pair() -> nn.Module:
        one = nn.Linear(8, 4)
        return nn.ModuleList([one, copy.deepcopy(one), nn.Linear(8, 4)])

    assert _related(pair) == {"0.weight", "0.bias", "1.weight", "1.bias"}


@pytest.mark.parametrize("kept_as", ["frozen", "buffer", "transposed buffer"])
def test_a_copy_that_is_not_trained_is_related_to_its_original(kept_as: str) -> None:
    def pair() -> nn.Module:
        model = nn.ModuleDict({"online": nn.Linear(8, 4), "other": nn.Linear(8, 4)})
        copied = copy.deepcopy(model["online"].weight)
        if kept_as == "frozen":
            model["target"] = _Weights(w=copied).requires_grad_(requires_grad=False)
        else:
            model["target"] = nn.Module()
            turned = copied.detach().t().contiguous() if kept_as == "transposed buffer" else copied.detach()
            model["target"].register_buffer("w", turned)
        return model

    assert _related(pair) == {"online.weight", "target.w"}


def test_a_view_of_a_parameter_and_copies_of_what_is_frozen_are_no_copies_of_it() -> None:
    def make() -> nn.Module:
        model = _Weights(w=torch.randn(8, 4), first=torch.randn(8, 4))
        model.get_parameter("first").requires_grad_(requires_grad=False)
        model.register_buffer("view", model.get_parameter("w").detach().view(32))
        model.register_buffer("second", model.get_parameter("first").detach().clone())
        return model

    assert not _related(make)


def test_a_weight_may_begin_as_another_one_transposed() -> None:
    def pair() -> nn.Module:
        weight = torch.randn(8, 4)
        return _Weights(there=weight, back=-weight.t().clone(), other=torch.randn(8, 4))

    assert _related(pair) == {"there", "back"}


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(nn.Linear(1, 1), nn.Linear(2, 2), nn.Linear(512, 64)),
        lambda: nn.Sequential(nn.Conv1d(3, 5, 1), nn.Conv2d(2, 2, 1), nn.Conv2d(16, 32, 3)),
        lambda: nn.LSTM(16, 16, num_layers=2, bidirectional=True),
        lambda: nn.MultiheadAttention(64, 4),
        lambda: nn.Embedding(100, 16, padding_idx=0),
        lambda: _Weights(w=nn.init.xavier_uniform_(torch.empty(256, 256)), scalar=torch.randn(())),
        lambda: _Weights(w=nn.init.trunc_normal_(torch.empty(256, 256)), experts=torch.randn(8, 64, 64)),
        lambda: _Weights(w=torch.randn(2048, 1024), empty=torch.randn(0, 4)),
        lambda: _Weights(w=torch.randn(256, 256), wide=torch.rand(8, 2048), tall=torch.rand(2048, 8)),
        lambda: _Weights(
            w=nn.init.sparse_(torch.empty(256, 256), 0.9), block=torch.block_diag(*torch.randn(4, 99, 99))
        ),
    ],
    ids=[
        "linear",
        "convolutions",
        "lstm",
        "attention",
        "embedding",
        "xavier",
        "truncated",
        "large",
        "of any rank",
        "sparse",
    ],
)
def test_what_is_drawn_freely_is_in_no_relation(make: Callable[[], nn.Module]) -> None:
    assert not _related(make)


def test_chance_is_told_by_a_third_model() -> None:
    made = iter([torch.ones(1), torch.ones(1), torch.full((1,), 2.0)])
    models = [_Weights(w=value) for value in made]
    assert related_of(models[0], models[1], lambda: models[1], ()) == ("w",)
    assert related_of(models[0], models[1], lambda: models[2], ()) == ()


def test_what_is_not_trained_is_in_no_relation() -> None:
    def make() -> nn.Module:
        model = _Weights(w=_orthogonal(16, 16))
        return model.requires_grad_(requires_grad=False)

    assert not _related(make)
