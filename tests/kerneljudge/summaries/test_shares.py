"""Intervals of shares: against figures from the literature, and by simulation against their level."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from kerneljudge.summaries.shares import difference_interval, share_interval
from kerneljudge.summaries.summary import pass_at_k

Batch = list[float]


@pytest.mark.parametrize(
    ("reached", "count", "low", "high"),
    [
        # Newcombe 1998 (Statistics in Medicine 17, 857-872), table I, method 3: Wilson's interval.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_of_plain_shares_it_is_wilsons_interval(reached: int, count: int, low: float, high: float) -> None:
    interval = share_interval([1.0] * reached + [0.0] * (count - reached))
    assert interval is not None
    assert (interval.low, interval.high, interval.level) == (
        pytest.approx(low, abs=5e-5),
        pytest.approx(high, abs=5e-5),
        0.95,
    )


def test_the_ends_stay_within_0_and_1_and_around_the_share() -> None:
    for count in (1, 2, 3, 10, 250):
        for value in (0.0, 1e-12, 0.3, 1 - 1e-12, 1.0):
            interval = share_interval([value] * count)
            assert interval is not None
            assert 0 <= interval.low <= value <= interval.high <= 1
            assert interval.high - interval.low > 0


def test_values_in_between_are_worth_more_problems_and_never_fewer() -> None:
    def width(values: Sequence[float]) -> float:
        interval = share_interval(values)
        assert interval is not None
        return interval.high - interval.low

    assert width([0.4, 0.6] * 25) < width([0.0, 1.0] * 25)
    assert width([0.2, 0.8] * 2) <= width([0.0, 1.0] * 2)


def test_no_problem_has_no_interval() -> None:
    assert share_interval([]) is None
    assert difference_interval([], []) is None


def chances(draw: random.Random, problems: int, candidates: int, k: int, shape: tuple[float, float]) -> Batch:
    """pass@k of problems that are drawn anew, of candidates that are drawn anew."""
    return [drawn(draw, draw.betavariate(*shape), candidates, k) for _ in range(problems)]


def drawn(draw: random.Random, rate: float, candidates: int, k: int) -> float:
    return pass_at_k(candidates, sum(draw.random() < rate for _ in range(candidates)), k)


def true_chance(k: int, shape: tuple[float, float]) -> float:
    """The mean of 1 - (1 - q)^k over a beta distribution."""
    a, b = shape
    return 1 - math.exp(math.lgamma(b + k) - math.lgamma(b) + math.lgamma(a + b) - math.lgamma(a + b + k))


@pytest.mark.parametrize(
    ("problems", "candidates", "k", "shape"),
    [
        (20, 1, 1, (1.0, 1.0)),
        (20, 10, 1, (0.3, 0.7)),
        (20, 10, 5, (0.3, 1.5)),
        (60, 8, 1, (0.2, 2.0)),
        (60, 10, 1, (20.0, 20.0)),
        (100, 20, 10, (0.1, 1.0)),
    ],
)
def test_intervals_of_pass_at_k_hold_the_true_chance_as_often_as_they_say(
    problems: int, candidates: int, k: int, shape: tuple[float, float]
) -> None:
    draw = random.Random(f"{problems} {candidates} {k} {shape}")  # noqa: S311 - a simulation
    truth, repetitions, held = true_chance(k, shape), 600, 0
    for _ in range(repetitions):
        interval = share_interval(chances(draw, problems, candidates, k, shape))
        assert interval is not None
        held += interval.low <= truth <= interval.high
    # Four standard errors of a share of 600 below 0.95 are 0.036. Few problems have wider intervals than needed.
    assert held / repetitions >= 0.914
    assert problems < 100 or held / repetitions <= 0.986


@pytest.mark.parametrize("problems", [5, 20, 100])
@pytest.mark.parametrize("fast_p", [True, False], ids=["fast_p", "pass@1"])
def test_intervals_of_differences_hold_the_true_difference_as_often_as_they_say(problems: int, fast_p: bool) -> None:
    draw = random.Random(f"{problems} {fast_p}")  # noqa: S311 - a simulation
    candidates, repetitions, held, apart = 1 if fast_p else 10, 400, 0, 0
    # The second batch is right at a problem with chance q^2 where the first is with q, which is 1/2 and 1/3 on average.
    for _ in range(repetitions):
        rates = [draw.random() for _ in range(problems)]
        ours = [drawn(draw, rate, candidates, 1) for rate in rates]
        theirs = [drawn(draw, rate**2, candidates, 1) for rate in rates]
        interval = difference_interval(ours, theirs)
        assert interval is not None
        held += interval.low <= 1 / 2 - 1 / 3 <= interval.high
        apart += interval.low > 0
    assert held / repetitions >= 0.905
    # With a hundred problems and ten candidates of each, the difference is nearly always found.
    assert problems < 100 or fast_p or apart / repetitions > 0.9


def test_batches_of_the_same_model_are_seldom_found_apart() -> None:
    draw = random.Random("the same")  # noqa: S311 - a simulation
    apart = 0
    for _ in range(400):
        rates = [draw.betavariate(0.3, 0.7) for _ in range(40)]
        interval = difference_interval(*([drawn(draw, rate, 4, 1) for rate in rates] for _ in range(2)))
        assert interval is not None
        assert interval.low <= interval.high
        apart += not interval.low <= 0 <= interval.high
    # Four standard errors of a share of 400 above 0.05.
    assert apart / 400 <= 0.094


def test_pairing_narrows_the_interval_of_batches_that_agree() -> None:
    ours = [1.0] * 20 + [0.0] * 20
    agreeing, crossing = [1.0] * 18 + [0.0] * 22, [0.0] * 22 + [1.0] * 18

    def width(theirs: Sequence[float]) -> float:
        interval = difference_interval(ours, theirs)
        assert interval is not None
        return interval.high - interval.low

    assert 0 < width(agreeing) < 0.7 * width(crossing)


def test_pairs_of_other_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="1 and 2"):
        difference_interval([1.0], [1.0, 0.0])
