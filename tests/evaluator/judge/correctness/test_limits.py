"""How far off an element may be: what hides, what must not, and what the reference's own error excuses."""

from __future__ import annotations

import math

import pytest
import torch

from evaluator.judge.correctness.compare import SliceComparison, compare_slice
from evaluator.judge.correctness.limits import (
    is_rounding,
    root_mean_square,
    smallest_step,
    typical_magnitude,
    typical_native_error,
    usual_limits,
    widen,
    with_terms,
)
from evaluator.problems.problem import Tolerance

_TOLERANCE = Tolerance(atol=1e-4, rtol=1e-4)
_HALF = Tolerance(atol=1e-2, rtol=1e-2)


def _normal(count: int = 100_000, seed: int = 3) -> torch.Tensor:
    return torch.randn(count, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def _compare(actual: torch.Tensor, expected: torch.Tensor, own: torch.Tensor | None = None) -> SliceComparison:
    return compare_slice(actual.float(), expected, expected.float() if own is None else own.float(), _TOLERANCE)


@pytest.mark.parametrize(
    "values",
    [_normal(), _normal().relu(), _normal().abs(), torch.rand(100_000, dtype=torch.float64), _normal().exp()],
    ids=["normal", "rectified", "magnitudes", "uniform", "lognormal"],
)
def test_the_typical_magnitude_of_usual_tensors_is_about_their_root_mean_square(values: torch.Tensor) -> None:
    told = values[values != 0]
    mean = float(told.square().mean().sqrt())
    assert 0.4 * mean < float(typical_magnitude(values)) < 1.6 * mean


@pytest.mark.parametrize("share", [0.003, 0.1, 0.5, 0.9])
def test_filled_and_planted_elements_do_not_decide_what_is_typical(share: float) -> None:
    values = _normal()
    values[torch.rand(len(values), generator=torch.Generator().manual_seed(1)) < share] = -1e9
    assert 0.5 < float(typical_magnitude(values)) < 16.0
    limits = usual_limits(values, _TOLERANCE, torch.float32)
    assert limits.scale < 16.0
    assert 0.5 < limits.root_mean_square < 2.0, "nor what is the root mean square"


@pytest.mark.parametrize("fill", [-1e9, -1e30, torch.finfo(torch.float32).min])
def test_a_fill_is_left_out_however_large_it_is(fill: float) -> None:
    values = _normal()
    values[::2] = fill
    limits = usual_limits(values, _TOLERANCE, torch.float32)
    assert limits.scale < 16.0
    wrong = values.clone()
    wrong[1::2] *= 1.5
    own = values.float().double()
    assert _compare(wrong, values, own).wrong > 0.9 * wrong[1::2].numel()


@pytest.mark.parametrize("values", [[0.0, 1.0, 1.0, 0.0], [5.0, 5.0, 5.0], [1e9, 1.0, 2.0], [1.0, 2.0, 3.0, 3.0]])
def test_what_is_no_fill_stays(values: list[float]) -> None:
    expected = torch.tensor(values, dtype=torch.float64)
    assert usual_limits(expected, _TOLERANCE, torch.float32).root_mean_square == root_mean_square(expected)


def test_nothing_but_rounding_is_told_from_small_numbers_beside_a_fill() -> None:
    exact = torch.full((64,), 1e-16, dtype=torch.float64)
    error = 1e-7 * _normal()[:64].abs()
    assert is_rounding(exact, error)
    filled = _normal()
    filled[::2] = -1e30
    assert not is_rounding(filled, (filled.float().double() - filled).abs())


def test_of_nothing_but_zeros_the_limit_is_the_smallest_step() -> None:
    limits = usual_limits(torch.zeros(100, dtype=torch.float64), _TOLERANCE, torch.float32)
    assert float(limits.limit.max()) < 1e-33
    assert float(typical_magnitude(torch.zeros(5, dtype=torch.float64))) == math.inf
    assert float(typical_magnitude(torch.zeros(0, dtype=torch.float64))) == math.inf


def test_the_smallest_step_is_a_subnormal_in_float16_and_what_may_be_flushed_elsewhere() -> None:
    assert smallest_step(torch.float16) == 2.0**-24
    assert smallest_step(torch.bfloat16) == smallest_step(torch.float32) == 2.0**-126


def test_the_lower_half_of_a_heavy_tail_does_not_hide() -> None:
    expected = (4.0 * _normal()).exp()
    assert _compare(expected, expected).right == expected.numel()
    halved = torch.where(expected < expected.median(), 0.0, expected)
    assert _compare(halved, expected).wrong > 0.4 * expected.numel()


def test_scores_beside_filled_ones_do_not_hide() -> None:
    expected = _normal().view(100, 1000)
    filled = torch.ones(100, 1000, dtype=torch.bool).triu(400)
    expected = expected.masked_fill(filled, -1e9)
    coarse = expected.bfloat16().double().masked_fill(filled, -1e9)
    assert _compare(expected, expected).right == expected.numel()
    assert _compare(coarse, expected).wrong > 10_000


def test_the_tail_of_a_product_does_not_hide() -> None:
    expected = (2.0 * torch.rand(8, 4096, dtype=torch.float64)).cumprod(1)
    expected = expected[:, :300]
    cut = expected.clone()
    cut[:, 64:] = 0.0
    assert _compare(cut, expected).wrong > 100


def test_each_element_has_room_for_the_terms_that_it_is_a_sum_of() -> None:
    expected = _normal()
    expected[:1000] = 1e4
    limits = usual_limits(expected, _TOLERANCE, torch.float32)
    terms = torch.ones_like(expected)
    terms[7], terms[8] = 5.0, math.nan
    given = with_terms(limits, expected, terms, _TOLERANCE, 2.0**-52)
    room = (given.limit - limits.limit) / _TOLERANCE.atol
    assert float(room[50_000]) == pytest.approx(8.0 - limits.scale, rel=1e-6)
    assert float(room[7]) == pytest.approx(40.0 - limits.scale, rel=1e-6)
    # It is not known, and never more than the root mean square.
    assert float(room[8]) == pytest.approx(limits.root_mean_square - limits.scale, rel=1e-6)


def test_a_loud_row_has_room_for_its_own_terms_alone() -> None:
    expected = _normal(64 * 1000).view(64, 1, 1000)
    expected[5] *= 1e3
    expected[6] = 0.0
    limits = usual_limits(expected, _TOLERANCE, torch.float32)
    assert limits.root_mean_square > 100.0
    given = with_terms(limits, expected, expected.new_full((), math.inf), _TOLERANCE, 2.0**-52)
    room = (given.limit - limits.limit) / _TOLERANCE.atol
    assert float(room[5].min()) == pytest.approx(limits.root_mean_square - limits.scale, rel=1e-6)
    rest = room[[row for row in range(64) if row != 5]]
    assert 0.0 <= float(rest.min()) <= float(rest.max()) < 0.2


@pytest.mark.parametrize("shape", [(), (1,), (64,), (1, 1), (1, 64), (64, 1)])
def test_rows_of_one_element_and_single_rows_have_room_up_to_the_root_mean_square(shape: tuple[int, ...]) -> None:
    expected = _normal(math.prod(shape)).view(shape)
    limits = usual_limits(expected, _TOLERANCE, torch.float32)
    given = with_terms(limits, expected, expected.new_full((), math.inf), _TOLERANCE, 2.0**-52)
    room = (given.limit - limits.limit) / _TOLERANCE.atol
    assert torch.allclose(room, torch.full_like(room, limits.root_mean_square - limits.scale))


def test_one_bad_element_of_the_references_own_widens_its_own_limit_alone() -> None:
    expected = _normal(10_000)
    own = expected.clone()
    own[17] += 1.0
    limits = usual_limits(expected, _TOLERANCE, torch.float32)
    widened = widen(limits, expected, (own.float() - expected).abs(), _TOLERANCE)
    assert float(widened.limit[17]) > 4.0
    others = torch.arange(10_000) != 17
    assert float((widened.limit / limits.limit)[others].max()) < 1.1
    assert widened.factor == pytest.approx(1.0, abs=0.01)
    assert widened.capped == 0.0


@pytest.mark.parametrize("times", [0.5, 0.96])
def test_a_part_of_the_right_answer_is_wrong_however_bad_one_element_is(times: float) -> None:
    expected = _normal(100_000)
    own = expected.half()
    own[:64] += 5.0  # a row in which rounding decides which score is the larger
    found = compare_slice((times * expected).half(), expected, own, _HALF)
    assert found.wrong > 1000
    assert compare_slice(expected.half(), expected, own, _HALF).wrong == 0


def test_noise_of_the_limits_size_is_wrong_where_the_reference_is_more_exact() -> None:
    expected = _normal()
    noise = torch.randn(expected.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    limit = usual_limits(expected, _HALF, torch.bfloat16).limit
    own = (expected + 0.05 * limit * noise.flip(0)).bfloat16()
    assert compare_slice((expected + limit * noise).bfloat16(), expected, own, _HALF).wrong > 100


def test_what_is_typical_of_the_references_own_error_is_allowed_where_it_has_none_by_chance() -> None:
    noise = _normal(seed=5)
    expected = _normal()
    own = expected + 1.5e-4 * noise
    own[::10] = expected[::10].float().double()
    found = compare_slice((expected + 1.5e-4 * noise.flip(0)).float(), expected, own.float(), _TOLERANCE)
    assert found.wrong == 0
    assert 2 < found.widened < 20


def test_typical_is_the_error_at_elements_of_about_the_same_magnitude() -> None:
    expected = torch.cat([_normal(), 1e6 * _normal(seed=8)])
    error = expected.abs() * 1e-6
    typical = typical_native_error(expected, error)
    ratio = typical / error.clamp(min=1e-30)
    usual = expected.abs() > 0.01
    assert float(ratio[usual].max()) < 10
    assert float(ratio[usual].min()) > 0.03


def test_a_group_of_too_few_elements_is_one_with_its_neighbours() -> None:
    expected = torch.tensor([1e-9, 1.0, 1.5, 0.0], dtype=torch.float64).repeat_interleave(torch.tensor([1, 60, 60, 3]))
    error = torch.full_like(expected, 1e-6)
    error[0] = 1e-30
    typical = typical_native_error(expected, error)
    assert float(typical[0]) > 0.9e-6
    assert torch.equal(typical[-3:], typical[:1].expand(3))
    assert typical_native_error(expected, torch.zeros_like(expected)).tolist() == [0.0] * len(expected)


def test_a_reference_that_is_too_inexact_to_tell_is_said_to_be() -> None:
    expected = _normal()
    own = expected * (1.0 + 0.5 * _normal(seed=5))
    limits = usual_limits(expected, _HALF, torch.bfloat16)
    widened = widen(limits, expected, (own - expected).abs(), _HALF)
    assert widened.capped > 0.5
    assert widened.factor > 10
    typical = typical_native_error(expected, (own - expected).abs())
    assert float((12.0 * typical).max()) > float((widened.limit - limits.limit - 4.0 * (own - expected).abs()).max())


def test_terms_that_cancel_in_float64_are_no_magnitudes() -> None:
    values = _normal()
    values[::4] *= 1e-17
    assert 0.5 < float(typical_magnitude(values)) < 1.5


def test_a_row_in_which_the_reference_is_inexact_has_more_room() -> None:
    expected = _normal(6400).view(100, 64)
    error = 1e-4 * _normal(6400, seed=5).view(100, 64)
    error[17] *= 100.0
    typical = typical_native_error(expected, error.abs())
    assert float(typical[17].median()) > 20 * float(typical[16].median())
    others = torch.arange(100) != 17
    assert float(typical[others].max()) < 10 * float(typical[others].median())


@pytest.mark.parametrize(("many", "times", "passes"), [(10, 2.0, True), (1000, 2.0, False), (10, 1000.0, False)])
def test_a_few_elements_may_be_as_far_off_as_the_references_own_are(many: int, times: float, passes: bool) -> None:
    noise = _normal(seed=5)
    expected = _normal()
    own = expected + 0.003 * noise.abs().exp() * noise.sign()
    largest = float((own - expected).abs().max())
    actual = own.clone()
    actual[:many] = expected[:many] + times * largest
    found = compare_slice(actual.half(), expected, own.half(), _HALF)
    assert (found.wrong == 0) == passes


def test_nothing_is_excused_where_the_references_own_is_within_the_usual_limits() -> None:
    expected = _normal()
    actual = expected.float()
    actual[7] += 1.0
    assert _compare(actual, expected).wrong == 1


def test_a_difference_that_float64_has_as_nothing_may_be_what_its_terms_leave() -> None:
    expected = _normal()
    expected[:5000] = 1e-18
    actual = expected.clone()
    actual[:5000] = 5e-5
    assert _compare(actual, expected).wrong == 0
    actual[:5000] = 5e-3
    assert _compare(actual, expected).wrong == 5000


def test_a_tensor_of_nothing_but_rounding_is_not_held_to_its_own_size() -> None:
    own = 1e-6 * _normal(1000, seed=5)
    actual = 1e-6 * _normal(1000, seed=6)
    expected = 1e-15 * _normal(1000)
    assert compare_slice(actual.float(), expected, own.float(), _TOLERANCE).wrong == 0
    assert compare_slice((100 * actual).float(), expected, own.float(), _TOLERANCE).wrong > 500


def test_another_computation_of_nothing_but_rounding_is_a_few_times_as_far_off() -> None:
    own, expected = 1e-7 * _normal(8, seed=5), 1e-15 * _normal(8)
    actual = own.sign() * 2e-6  # a bias before a normalisation
    assert compare_slice(actual.float(), expected, own.float(), _TOLERANCE).wrong == 0
    assert compare_slice((10 * actual).float(), expected, own.float(), _TOLERANCE).wrong == 8
