"""The comparison itself: what must never pass, and what must."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from evaluator.judge.correctness import compare
from evaluator.judge.correctness.compare import SliceComparison, Tally, compare_slice, compare_unwidened
from evaluator.judge.correctness.fingerprint import Fingerprinter
from evaluator.judge.correctness.fused_kernels import _SUMS
from evaluator.judge.correctness.kinks import Deviation, deviations
from evaluator.problems.problem import Tolerance

_TOLERANCE = Tolerance(atol=1e-4, rtol=1e-4)


def _compare(actual: torch.Tensor, expected: torch.Tensor, **options: torch.Tensor) -> SliceComparison:
    return compare_slice(actual, expected.double(), expected.float(), _TOLERANCE, **options)


def test_equal_tensors_are_right_everywhere() -> None:
    expected = torch.randn(64, 64)
    found = _compare(expected, expected)
    assert found.right == found.total == expected.numel()
    assert not found.suspect


def test_an_error_within_the_tolerance_is_right() -> None:
    expected = torch.ones(100)
    assert _compare(expected * (1 + 1.5e-4), expected).right == 100


def test_an_error_above_the_tolerance_is_wrong_and_named() -> None:
    expected = torch.ones(10, 10)
    actual = expected.clone()
    actual[3, 7] += 0.01
    tally = Tally("the output", (10, 10))
    tally.add(_compare(actual, expected))
    assert not tally.passed
    assert "[3, 7]" in tally.describe()
    assert "1 % of 100" in tally.describe()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_single_nonfinite_element_fails(value: float) -> None:
    expected = torch.randn(1000)
    actual = expected.clone()
    actual[500] = value
    found = _compare(actual, expected)
    assert found.right == 999
    assert found.worst is not None
    assert found.worst.flat == 500


def test_all_nan_is_wrong_everywhere() -> None:
    expected = torch.randn(1000)
    assert _compare(torch.full_like(expected, math.nan), expected).right == 0


def test_zeros_do_not_hide_below_an_absolute_tolerance() -> None:
    expected = torch.rand(1000) * 1e-6 + 1e-6
    assert _compare(torch.zeros(1000), expected).right == 0


def test_the_references_own_error_widens_the_limit() -> None:
    expected = torch.ones(100, dtype=torch.float64)
    reference = (expected * (1 + 1e-3)).float()
    actual = (expected * (1 - 2e-3)).float()
    found = compare_slice(actual, expected, reference, _TOLERANCE)
    assert found.right == 100
    assert found.widened > 10
    assert found.suspect


def test_nothing_is_widened_for_what_is_right_without_it() -> None:
    expected = torch.ones(100, dtype=torch.float64)
    reference = (expected * (1 + 1e-3)).float()
    found = compare_slice(expected.float(), expected, reference, _TOLERANCE)
    assert found.right == 100
    assert found.widened == 1.0
    assert not found.suspect
    # What the reference itself cannot say is never right, whatever else is.
    reference[3] = math.nan
    found = compare_slice(expected.float(), expected, reference, _TOLERANCE)
    assert (found.right, found.undetermined, found.wrong) == (99, 1, 0)


@pytest.mark.parametrize("size", [5000, 2**19])
@pytest.mark.parametrize("off_by", [1e-3, 1e-2, 1e-1])
def test_a_few_elements_are_widened_as_all_are(size: int, off_by: float, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(3)
    expected = torch.randn(size, dtype=torch.float64)
    lost = torch.rand(size) < 5e-3
    reference = (expected + lost * off_by * torch.randn_like(expected)).float()
    outcomes = []
    for times in (0.5, 1.0, 4.0, 100.0):
        actual = (expected + lost * times * off_by * torch.randn_like(expected)).float()
        few = compare_slice(actual, expected, reference, _TOLERANCE)
        with monkeypatch.context() as whole:
            whole.setattr(compare, "_FEW_WIDENED", 0.0)
            all_of_them = compare_slice(actual, expected, reference, _TOLERANCE)
        assert (few.total, few.right, few.suspect) == (all_of_them.total, all_of_them.right, all_of_them.suspect)
        if few.widened != all_of_them.widened:  # it was left at the few
            assert 1.0 < few.widened < 1.01
            assert few.right == few.total
        outcomes.append(few.widened != all_of_them.widened)
    exactly = compare_slice(reference, expected, reference, _TOLERANCE)
    assert exactly.right == size
    assert 1.0 < exactly.widened < 1.01
    assert not outcomes[-1]


def test_a_few_elements_of_a_transposed_tensor_are_widened_where_they_are() -> None:
    torch.manual_seed(3)
    expected = torch.randn(60, 70, dtype=torch.float64)
    off = torch.zeros_like(expected)
    off[3, 5] = 0.01
    reference, actual = (expected + off).float(), (expected - 2 * off).float()
    elsewhere = (expected - 2 * off.roll(1, 0)).float()
    for one, right, own in (
        (actual, expected, reference),
        (actual.T, expected.T, reference.T),
        (actual.T, expected.T.contiguous(), reference.T),
    ):
        found = compare_slice(one, right, own, _TOLERANCE)
        assert found.right == expected.numel()
        assert 1.0 < found.widened < 1.01
    assert compare_slice(elsewhere.T, expected.T, reference.T, _TOLERANCE).wrong == 1


def test_typical_errors_widen_a_few_elements_of_other_places() -> None:
    torch.manual_seed(3)
    expected = torch.randn(2**19, dtype=torch.float64)
    noise = 3e-5 * torch.randn_like(expected)
    actual = expected + noise.flip(0)
    small = expected.abs() < 1e-2
    assert 0 < int(((actual - expected).abs() > 1e-4)[small].sum()) < len(expected) / 64
    found = compare_slice(actual.float(), expected, (expected + noise).float(), _TOLERANCE)
    assert found.right == len(expected)
    assert 1.0 < found.widened < 1.01
    # As far off elsewhere, where the reference is exact, it is no rounding.
    assert compare_slice(actual.float(), expected, expected.float(), _TOLERANCE).wrong > 0


def test_by_the_usual_limits_nothing_is_widened_and_what_is_wrong_is_counted() -> None:
    expected = torch.ones(100, dtype=torch.float64)
    reference = (expected * (1 + 1e-3)).float()
    actual = expected.float()
    actual[:7] *= 1 - 2e-3
    found = compare_unwidened(actual, expected, reference, _TOLERANCE)
    assert found is not None
    assert (found.total, found.right, found.widened, found.worst) == (100, 93, 1.0, None)
    assert found.suspect
    assert found.max_abs == pytest.approx(2e-3, rel=1e-4)
    # Whatever is wrong by them is suspect to the whole comparison as well.
    assert compare_slice(actual, expected, reference, _TOLERANCE).suspect
    actual[50] = math.nan
    found = compare_unwidened(actual, expected, reference, _TOLERANCE)
    assert found is not None
    assert found.right == 92
    reference[3] = math.nan
    assert compare_unwidened(actual, expected, reference, _TOLERANCE) is None


def test_without_the_reference_in_the_problems_precision_the_same_is_right_and_nothing_is_known_of_its_error() -> None:
    expected = torch.linspace(-3.0, 3.0, 2**16 + 5, dtype=torch.float64)
    actual = expected.float()
    for wrong in range(3):
        with_it = compare_unwidened(actual, expected, expected.float(), _TOLERANCE)
        without = compare_unwidened(actual, expected, None, _TOLERANCE)
        assert with_it is not None
        assert without == replace(with_it, reference_max_rel=None)
        assert without.total - without.right == wrong
        actual[2**15 * wrong + 3] += 0.1
    tally = Tally("the output", (len(expected),))
    tally.add(compare_unwidened(expected.float(), expected, None, _TOLERANCE) or pytest.fail("nothing was found"))
    assert tally.passed
    assert tally.reference_max_rel is None


@pytest.mark.parametrize("planted", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_left_to_the_whole_comparison(planted: float) -> None:
    expected = torch.linspace(-3.0, 3.0, 1000, dtype=torch.float64)
    actual = expected.float()
    actual[77] = planted
    assert compare_unwidened(actual, expected, None, _TOLERANCE) is None
    assert compare_slice(actual, expected, expected.float(), _TOLERANCE).right == 999


@pytest.mark.parametrize("transposed", [False, True])
def test_a_large_tensor_is_compared_to_its_last_element(transposed: bool) -> None:
    torch.manual_seed(5)
    expected = torch.randn(301, 211, dtype=torch.float64)
    expected = expected.t() if transposed else expected
    reference, actual = expected.float(), expected.float()
    found = compare_unwidened(actual, expected, reference, _TOLERANCE)
    assert found is not None
    error = (actual - expected).abs()
    least = _TOLERANCE.atol * float(expected.square().mean().sqrt())
    assert (found.total, found.right) == (expected.numel(), expected.numel())
    assert found.max_abs == float(error.max())
    assert found.max_rel == found.reference_max_rel == pytest.approx(float((error / expected.abs().clamp(least)).max()))
    for number, at in enumerate([0, 2**15 - 1, 2**15, expected.numel() - 1]):
        actual[divmod(at, actual.shape[1])] += 0.5
        found = compare_unwidened(actual, expected, reference, _TOLERANCE)
        assert found is not None
        assert found.total - found.right == number + 1
        assert found.max_abs == pytest.approx(0.5)
        assert found.reference_max_rel < 1e-3 < found.max_rel
    reference[-1, -1] = math.inf
    assert compare_unwidened(actual, expected, reference, _TOLERANCE) is None


@pytest.mark.parametrize("with_native", [False, True])
def test_what_is_exact_has_no_error_and_a_single_bit_in_the_last_element_is_one(with_native: bool) -> None:
    torch.manual_seed(5)
    actual = torch.relu(torch.randn(2**16 + 5))
    actual[0] = -0.0
    expected, reference = actual.double(), actual.clone()
    expected[0] = 0.0
    found = compare_unwidened(actual, expected, reference if with_native else None, _TOLERANCE)
    own = 0.0 if with_native else None
    assert found == SliceComparison(2**16 + 5, 2**16 + 5, max_abs=0.0, max_rel=0.0, reference_max_rel=own)
    actual[-1] = torch.nextafter(torch.tensor(1.0), torch.tensor(2.0))
    expected[-1] = reference[-1] = 1.0
    found = compare_unwidened(actual, expected, reference if with_native else None, _TOLERANCE)
    assert found is not None
    assert (found.right, found.max_abs, found.reference_max_rel) == (2**16 + 5, 2.0**-23, own)
    actual[-1] = expected[-1] = 1.0
    if with_native:
        reference[-1] = 3.0
        found = compare_unwidened(actual, expected, reference, _TOLERANCE)
        assert found is not None
        assert found.max_rel == 0.0 < (found.reference_max_rel or 0.0)
    # The same where the reference is not finite says nothing.
    actual[3] = expected[3] = reference[3] = math.inf
    assert compare_unwidened(actual, expected, reference if with_native else None, _TOLERANCE) is None


def test_a_deviation_is_counted_where_either_is_not_zero() -> None:
    expected = torch.zeros(1000, dtype=torch.float64)
    expected[:100] = 2.0
    reference = expected.float()
    actual = reference.clone()
    actual[0] = 0.0  # a kink on its other side
    actual[500] = 1.0
    found, own = deviations(actual, expected, reference, _TOLERANCE)
    assert found.share == pytest.approx(2 / 101)
    assert found.magnitude == pytest.approx(199 / 200)
    assert found.excess > 1000
    assert own == Deviation(0.0, 0.0, 1.0)
    assert deviations(reference, expected, actual, _TOLERANCE) == (own, found)
    assert deviations(actual, expected, None, _TOLERANCE) == (found, found)
    actual[1] = math.nan
    assert math.isnan(deviations(actual, expected, reference, _TOLERANCE)[0].magnitude)


def test_the_kernels_are_such_that_torch_2_9_compiles_them() -> None:
    # It puts extern "C" before whatever does not begin with it, and these begin with a template.
    assert _SUMS.strip().startswith('extern "C"')


def test_sensitivity_widens_only_where_it_is() -> None:
    expected = torch.ones(4)
    actual = torch.tensor([1.0, 1.5, 1.0, 1.5])
    sensitivity = torch.tensor([0.0, 1.0, 0.0, 0.0], dtype=torch.float64)
    assert _compare(actual, expected, sensitivity=sensitivity).right == 3


def test_integers_are_compared_exactly() -> None:
    expected = torch.arange(10)
    actual = expected.clone()
    actual[4] = 5
    found = compare_slice(actual, expected, expected, _TOLERANCE)
    assert found.right == 9
    assert found.worst is not None
    assert found.worst.flat == 4


def test_slices_add_up_and_the_worst_element_keeps_its_place() -> None:
    expected = torch.ones(4, 3)
    actual = expected.clone()
    actual[3, 1] = 2.0
    actual[0, 0] = 1.1
    tally = Tally("the output", (4, 3))
    for start in (0, 2):
        tally.add(_compare(actual[start : start + 2], expected[start : start + 2]))
    assert (tally.total, tally.right) == (12, 10)
    assert "[3, 1]" in tally.describe()


def test_a_tally_that_has_not_seen_everything_has_not_passed() -> None:
    expected = torch.ones(2, 3)
    tally = Tally("the output", (4, 3))
    tally.add(_compare(expected, expected))
    assert not tally.passed


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.uint8, torch.float64])
@pytest.mark.parametrize("size", [1, 3, 1000, 2**18 + 5])
def test_a_fingerprint_notices_one_changed_element(dtype: torch.dtype, size: int) -> None:
    fingerprints = Fingerprinter(torch.Generator().manual_seed(1))
    tensor = torch.arange(size).remainder(100).to(dtype)
    before = fingerprints.of(tensor)
    assert fingerprints.of(tensor.clone()) == before
    tensor[size - 1] += 1
    assert fingerprints.of(tensor) != before


def test_a_fingerprint_notices_two_swapped_pieces() -> None:
    fingerprints = Fingerprinter(torch.Generator().manual_seed(1))
    tensor = torch.randn(2, 2**18)
    assert fingerprints.of(tensor) != fingerprints.of(tensor.flip(0))


def test_fingerprints_of_two_evaluations_have_nothing_in_common() -> None:
    tensor = torch.randn(100)
    assert Fingerprinter(torch.Generator().manual_seed(1)).of(tensor) != Fingerprinter(
        torch.Generator().manual_seed(2)
    ).of(tensor)
