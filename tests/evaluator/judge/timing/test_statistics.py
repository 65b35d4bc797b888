"""Medians, the speedup and its interval."""

from __future__ import annotations

import math
import random

import pytest

from evaluator.evaluation import Interval
from evaluator.judge.timing.statistics import (
    correlation_factor,
    median_error,
    median_ms,
    separation,
    speedup,
    speedup_interval,
    spread,
    trend,
    widened,
)


def test_speedup_is_baseline_over_candidate() -> None:
    assert speedup([4.0, 2.0, 6.0], [1.0, 2.0, 3.0]) == 2.0


def test_one_outlier_does_not_move_the_speedup() -> None:
    assert speedup([2.0] * 9 + [200.0], [1.0] * 10) == 2.0


def test_interval_of_equal_samples_is_a_point() -> None:
    interval = speedup_interval([2.0] * 10, [1.0] * 10)
    assert (interval.low, interval.high) == (2.0, 2.0)


def test_interval_covers_the_true_ratio_about_as_often_as_it_says() -> None:
    generator = random.Random(7)  # noqa: S311 - no secret
    covered = 0
    for _ in range(60):
        baseline = [generator.gauss(2.0, 0.1) for _ in range(30)]
        candidate = [generator.gauss(1.0, 0.05) for _ in range(30)]
        interval = speedup_interval(baseline, candidate)
        covered += interval.low <= 2.0 <= interval.high
    assert covered >= 50


def test_pairing_keeps_a_common_drift_out_of_the_interval() -> None:
    drift = [1.0 + 0.05 * step for step in range(40)]
    interval = speedup_interval([2.0 * factor for factor in drift], drift)
    assert interval.high - interval.low < 1e-9


def test_interval_is_the_same_for_the_same_samples() -> None:
    samples = [1.0, 1.1, 0.9, 1.3, 1.2]
    assert speedup_interval(samples, samples[::-1]) == speedup_interval(samples, samples[::-1])


def test_independent_errors_add_in_squares() -> None:
    # Logarithms: 0.3 below and 0 above; 0.4 on each side besides, as 1.96 standard deviations.
    wider = widened(Interval(10.0 * math.exp(-0.3), 10.0), 10.0, 0.4 / 1.959964)
    assert (wider.low, wider.high) == (pytest.approx(10.0 * math.exp(-0.5)), pytest.approx(10.0 * math.exp(0.4)))


def test_an_interval_stays_above_zero() -> None:
    assert 0.0 < widened(Interval(0.9, 1.1), 1.0, 2.0).low < 0.1


def _wandering(generator: random.Random, correlation: float, count: int) -> list[float]:
    """Logarithms of what calls take: an autoregressive process, 1 in a hundred as its standard deviation."""
    state, values = generator.gauss(0.0, 1.0), []
    for _ in range(count):
        values.append(0.01 * state)
        state = correlation * state + math.sqrt(1 - correlation**2) * generator.gauss(0.0, 1.0)
    return values


@pytest.mark.parametrize(("correlation", "without"), [(0.0, 0.9), (0.8, 0.7), (0.95, 0.5)])
def test_the_interval_covers_the_true_ratio_where_each_process_wanders_by_itself(
    correlation: float, without: float
) -> None:
    generator = random.Random(f"wandering {correlation}")  # noqa: S311 - no secret
    covered = uncorrected = 0
    for _ in range(200):
        candidate, baseline = (_wandering(generator, correlation, 40) for _ in range(2))
        ours, theirs = ([math.exp(value) for value in side] for side in (candidate, baseline))
        interval = speedup_interval(theirs, ours)
        covered += interval.low <= 1.0 <= interval.high
        factor = correlation_factor([b - a for a, b in zip(candidate, baseline, strict=True)])
        value = speedup(theirs, ours)
        low, high = (value * (end / value) ** (1 / factor) for end in (interval.low, interval.high))
        uncorrected += low <= 1.0 <= high
    assert covered >= 0.93 * 200
    assert (uncorrected < without * 200) is (correlation > 0)


def test_independent_pairs_are_hardly_corrected() -> None:
    generator = random.Random(21)  # noqa: S311 - no secret
    factors = sorted(correlation_factor([generator.gauss(0.0, 0.01) for _ in range(40)]) for _ in range(100))
    assert factors[50] < 1.4
    assert factors[80] < 2.0


def test_samples_that_are_equal_are_not_corrected_and_few_by_what_is_taken_to_be() -> None:
    assert correlation_factor([0.5] * 20) == 1.0
    assert correlation_factor([0.5] * 5) == 1.0
    assert correlation_factor([0.1, 0.2, 0.3, 0.4, 0.5]) == 1.5


def test_noise_that_hides_a_wander_does_not_make_it_harmless() -> None:
    generator = random.Random(23)  # noqa: S311 - no secret
    found = []
    for _ in range(40):
        wander = _wandering(generator, 0.97, 60)
        found.append(correlation_factor([0.7 * value + generator.gauss(0.0, 0.007) for value in wander]))
    assert sorted(found)[20] > 2.5


@pytest.mark.parametrize(("baseline", "candidate"), [([], []), ([1.0], [1.0, 2.0])])
def test_unpaired_samples_are_refused(baseline: list[float], candidate: list[float]) -> None:
    with pytest.raises(ValueError, match="not paired"):
        speedup_interval(baseline, candidate)


def test_median_error_shrinks_with_the_number_of_samples() -> None:
    generator = random.Random(3)  # noqa: S311 - no secret
    few = [generator.gauss(0, 1) for _ in range(25)]
    many = [generator.gauss(0, 1) for _ in range(2500)]
    assert median_error(many) < median_error(few) / 3
    assert median_error(many, 25) == pytest.approx(10 * median_error(many))


def test_median_of_an_even_number_is_the_mean_of_the_middle_two() -> None:
    assert median_ms([1.0, 2.0, 3.0, 10.0]) == 2.5


def test_spread_is_quartiles_and_extremes() -> None:
    found = spread([4.0, 1.0, 3.0, 2.0, 5.0])
    assert (found.min_ms, found.q1_ms, found.median_ms, found.q3_ms, found.max_ms) == (1.0, 2.0, 3.0, 4.0, 5.0)


def test_two_modes_are_far_apart_and_one_is_not() -> None:
    generator = random.Random(5)  # noqa: S311 - no secret
    one = [generator.gauss(1.0, 0.01) for _ in range(60)]
    two = [generator.gauss(1.0 if number % 3 else 1.2, 0.01) for number in range(60)]
    assert separation(one) < 4
    assert separation(two) > 15


def test_a_few_outliers_are_no_mode() -> None:
    assert separation([1.0 + 0.001 * number for number in range(38)] + [5.0, 5.1]) < 6


def test_constant_halves_are_separate_and_constant_samples_are_not() -> None:
    assert separation([1.0] * 10 + [2.0] * 10) == 1000.0
    assert separation([1.0] * 20) == 0.0
    assert separation([1.0, 2.0]) == 0.0


def test_trend_tells_drift_from_noise() -> None:
    generator = random.Random(9)  # noqa: S311 - no secret
    noise = [generator.gauss(1.0, 0.01) for _ in range(40)]
    drifting = [sample * (1 + 0.002 * number) for number, sample in enumerate(noise)]
    assert abs(trend(noise).z) < 3
    assert trend(drifting).z > 5
    assert trend(drifting).change == pytest.approx(0.078, abs=0.02)
