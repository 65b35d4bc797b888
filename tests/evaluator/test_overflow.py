"""Which of a reference's elements that are not finite might have been."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from evaluator.judge.overflow import OverflowWatch, undetermined_where_lost

_LARGE = 1e4


def _logsumexp(x: torch.Tensor) -> torch.Tensor:
    return torch.log(torch.exp(x).sum())


def _softmax(x: torch.Tensor) -> torch.Tensor:
    scores = torch.exp(x)
    return scores / scores.sum()


def _tanh(x: torch.Tensor) -> torch.Tensor:
    return (torch.exp(x) - torch.exp(-x)) / (torch.exp(x) + torch.exp(-x))


def _difference_of_powers(x: torch.Tensor) -> torch.Tensor:
    return (x**100 - x.square().pow(50)) * 0.0


@pytest.mark.parametrize("formula", [_logsumexp, _softmax, _tanh, _difference_of_powers])
def test_what_overflows_on_the_way_is_lost(formula: Callable[[torch.Tensor], torch.Tensor]) -> None:
    assert _is_lost(formula, [1.0, _LARGE])
    assert not _is_lost(formula, [1.0, -2.0])


@pytest.mark.parametrize(
    ("formula", "values"),
    [
        (lambda x: 2 * torch.exp(x) + 1, [1.0, _LARGE]),  # infinite, and no finite number is nearer
        (torch.log, [1.0, 0.0]),
        (lambda x: 1 / torch.log(x), [1.0, -1.0]),
        (lambda x: torch.tanh(x.pow(-1.0)), [1.0, 0.0]),
        (lambda x: torch.softmax(x.masked_fill(x < 0, -torch.inf), 0), [1.0, -1.0]),
        (lambda x: x / x, [_LARGE, 0.0]),
        (lambda x: 1 / (1 + torch.exp(-x)), [-_LARGE, 1.0]),  # overflows, and comes to the right number
    ],
)
def test_what_a_function_is_where_it_is_not_finite_is_not_lost(
    formula: Callable[[torch.Tensor], torch.Tensor], values: list[float]
) -> None:
    assert not _is_lost(formula, values)


def test_only_what_is_finite_in_neither_is_left_undetermined() -> None:
    own = torch.tensor([1.0, torch.inf, torch.nan, torch.inf])
    expected = torch.tensor([1.0, 2.0, torch.nan, torch.inf], dtype=torch.float64)
    assert undetermined_where_lost(own, expected).tolist() == [1.0, torch.inf, 0.0, 0.0]


def _is_lost(formula: Callable[[torch.Tensor], torch.Tensor], values: list[float]) -> bool:
    with OverflowWatch() as watch:
        formula(torch.tensor(values, dtype=torch.float64))
    return bool(watch.lost)
