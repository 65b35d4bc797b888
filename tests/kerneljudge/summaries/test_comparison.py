"""Two sets of candidates, compared on the problems of both."""

from __future__ import annotations

import pytest

from evaluator.evaluation import Verdict
from kerneljudge.summaries.comparison import Comparison, compare
from kerneljudge.summaries.shares import difference_interval
from kerneljudge.summaries.summary import THRESHOLDS, GradedCandidate

PASSED, WRONG = Verdict.PASSED, Verdict.WRONG_OUTPUT


def fast(comparison: Comparison, p: float) -> tuple[float, float, float]:
    (found,) = [each for each in comparison.fast_p if each.p == p]
    return found.first, found.second, found.difference


def test_only_problems_of_both_count_and_the_others_are_named() -> None:
    first = [
        GradedCandidate("a", PASSED, 2.0),
        GradedCandidate("b", PASSED, 1.2),
        GradedCandidate("c", WRONG),
        GradedCandidate("x", PASSED, 9.0),
    ]
    second = [
        GradedCandidate("a", PASSED, 1.1),
        GradedCandidate("b", WRONG),
        GradedCandidate("c", WRONG),
        GradedCandidate("y", WRONG),
    ]
    found = compare(first, second)
    assert (found.problems, found.first_only, found.second_only) == (("a", "b", "c"), ("x",), ("y",))
    assert (found.candidates, found.ungraded, found.unequal) == ((3, 3), (0, 0), 0)
    assert fast(found, 0.0) == pytest.approx((2 / 3, 1 / 3, 1 / 3))
    assert fast(found, 1.5) == pytest.approx((1 / 3, 0.0, 1 / 3))
    assert [each.p for each in found.fast_p] == list(THRESHOLDS)
    at_one = next(each for each in found.fast_p if each.p == 1.0)
    assert (at_one.both, at_one.first_only, at_one.second_only, at_one.neither) == (1, 1, 0, 1)
    assert at_one.interval == difference_interval([1.0, 1.0, 0.0], [1.0, 0.0, 0.0])


def test_the_other_way_round_every_difference_is_the_opposite() -> None:
    first = [
        GradedCandidate("a", PASSED, 2.0),
        GradedCandidate("b", WRONG),
        GradedCandidate("b", PASSED, 1.3),
        GradedCandidate("a", WRONG),
    ]
    second = [
        GradedCandidate("a", PASSED, 0.9),
        GradedCandidate("b", WRONG),
        GradedCandidate("b", WRONG),
        GradedCandidate("a", PASSED, 3.0),
    ]
    there, back = compare(first, second), compare(second, first)
    for one, other in zip((*there.fast_p, *there.pass_at_k), (*back.fast_p, *back.pass_at_k), strict=True):
        assert one.difference == pytest.approx(-other.difference)
        assert (one.interval.low, one.interval.high) == pytest.approx((-other.interval.high, -other.interval.low))


def test_pass_at_k_goes_as_far_as_both_sides_have_candidates() -> None:
    many = [GradedCandidate("a", PASSED, 2.0)] * 10 + [GradedCandidate("b", WRONG)] * 10
    some = [GradedCandidate("a", PASSED, 2.0), *[GradedCandidate("a", WRONG)] * 4, *[GradedCandidate("b", WRONG)] * 10]
    found = compare(many, some)
    assert {each.k for each in found.pass_at_k} == {1, 2, 5}
    assert found.unequal == 1
    (chance,) = [each for each in found.pass_at_k if (each.k, each.p) == (2, 1.0)]
    assert (chance.first, chance.second) == pytest.approx((0.5, 0.2))


def test_a_problem_that_one_set_has_not_graded_is_no_failure_of_it() -> None:
    first = [GradedCandidate("a", None), GradedCandidate("b", PASSED, 2.0), GradedCandidate("b", None)]
    found = compare(first, [GradedCandidate("a", PASSED, 2.0), GradedCandidate("b", WRONG)])
    assert (found.problems, found.waiting) == (("b",), ("a",))
    assert (found.candidates, found.ungraded, found.unequal) == ((1, 2), (2, 0), 1)
    assert fast(found, 1.0) == (1.0, 0.0, 1.0)
    assert [(each.first, each.second) for each in found.pass_at_k if each.p == 0.0] == [(1.0, 0.0)]


def test_nothing_is_certain_about_batches_of_which_one_is_under_way() -> None:
    passed = [GradedCandidate(str(number), PASSED, 2.0) for number in range(20)]
    found = compare(passed, [*passed[:5], *(GradedCandidate(each.problem, None) for each in passed[5:])])
    assert len(found.waiting) == 15
    assert all(each.difference == 0 for each in (*found.fast_p, *found.pass_at_k))


@pytest.mark.parametrize(
    ("first", "second"), [([], []), ([GradedCandidate("a", PASSED)], [GradedCandidate("b", PASSED)])]
)
def test_without_a_common_problem_there_is_no_difference(
    first: list[GradedCandidate], second: list[GradedCandidate]
) -> None:
    found = compare(first, second)
    assert (found.problems, found.fast_p, found.pass_at_k) == ((), (), ())


def test_a_set_beside_itself_has_no_difference() -> None:
    candidates = [GradedCandidate(str(number), PASSED if number % 3 else WRONG, 1.5) for number in range(30)]
    for each in compare(candidates, candidates).fast_p:
        assert each.difference == 0
        assert each.interval.low <= 0 <= each.interval.high
