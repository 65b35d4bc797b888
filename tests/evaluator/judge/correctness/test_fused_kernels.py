"""The judge's own kernels say what torch's operations say."""

from __future__ import annotations

import math

import pytest
import torch

from evaluator.judge.correctness import compare, fingerprint, kinks, limits
from evaluator.judge.correctness.fused_kernels import _MAX_PLACES, kernels
from evaluator.problems.problem import Tolerance

pytestmark = pytest.mark.gpu

_TOLERANCE = Tolerance(atol=1e-4, rtol=1e-4)


def test_they_are_there() -> None:
    assert kernels() is not None


@pytest.mark.parametrize("count", [2**13 - 1, 2**13, 2**13 + 1, 5 * 2**13 + 1000])
def test_a_fingerprint_is_of_every_word(count: int) -> None:
    fused = kernels()
    assert fused is not None
    words = torch.zeros(count, dtype=torch.int32, device="cuda")
    weights = torch.arange(1, 2**22 + 1, device="cuda")
    for place in (0, 255, 3 * 256, 2**13 - 2, count // 2, count - 1):
        words[place] = -3
        assert fused.fingerprint(words, weights).tolist() == [-3 * (place + 1)]
        words[place] = 0


@pytest.mark.parametrize("count", [1, 255, 2**15, 2**22, 2**22 + 1, 3 * 2**22 + 12345])
def test_a_fingerprint_is_the_same(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fingerprints = fingerprint.Fingerprinter(torch.Generator("cuda").manual_seed(1))
    tensor = torch.randn(count + 1, device="cuda")
    fused = [fingerprints.of(tensor), fingerprints.of(tensor[1:]), fingerprints.of(tensor.half()[:count])]
    monkeypatch.setattr(fingerprint, "kernels", lambda: None)
    assert fused == [fingerprints.of(tensor), fingerprints.of(tensor[1:]), fingerprints.of(tensor.half()[:count])]
    assert fused[0] != fused[1]


# Of more than 3 * 2048 * 256 elements four are taken at a time; what is left is taken one by one.
_MIXED = 2**21 + 3


@pytest.mark.parametrize("shape", [(1,), (7, 3), (1000, 1001), (_MIXED,), (2**24,)])
def test_a_comparison_is_the_same(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = torch.randn(shape, device="cuda", dtype=torch.float64)
    own = expected.float()
    actual = own * (1 + 5e-5 * torch.rand_like(own))
    fused = compare.compare_slice(actual, expected, own, _TOLERANCE)
    monkeypatch.setattr(compare, "kernels", lambda: None)
    plain = compare.compare_slice(actual, expected, own, _TOLERANCE)
    assert fused.right == plain.right == math.prod(shape)
    for name in ("max_abs", "max_rel", "reference_max_rel"):
        assert getattr(fused, name) == pytest.approx(getattr(plain, name), rel=1e-9)
    alone = compare.compare_unwidened(actual, expected, None, _TOLERANCE)
    assert alone is not None
    assert (alone.right, alone.max_abs, alone.reference_max_rel) == (fused.right, plain.max_abs, None)


@pytest.mark.parametrize("shape", [(1,), (1000, 1001), (_MIXED,), (2**24,)])
@pytest.mark.parametrize("off_by", [0.0, 1e-3])
def test_a_deviation_is_the_same(shape: tuple[int, ...], off_by: float, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(5)
    expected = torch.randn(shape, device="cuda", dtype=torch.float64).relu()
    own = expected.float()
    actual = own + off_by * torch.randn_like(own).relu()
    fused = kinks.deviations(actual, expected, own, _TOLERANCE)
    swapped = kinks.deviations(own, expected, actual, _TOLERANCE)
    monkeypatch.setattr(kinks, "kernels", lambda: None)
    plain = kinks.deviations(actual, expected, own, _TOLERANCE)
    for one, other in [*zip(fused, plain, strict=True), *zip(swapped, reversed(plain), strict=True)]:
        assert one.share == pytest.approx(other.share, abs=1e-6)
        assert one.excess == pytest.approx(other.excess, rel=1e-9)
        assert one.magnitude == pytest.approx(other.magnitude, rel=1e-9)
    if math.prod(shape) > 1:
        assert (fused[0].share > 0.1) == (off_by > 0)
    assert fused[1].share == 0.0


_HEAVY = {
    "exponentials": lambda normal: (4.0 * normal).exp(),
    "filled": lambda normal: torch.where(torch.rand_like(normal) < 0.6, -1e9, normal),
    "planted": lambda normal: torch.where(torch.rand_like(normal) < 0.004, 1e4, normal),
    "rectified": lambda normal: normal.relu(),
    "tiny": lambda normal: 1e-37 * normal,
    "zeros": torch.zeros_like,
}


@pytest.mark.parametrize("shape", [(1,), (7, 3), (1000, 1001), (_MIXED,)])
@pytest.mark.parametrize("name", _HEAVY)
def test_limits_are_the_same_whatever_the_tail(
    name: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(5)
    own = _HEAVY[name](torch.randn(shape, device="cuda", dtype=torch.float64)).float()
    expected = own.double()
    # Around the limits of most elements, so that it shows where those are.
    scale = limits.scale_of(expected)[0]
    actual = own + 2e-4 * scale * torch.rand_like(own) + 2e-4 * own.abs() * torch.rand_like(own)
    fused = compare.compare_unwidened(actual, expected, own, _TOLERANCE)
    deviations = kinks.deviations(actual, expected, own, _TOLERANCE)
    for module in (compare, kinks):
        monkeypatch.setattr(module, "kernels", lambda: None)
    plain = compare.compare_unwidened(actual, expected, own, _TOLERANCE)
    assert fused is not None
    assert plain is not None
    assert abs(fused.right - plain.right) <= 1e-6 * fused.total  # sums of squares may differ in a last bit
    if name not in ("zeros", "tiny") and fused.total > 1000:
        assert 0.1 * fused.total < fused.right < 0.95 * fused.total
    assert fused.max_abs == pytest.approx(plain.max_abs, rel=1e-9)
    assert fused.max_rel == pytest.approx(plain.max_rel, rel=1e-9)
    for one, other in zip(deviations, kinks.deviations(actual, expected, own, _TOLERANCE), strict=True):
        assert one.share == pytest.approx(other.share, abs=1e-6)
        assert one.excess == pytest.approx(other.excess, rel=1e-9)


@pytest.mark.parametrize("shape", [(1,), (7, 3), (2048,), (2049,), (1000, 1001), (_MIXED,)])
@pytest.mark.parametrize("name", _HEAVY)
def test_a_typical_magnitude_is_the_same(name: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(5)
    expected = _HEAVY[name](torch.randn(shape, device="cuda", dtype=torch.float64))
    expected.view(-1)[::7] = math.nan
    fused = kernels()
    assert fused is not None
    assert float(fused.typical_magnitude(expected)) == float(limits.typical_magnitude(expected))


def test_so_many_wrong_elements_are_only_counted() -> None:
    fused = kernels()
    assert fused is not None
    expected = torch.zeros(_MIXED, device="cuda", dtype=torch.float64)
    right = expected.float()
    for wrong in (_MAX_PLACES, _MAX_PLACES + 1, _MIXED):
        actual = right.clone()
        actual[:wrong] = 1.0
        seen = fused.compare(actual, expected, right, limits.fused_rules(_TOLERANCE, actual.dtype))
        assert seen is not None
        assert seen.wrong == wrong
        assert seen.least == limits.least_limit(expected, _TOLERANCE, right.dtype)
        if wrong == _MAX_PLACES:
            assert seen.places is not None
            assert sorted(seen.places.tolist()) == list(range(wrong))
        else:
            assert seen.places is None


def test_a_few_widened_elements_on_a_gpu_are_as_on_a_cpu() -> None:
    torch.manual_seed(5)
    expected = torch.randn(2**21, dtype=torch.float64)
    lost = torch.rand(expected.shape) < 1e-3
    own = (expected + lost * 1e-3 * torch.randn_like(expected)).float()
    actual = (expected + lost * 1e-3 * torch.randn_like(expected)).float()
    there = compare.compare_slice(actual.cuda(), expected.cuda(), own.cuda(), _TOLERANCE)
    here = compare.compare_slice(actual, expected, own, _TOLERANCE)
    assert there.right == here.right
    assert there.widened == pytest.approx(here.widened, rel=1e-9)
    again = compare.compare_slice(own.cuda(), expected.cuda(), own.cuda(), _TOLERANCE)
    assert again.right == len(expected)
    assert 1.0 < again.widened < 1.001


@pytest.mark.parametrize("planted", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_left_to_the_whole_comparison(planted: float) -> None:
    expected = torch.randn(_MIXED, device="cuda", dtype=torch.float64)
    expected[12345] = planted
    own = expected.float()
    assert compare.compare_unwidened(own, expected, own, _TOLERANCE) is None
    assert compare.compare_unwidened(own, expected, None, _TOLERANCE) is None
    found = compare.compare_slice(own, expected, own, _TOLERANCE)
    assert (found.right, found.wrong) == (_MIXED, 0)
    other = own.clone()
    other[12345] = 0.0
    found = compare.compare_slice(other, expected, own, _TOLERANCE)
    assert found.wrong == 1
    assert found.worst is not None
    assert found.worst.flat == 12345
    overflown = own.clone()
    overflown[:99] = math.inf
    assert compare.compare_slice(own, expected, overflown, _TOLERANCE).undetermined == 99


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_whole_comparison_on_a_gpu_is_that_on_a_cpu(dtype: torch.dtype) -> None:
    torch.manual_seed(5)
    tolerance = _TOLERANCE if dtype is torch.float32 else Tolerance(atol=1e-2, rtol=1e-2)
    expected = torch.randn(300, 400, dtype=torch.float64).mul_(2.0).exp_()
    noise = tolerance.rtol * torch.randn_like(expected)
    own, actual = (expected * (1 + 0.3 * noise)).to(dtype), (expected * (1 + noise.flip(0))).to(dtype)
    there = compare.compare_slice(actual.cuda(), expected.cuda(), own.cuda(), tolerance)
    here = compare.compare_slice(actual, expected, own, tolerance)
    assert abs(there.right - here.right) <= 2
    assert there.widened == pytest.approx(here.widened, rel=1e-6)
    assert there.capped == pytest.approx(here.capped, abs=1e-4)


def test_a_deviation_that_is_no_number_is_told() -> None:
    expected = torch.randn(_MIXED, device="cuda", dtype=torch.float64)
    for place in (12345, 3 * 2048 * 256 + 7, _MIXED - 1):
        actual = expected.float()
        actual[place] = math.nan
        found, own = kinks.deviations(actual, expected, expected.float(), _TOLERANCE)
        assert found.share == pytest.approx(1 / _MIXED)
        assert found.excess == math.inf
        assert math.isnan(found.magnitude)
        assert own.share == 0.0
        assert own.magnitude == pytest.approx(1.0)
        assert compare.compare_unwidened(actual, expected, None, _TOLERANCE) is None


@pytest.mark.parametrize("planted", [math.nan, math.inf, -math.inf, 100.0])
def test_one_wrong_element_is_noticed_wherever_it_is(planted: float) -> None:
    fused = kernels()
    assert fused is not None
    expected = torch.randn(_MIXED, device="cuda", dtype=torch.float64)
    for place in (0, 12345, 3 * 2048 * 256 + 7, _MIXED - 1):
        actual = expected.float()
        actual[place] = planted
        seen = fused.compare(actual, expected, expected.float(), limits.fused_rules(_TOLERANCE, actual.dtype))
        assert seen is not None
        assert seen.wrong == 1
        assert seen.places is not None
        assert seen.places.tolist() == [place]
        assert compare.compare_slice(actual, expected, expected.float(), _TOLERANCE).right < len(expected)


def test_a_reference_that_is_not_finite_asks_for_the_same_class() -> None:
    expected = torch.ones(1000, device="cuda", dtype=torch.float64)
    expected[17] = math.nan
    right = expected.float()
    found = compare.compare_slice(right, expected, right, _TOLERANCE)
    assert found.right == found.total
    assert found.conclusive == 999
    expected[17] = math.inf
    infinite = expected.float()
    assert compare.compare_slice(infinite, expected, infinite, _TOLERANCE).right == 1000
    for other in (1.0, -math.inf, math.nan):
        actual = infinite.clone()
        actual[17] = other
        assert compare.compare_slice(actual, expected, infinite, _TOLERANCE).wrong == 1


def test_an_error_of_the_reference_itself_widens_the_limit_there() -> None:
    expected = torch.ones(1000, device="cuda", dtype=torch.float64)
    own = expected.float()
    own[3] = 1.1  # far off in its own precision: no kernel widens a limit
    assert compare.compare_slice(expected.float(), expected, own, _TOLERANCE).widened == 1.0
    assert compare.compare_slice(own, expected, own, _TOLERANCE).widened > 1.0
