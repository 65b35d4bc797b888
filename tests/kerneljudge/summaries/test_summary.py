"""Summaries: against figures computed by hand, and against KernelBench's own formulas."""

from __future__ import annotations

import itertools
import json
import math
import random

import pytest

from evaluator.evaluation import SpeedupStatus, Verdict
from kerneljudge.summaries.shares import share_interval
from kerneljudge.summaries.summary import (
    THRESHOLDS,
    GradedCandidate,
    ProblemFacts,
    fast_p,
    geometric_mean,
    pass_at_k,
    summarise,
)

PASSED, WRONG, REFUSED = Verdict.PASSED, Verdict.WRONG_OUTPUT, Verdict.COMPILE_ERROR


def kernelbench_fast_p(correct: list[bool], baseline: list[float], actual: list[float], n: int, p: float) -> float:
    """``score.fastp``: the share of ``n`` that is correct with a speedup strictly above ``p``."""
    speedups = [b / a for ok, b, a in zip(correct, baseline, actual, strict=True) if ok]
    return sum(speedup > p for speedup in speedups) / n if n else 0.0


def kernelbench_geometric_mean(correct: list[bool], baseline: list[float], actual: list[float]) -> float:
    """``score.geometric_mean_speed_ratio_correct_only``."""
    speedups = [b / a for ok, b, a in zip(correct, baseline, actual, strict=True) if ok]
    return math.prod(speedups) ** (1 / len(speedups)) if speedups else 0.0


def kernelbench_pass_at_k(n: int, c: int, k: int) -> float:
    """``eval_from_generations.calculate_pass_at_k``: 1 - prod(1 - k / i), i = n - c + 1 .. n."""
    if n - c < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / i for i in range(n - c + 1, n + 1))


def test_a_set_of_one_candidate_a_problem_is_as_computed_by_hand() -> None:
    candidates = [
        GradedCandidate("a", PASSED, 2.0, "A"),
        GradedCandidate("b", PASSED, 0.5, "B"),
        GradedCandidate("c", WRONG, None, "C"),
        GradedCandidate("d", REFUSED, None, "D"),
        GradedCandidate("e", None, None, "E"),
    ]
    facts = {"a": ProblemFacts(1, ("x",)), "b": ProblemFacts(1, ("x", "y")), "c": ProblemFacts(2)}
    summary = summarise(candidates, facts)
    overall = summary.overall
    assert (overall.problems, overall.candidates, overall.ungraded) == (5, 4, 1)
    assert (overall.compiled, overall.correct, overall.solved) == (3, 2, 2)
    # Strictly above: 2.0 is not above 2, 0.5 not above 0.5.
    assert overall.fast_p == {0.0: 0.4, 0.5: 0.2, 0.8: 0.2, 1.0: 0.2, 1.5: 0.2, 2.0: 0.0}
    assert overall.geometric_mean == pytest.approx(1.0)
    assert summary.verdicts == {PASSED: 2, WRONG: 1, REFUSED: 1}
    assert {level: (f.problems, f.correct) for level, f in summary.by_level.items()} == {1: (2, 2), 2: (1, 0)}
    assert {tag: f.fast_p[1.0] for tag, f in summary.by_tag.items()} == {"x": 0.5, "y": 0.0}
    assert [(best.problem, best.name, best.speedup) for best in summary.best][:3] == [
        ("a", "A", 2.0),
        ("b", "B", 0.5),
        ("c", "", None),
    ]


def test_missing_problems_of_a_named_list_are_failures_and_others_do_not_count() -> None:
    summary = summarise(
        [GradedCandidate("a", PASSED, 3.0), GradedCandidate("z", PASSED, 9.0)], problems=["a", "b", "c", "a"]
    )
    assert (summary.overall.problems, summary.overall.fast_p[2.0], summary.overall.correct) == (3, 1 / 3, 1)
    assert summary.missing == ("b", "c")
    assert next(each.value for each in summary.pass_at_k if (each.k, each.p) == (1, 0.0)) == pytest.approx(1 / 3)


def test_of_several_candidates_the_best_counts_and_pass_at_k_tells_the_chance() -> None:
    group = [GradedCandidate("a", PASSED, s) for s in (0.9, 1.2, 4.0)] + [GradedCandidate("a", WRONG)]
    other = [GradedCandidate("b", WRONG)] * 3 + [GradedCandidate("b", PASSED, 1.1)]
    summary = summarise([*group, *other])
    assert summary.overall.fast_p[1.5] == 0.5
    found = {(each.k, each.p): each.value for each in summary.pass_at_k}
    # a: 3 of 4, b: 1 of 4; of two drawn, none is right with chance 0 and 1/2.
    assert found[1, 0.0] == pytest.approx((3 / 4 + 1 / 4) / 2)
    assert found[2, 0.0] == pytest.approx((1 + 1 / 2) / 2)
    # Above 1: a 2 of 4, b 1 of 4.
    assert found[2, 1.0] == pytest.approx(((1 - 1 / 6) + 1 / 2) / 2)
    assert {k for k, _ in found} == {1, 2}
    assert summary.overall.best_geometric_mean == pytest.approx(math.sqrt(4.0 * 1.1))


def test_k_goes_as_far_as_every_problem_has_candidates() -> None:
    assert {
        each.k for each in summarise([GradedCandidate("a", WRONG)] * 10 + [GradedCandidate("b", WRONG)] * 5).pass_at_k
    } == {1, 2, 5}
    assert summarise([GradedCandidate("a", None)]).pass_at_k == ()


