"""Which integers are right besides the reference's own, where they follow from floating-point numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from evaluator.judge.correctness.reference import Reference
from evaluator.judge.correctness.steps import Steps
from evaluator.problems.problem import Problem
from tests.evaluator.verifying import constructed_reference

SOURCE = """\
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("w", torch.linspace(-1.0, 1.0, {columns} * 6).reshape({columns}, 6))

    def forward(self, x):
        return {body}


def get_inputs():
    return [torch.randn(4, {columns})]


def get_init_inputs():
    return []
"""
RTOL = 1e-4


def _reference(body: str, columns: int) -> Reference:
    source = SOURCE.format(body=body, columns=columns)
    return constructed_reference(Problem("steps", "Steps", "Steps.", source, {"smoke": {}}), "smoke")


def _right(body: str, x: torch.Tensor, actual: Any, index: int = 0) -> list[Any]:
    """Which elements of ``actual`` are right for the output ``index`` of the reference with this ``body``."""
    reference = _reference(body, x.shape[-1])
    exact = reference.exact_outputs([x])
    given = torch.as_tensor(actual, dtype=exact[index].dtype)
    steps = Steps(reference, [x], lambda: reference.native_outputs([x]), RTOL, lambda: torch.Generator().manual_seed(1))
    found: list[Any] = (steps.nearest(index, given, exact[index]) == given).tolist()
    return found


def _rows(*rows: Sequence[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float32)


def test_of_equal_numbers_any_index_is_right_and_no_other() -> None:
    x = _rows([1, 5, 5, 0], [3, 3, 3, 3])
    assert _right("x.argmax(1)", x, [2, 3]) == [True, True]
    assert _right("x.argmax(1)", x, [0, 3]) == [False, True]
    assert _right("x.argmax(1)", x, [4, -1]) == [False, False]
    assert _right("x.argmax(1, keepdim=True)", x, [[2], [3]]) == [[True], [True]]
    assert _right("x.argmin()", x, 3) is True
    assert _right("x.argmin()", x, 0) is False


def test_neighbours_of_an_input_that_is_given_exactly_do_not_change_places() -> None:
    x = _rows([1.0, 1.0 + 2.0**-23, 0, 0])
    assert _right("x.argmax(1)", x, [0]) == [False]


def test_what_is_computed_may_be_chosen_where_it_is_within_the_limit() -> None:
    x = _rows([1.0, 1.0 + 2e-6, 0.5, 1.0 - 1e-2])
    assert _right("(x / 3).argmax(1)", x, [0]) == [True]
    assert _right("(x / 3).argmax(1)", x, [3]) == [False]
    assert _right("(x / 3 - 1e9 * (x < 0.9)).argmax(1)", x, [2]) == [False]


@pytest.mark.parametrize("body", ["x.topk(3, 1)[1]", "x.sort(1, descending=True)[1][:, :3]"])
def test_ties_of_several_may_come_in_any_order_but_none_twice(body: str) -> None:
    x = _rows([1, 5, 5, 5, 0])
    assert _right(body, x, [[1, 2, 3]]) == [[True, True, True]]
    assert _right(body, x, [[3, 1, 2]]) == [[True, True, True]]
    assert _right(body, x, [[0, 1, 2]]) == [[False, True, True]]
    if "topk" in body:
        exact = _reference(body, 5).exact_outputs([x])[0].tolist()[0]
        twice = [exact[0], exact[0], exact[2]]
        assert _right(body, x, [twice]) == [[True, False, True]]


def test_a_stable_sort_says_which_of_equal_numbers_comes_first() -> None:
    x = _rows([2, 1, 1, 0])
    assert _right("x.sort(dim=1, stable=True)[1]", x, [[3, 2, 1, 0]]) == [[True, False, False, True]]
    assert _right("x.sort(dim=1)[1]", x, [[3, 2, 1, 0]]) == [[True, True, True, True]]


def test_ties_are_known_behind_what_follows_on_a_choice() -> None:
    x = _rows([1, 5, 5, 0])
    assert _right("x.argmax(1) * 10 + 1", x, [21]) == [True]
    assert _right("x.argmax(1) * 10 + 1", x, [11]) == [True]
    assert _right("x.argmax(1) * 10 + 1", x, [16]) == [False]


def test_rounding_goes_either_way_next_to_a_half_that_was_computed() -> None:
    tenths = torch.tensor([[0.35, 0.85, 0.5, 0.61]])
    body = "torch.round(x * 10).int()"
    assert _right(body, tenths, [[3, 8, 5, 6]]) == [[True] * 4]
    assert _right(body, tenths, [[4, 9, 5, 6]]) == [[True] * 4]
    assert _right(body, tenths, [[5, 7, 4, 7]]) == [[False] * 4]


def test_rounding_is_exact_where_all_numbers_are() -> None:
    x = _rows([0.5, 1.5, 2.5, 3.0])
    assert _right("torch.round(x).long()", x, [[0, 2, 2, 3]]) == [[True] * 4]
    assert _right("torch.round(x).long()", x, [[1, 2, 3, 3]]) == [[False, True, False, True]]
    assert _right("x >= 1.5", x, [[False, False, True, True]]) == [[True, False, True, True]]


def test_a_comparison_of_sums_may_go_either_way_next_to_equality_only() -> None:
    x = _rows([1.0, -1.0, 1e-8, 0.0], [1.0, 2.0, 3.0, 0.0])
    body = "(x / 3 + x.roll(1, 1) / 7).sum(1) > 0"
    exact = _reference(body, 4).exact_outputs([x])[0].tolist()
    assert _right(body, x, [not exact[0], exact[1]]) == [True, True]
    assert _right(body, x, [exact[0], not exact[1]]) == [True, False]


def test_exact_zeros_are_next_to_no_step() -> None:
    x = _rows([-1.0, 2.0, -3.0, 4.0])
    body = "torch.relu(x @ self.w / 3) > 0"
    exact = _reference(body, 4).exact_outputs([x])[0]
    assert _right(body, x, torch.ones_like(exact)) == exact.tolist()


def test_counts_lie_between_those_at_the_ends_of_the_limits() -> None:
    x = _rows([0.3, 0.3, 0.3, 0.9])
    body = "(x / 3 >= 0.1).sum(1)"
    assert [_right(body, x, [count])[0] for count in range(6)] == [False, True, True, True, True, False]


def test_what_no_integer_can_hold_may_become_any() -> None:
    x = _rows([3e9, -3e9, 7.0, float("nan")])
    assert _right("x.int()", x, [[1, 2, 8, 3]]) == [[True, True, False, True]]


def test_integers_have_ties_as_well() -> None:
    assert _right("(x > 0).int().argmax(1)", _rows([0, 1, 1, 0]), [2]) == [True]
    assert _right("(x > 0).int().argmax(1)", _rows([0, 1, 1, 0]), [3]) == [False]
