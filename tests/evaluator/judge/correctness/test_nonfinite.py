"""What is compared where the reference is not finite: classes, and nothing where nothing is known."""

from __future__ import annotations

import math

import pytest
import torch

from evaluator.judge.correctness.compare import SliceComparison, Tally, compare_slice, compare_unwidened
from evaluator.judge.correctness.nonfinite import mask_nonfinite
from evaluator.problems.problem import Tolerance

_TOLERANCE = Tolerance(atol=1e-4, rtol=1e-4)
_ODD = (math.nan, math.inf, -math.inf)


def _values() -> torch.Tensor:
    return torch.linspace(-3.0, 3.0, 1000, dtype=torch.float64)


def _compare(actual: torch.Tensor, expected: torch.Tensor, own: torch.Tensor | None = None) -> SliceComparison:
    return compare_slice(actual.float(), expected, (expected if own is None else own).float(), _TOLERANCE)


@pytest.mark.parametrize("right", _ODD)
def test_the_same_class_is_right_and_the_rest_is_compared(right: float) -> None:
    expected = _values()
    expected[:500] = right
    found = _compare(expected, expected)
    assert (found.total, found.right, found.undetermined) == (1000, 1000, 0)
    assert found.conclusive == (500 if math.isnan(right) else 1000)
    actual = expected.clone()
    actual[700] += 0.1
    found = _compare(actual, expected)
    assert found.wrong == 1
    assert found.worst is not None
    assert (found.worst.flat, found.worst.allowed) == (700, pytest.approx(4e-4, rel=0.5))


@pytest.mark.parametrize("right", _ODD)
@pytest.mark.parametrize("given", [*_ODD, 0.0, 3e38])
def test_another_class_is_wrong(right: float, given: float) -> None:
    expected = _values()
    expected[3] = right
    actual = expected.clone()
    actual[3] = given
    found = _compare(actual, expected)
    same = given == right or (math.isnan(given) and math.isnan(right))
    assert found.wrong == (not same)
    if not same:
        tally = Tally("the output", (1000,))
        tally.add(found)
        tally.examine(actual.float(), expected, expected.float(), _TOLERANCE)
        assert not tally.passed
        assert "at [3]" in tally.describe()
        assert tally.evidence is not None
        assert tally.evidence.wrong == 1


def test_what_overflows_in_the_problems_precision_alone_is_left_out_and_nothing_else_is() -> None:
    expected = _values()
    expected[:10] = 1e5
    own = expected.half()
    assert torch.isinf(own[:10]).all()
    for given in (math.inf, 6e4, math.nan, 0.0):
        actual = own.clone()
        actual[:10] = given
        found = compare_slice(actual, expected, own, Tolerance(1e-2, 1e-2))
        assert (found.wrong, found.undetermined, found.conclusive) == (0, 10, 990)
    actual[20] += 1.0
    assert compare_slice(actual, expected, own, Tolerance(1e-2, 1e-2)).wrong == 1


def test_next_to_overflowing_rounding_decides() -> None:
    expected = _values()
    expected[0] = 65510.0
    own = expected.half()
    assert math.isfinite(float(own[0]))
    actual = own.clone()
    actual[0] = math.inf
    assert compare_slice(actual, expected, own, Tolerance(1e-2, 1e-2)).undetermined == 1


def test_where_the_two_precisions_differ_in_class_either_is_right() -> None:
    expected = _values()
    own = expected.clone()
    expected[0], own[0] = math.nan, math.inf
    for given, wrong in ((math.nan, 0), (math.inf, 0), (-math.inf, 1), (0.0, 1)):
        actual = _values()
        actual[0] = given
        assert _compare(actual, expected, own).wrong == wrong


def test_an_infinite_limit_hides_nothing() -> None:
    # The limit of an infinite element would be infinite, and anything within it.
    expected = torch.full((10,), math.inf, dtype=torch.float64)
    assert _compare(torch.zeros(10), expected).wrong == 10


@pytest.mark.parametrize(("exact", "is_right"), [(63500.0, True), (60000.0, False), (-63500.0, False)])
def test_an_infinity_is_right_where_the_limit_reaches_what_rounds_to_it(exact: float, is_right: bool) -> None:
    expected = torch.full((100,), 30000.0, dtype=torch.float64)
    expected[7] = exact
    actual = expected.half()
    actual[7] = math.inf
    found = compare_slice(actual, expected, expected.half(), Tolerance(atol=0.04, rtol=0.02))
    assert found.wrong == (not is_right)
    tally = Tally("the output", (100,))
    tally.add(found)
    tally.examine(actual, expected, expected.half(), Tolerance(atol=0.04, rtol=0.02))
    assert tally.evidence is not None
    assert tally.evidence.describe("the output", "mixed")["wrong"] == (not is_right)
    if found.worst is not None:
        assert found.worst.error == math.inf


def test_an_infinity_of_float64_stays_what_the_candidate_said() -> None:
    expected = torch.full((10,), 2.0, dtype=torch.float64)
    actual = expected.clone()
    actual[3] = math.inf
    found = compare_slice(actual, expected, expected, _TOLERANCE)
    assert found.wrong == 1
    assert found.worst is not None
    assert (found.worst.actual, found.worst.error) == (math.inf, math.inf)
    assert float(actual[3]) == math.inf


def test_where_nothing_is_finite_nothing_is_said() -> None:
    expected = torch.full((10,), 1e30, dtype=torch.float64)
    found = compare_slice(torch.zeros(10).half(), expected, torch.full((10,), math.inf).half(), _TOLERANCE)
    assert (found.right, found.undetermined, found.wrong, found.conclusive) == (0, 10, 0, 0)
    tally = Tally("the output", (10,))
    tally.add(found)
    assert tally.passed
    assert tally.conclusive_share == 0.0


def test_the_usual_comparison_leaves_it_to_the_whole_one() -> None:
    expected = _values()
    expected[5] = math.inf
    assert compare_unwidened(expected.float(), expected, None, _TOLERANCE) is None
    assert compare_unwidened(expected.float(), expected, expected.float(), _TOLERANCE) is None


def test_settling_changes_nothing_where_all_is_finite() -> None:
    expected = _values()
    settled = mask_nonfinite(expected.float(), expected, expected.float())
    assert settled.expected is expected
    assert settled.conclusive_share == 1.0
    assert mask_nonfinite(torch.zeros(0), torch.zeros(0).double(), torch.zeros(0)).conclusive_share == 1.0