@pytest.mark.parametrize("seed", range(5))
def test_the_figures_are_kernelbenchs_where_a_problem_has_one_candidate(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - no secret
    n = 40
    correct = [draw.random() < 0.5 for _ in range(n)]
    baseline = [draw.uniform(0.1, 3.0) for _ in range(n)]
    actual = [draw.uniform(0.1, 3.0) for _ in range(n)]
    candidates = [
        GradedCandidate(str(i), PASSED if correct[i] else WRONG, baseline[i] / actual[i] if correct[i] else None)
        for i in range(n)
    ]
    overall = summarise(candidates).overall
    for p in THRESHOLDS:
        assert overall.fast_p[p] == pytest.approx(kernelbench_fast_p(correct, baseline, actual, n, p))
    assert overall.geometric_mean == pytest.approx(kernelbench_geometric_mean(correct, baseline, actual))


def test_pass_at_k_is_the_share_of_draws_with_a_correct_one_and_kernelbenchs_product() -> None:
    for n, c in itertools.product(range(1, 8), range(8)):
        if c > n:
            continue
        for k in range(1, n + 1):
            draws = list(itertools.combinations([1] * c + [0] * (n - c), k))
            assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws))
            assert pass_at_k(n, c, k) == pytest.approx(kernelbench_pass_at_k(n, c, k))


@pytest.mark.parametrize(("n", "k"), [(0, 1), (3, 4), (3, 0)])
def test_pass_at_k_needs_as_many_candidates(n: int, k: int) -> None:
    with pytest.raises(ValueError, match="needs at least"):
        pass_at_k(n, 0, k)


def test_what_is_no_speedup_is_above_nothing_and_in_no_mean() -> None:
    odd = [GradedCandidate(str(i), PASSED, s) for i, s in enumerate((math.nan, None, math.inf, 0.0, -1.0))]
    overall = summarise(odd).overall
    assert (overall.correct, overall.fast_p[0.0], overall.fast_p[0.5]) == (5, 1.0, 0.2)
    assert overall.geometric_mean is None
    assert fast_p([], 0, 0.0) == 0.0
    assert geometric_mean([1e300] * 100) == pytest.approx(1e300)


def test_nothing_is_summarised_without_a_fault() -> None:
    summary = summarise([])
    assert (summary.overall.problems, summary.overall.fast_p[0.0], summary.best) == (0, 0.0, ())
    assert json.loads(json.dumps(summary.to_dict()))["overall"]["geometric_mean"] is None


def test_faster_means_the_whole_interval() -> None:
    likely = GradedCandidate("a", Verdict.PASSED, 1.3, certain_speedup=0.9)
    certain = GradedCandidate("a", Verdict.PASSED, 1.2, "certain", certain_speedup=1.1)
    assert (likely.faster_than(1.0), certain.faster_than(1.0), likely.faster_than(0.8)) == (False, True, True)
    (best,) = summarise([likely, certain]).best
    assert (best.name, best.speedup, best.certain_speedup) == ("certain", 1.2, 1.1)


def test_what_has_no_figure_is_counted_apart() -> None:
    found = summarise(
        [
            GradedCandidate("a", Verdict.PASSED, speedup_status=SpeedupStatus.UNSETTLED),
            GradedCandidate("b", Verdict.PASSED, speedup_status=SpeedupStatus.NOT_VETTED),
            GradedCandidate("c", Verdict.PASSED, 4.0),
            GradedCandidate("d", Verdict.WRONG_OUTPUT, speedup_status=None),
            GradedCandidate("e", Verdict.PASSED, speedup_status=SpeedupStatus.WEIGHTS_FIXED),
        ]
    ).overall
    assert (found.correct, found.unsettled, found.not_vetted, found.weights_fixed) == (4, 1, 1, 1)
    assert (
        summarise([GradedCandidate("a", Verdict.PASSED), GradedCandidate("a", Verdict.PASSED, 1.5)]).overall.untimed
        == 1
    )
    assert (found.geometric_mean, found.fast_p[0.0], found.fast_p[1.0]) == (pytest.approx(4.0), 0.8, 0.2)


def test_shares_and_chances_have_intervals_over_all_problems() -> None:
    candidates = [GradedCandidate(str(number), PASSED if number < 6 else WRONG, 2.0) for number in range(10)]
    for problems, count in ((None, 10), ([str(number) for number in range(20)], 20)):
        summary = summarise(candidates, {"1": ProblemFacts(1, ("x",))}, problems)
        expected = share_interval([1.0] * 6 + [0.0] * (count - 6))
        assert summary.overall.fast_p_interval[1.0] == expected
        assert set(summary.overall.fast_p_interval) == set(THRESHOLDS)
        assert next(each.interval for each in summary.pass_at_k if each.p == 1.0) == expected
        assert summary.by_tag["x"].fast_p_interval[1.0] == summary.by_level[1].fast_p_interval[1.0]
    assert summarise([]).overall.fast_p_interval == {}


def test_two_summaries_of_the_same_results_agree() -> None:
    candidates = [
        GradedCandidate(str(number % 7), PASSED if number % 3 else WRONG, 0.1 * number) for number in range(70)
    ]
    assert json.dumps(summarise(candidates).to_dict()) == json.dumps(summarise(candidates).to_dict())
