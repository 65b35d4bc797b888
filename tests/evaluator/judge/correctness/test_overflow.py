"""Which elements a reference loses because an intermediate number is too large."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from evaluator.judge.correctness.overflow import Saturating, undetermined_where_lost

Formula = Callable[[torch.Tensor], torch.Tensor]
_INF = math.inf


def _softmax(x: torch.Tensor) -> torch.Tensor:
    scores = torch.exp(x)
    return scores / scores.sum()


def _softmax_in_place(x: torch.Tensor) -> torch.Tensor:
    scores = x.clone().exp_()
    return scores.div_(scores.sum())


def _tanh(x: torch.Tensor) -> torch.Tensor:
    return (torch.exp(x) - torch.exp(-x)) / (torch.exp(x) + torch.exp(-x))


def _softmax_of_masked(x: torch.Tensor) -> torch.Tensor:
    return _softmax(x + torch.tensor([0.0, -_INF, 0.0], dtype=torch.float32))


@pytest.mark.parametrize(
    ("formula", "values", "lost"),
    [
        (_softmax, [1.0, 1e4], [False, True]),  # the first is 0 in any formula
        (_softmax_in_place, [1.0, 1e4], [False, True]),
        (_softmax_of_masked, [1.0, 0.0, 1e4], [False, False, True]),
        (_tanh, [1.0, 1e4, -1e4], [False, True, True]),
        (lambda x: torch.log(1 + torch.exp(x)), [1.0, 1e4, -1e4], [False, True, False]),
        (lambda x: torch.log(torch.exp(x).sum(dim=-1, keepdim=True)), [1.0, 1e4], [True]),
        (lambda x: x**100 / (x**100 + 1), [0.0, 1e4], [False, True]),
        (lambda x: torch.log(torch.softmax(x, 0)), [1.0, 1e4], [True, False]),
        (lambda x: torch.log(_softmax(x)), [1.0, 1e4], [True, True]),
        (lambda x: torch.log(torch.sigmoid(x)), [1.0, -1e4], [False, True]),
        (lambda x: torch.exp(-x) / torch.exp(-x).sum(), [1e4, 1.2e4], [True, True]),
        (lambda x: torch.log(torch.exp(-x.square())), [1.0, 1e2], [False, True]),
        (lambda x: (torch.exp(x) @ torch.tensor([1e5, -1e5], dtype=x.dtype)) / torch.exp(x).sum(), [1e4, 1e4], [True]),
        (lambda x: x / torch.sqrt((x * 1e300).square().sum()), [1.0, 1e4], [False, False]),
    ],
)
def test_an_element_is_lost_where_a_number_before_it_overflows(
    formula: Formula, values: list[float], lost: list[bool]
) -> None:
    assert _lost(formula, values) == lost


@pytest.mark.parametrize(
    ("formula", "values"),
    [
        (lambda x: 2 * torch.exp(x) + 1, [1.0, 1e4]),  # infinite, and no finite number is nearer
        (lambda x: (torch.exp(x) + torch.exp(-x)) / 2, [1.0, 1e4]),
        (lambda x: torch.exp(x) ** 2, [1.0, 1e4]),
        (torch.log, [1.0, 0.0, -1.0]),
        (lambda x: torch.log(x * 0.5), [1.0, 0.0]),
        (lambda x: torch.log(torch.relu(x)), [1.0, -1.0]),
        (lambda x: torch.log(x / 1e4), [1.0, 0.0]),
        (lambda x: torch.log(torch.softmax(x.masked_fill(x < 0, -_INF), 0)), [1.0, -1.0]),
        (lambda x: 1 / torch.exp(-x), [1.0, 1e4]),
        (lambda x: x.pow(-1.0), [1.0, 0.0]),
        (lambda x: torch.pow(0.0, x), [1.0, -1.0]),
        (lambda x: 1 / (torch.exp(x) - 1), [0.0, 1e4]),  # a pole beside what overflows
        (lambda x: torch.sqrt(torch.exp(x) - 5), [0.0, 1e4]),
        (lambda x: (x + torch.ones(2) * -_INF) / 8, [1.0, 1e4]),
        (lambda x: (x + torch.tensor([0.0, -_INF], dtype=torch.float32)) / 8, [1.0, 1e4]),
        (lambda x: torch.cat([_softmax(x) * 0, torch.exp(x).masked_fill(x > 0, -_INF)])[2:], [1.0, 1e4]),
    ],
)
def test_an_infinity_a_mask_a_pole_and_a_result_that_is_none_stay(formula: Formula, values: list[float]) -> None:
    assert not any(_lost(formula, values))


def test_a_gradient_is_lost_where_its_output_is_not() -> None:
    """That of a sigmoid by its plain formula: infinity divided by infinity."""
    expected, saturated = _gradient(), None
    with Saturating():
        saturated = _gradient()
    assert expected.isnan().tolist() == [False, True]
    assert undetermined_where_lost(expected.float(), expected, saturated).tolist() == [expected[0].float(), 0.0]


def test_only_an_element_that_is_finite_in_neither_precision_is_lost() -> None:
    own = torch.tensor([1.0, _INF, torch.nan, _INF, _INF])
    expected = torch.tensor([1.0, 2.0, torch.nan, _INF, _INF], dtype=torch.float64)
    saturated = torch.tensor([1.0, 2.0, 3.0, 1e300, 4.0], dtype=torch.float64)
    assert undetermined_where_lost(own, expected, saturated).tolist() == [1.0, _INF, 0.0, _INF, 0.0]


@pytest.mark.parametrize(
    "formula",
    [
        lambda x: torch.sparse.sum(x.reshape(1, -1).to_sparse()) + torch.exp(x),
        lambda x: torch.view_as_real(torch.exp(torch.complex(x, x))),
        lambda x: torch.exp(x).to(torch.float8_e4m3fn).to(torch.float64),
        lambda x: torch.exp(x[:0]),
        lambda x: torch.nested.to_padded_tensor(torch.nested.nested_tensor([x]) * 2.0, 0.0),
        lambda x: torch.exp(x, out=torch.full_like(x, torch.nan)),
    ],
)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_operators_on_tensors_of_every_kind_run_as_they_are(formula: Formula) -> None:
    given = torch.tensor([1.0, -2.0], dtype=torch.float64)
    expected = formula(given)
    with Saturating():
        assert torch.equal(formula(given), expected)


def _gradient() -> torch.Tensor:
    x = torch.tensor([1.0, -1e4], dtype=torch.float64, requires_grad=True)
    (1 / (1 + torch.exp(-x))).sum().backward()
    assert x.grad is not None
    return x.grad


def _lost(formula: Formula, values: list[float]) -> list[bool]:
    given = torch.tensor(values, dtype=torch.float64)
    expected = formula(given)
    own = expected.float()
    with Saturating():
        saturated = formula(given)
    found = undetermined_where_lost(own, expected, saturated).isfinite() & ~own.isfinite()
    return [bool(each) for each in found.reshape(-1)]
