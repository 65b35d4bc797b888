"""What the judge makes of preludes that take longer than they did."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from evaluator.errors import InfrastructureFault
from evaluator.judge.calmness import Calmness
from evaluator.judge.verify import Violation

_CALM_MS = 1.52
"""That of a ReLU of 6 GiB on an H200."""


def _noted(calmness: Calmness, preludes_ms: Iterable[float], calm_ms: float = _CALM_MS) -> list[bool]:
    return [calmness.note(prelude_ms, calm_ms) for prelude_ms in preludes_ms]


def test_as_long_as_at_first_is_calm() -> None:
    calmness = Calmness()
    assert all(_noted(calmness, [_CALM_MS + 0.01, _CALM_MS - 0.2, 1.05 * _CALM_MS] * 50))
    assert (calmness.preludes, calmness.disturbed) == (150, 0)


def test_a_prelude_that_took_longer_is_to_be_repeated() -> None:
    calmness = Calmness()
    assert _noted(calmness, [_CALM_MS, 1.76, _CALM_MS]) == [True, False, True]
    assert calmness.disturbed == 1


def test_a_processor_that_becomes_slower_is_nobodys_fault() -> None:
    """As seen on an H200: 42 of 105 preludes took 0.24 ms longer, with nothing else on the device."""
    generator = random.Random(5)  # noqa: S311 - no secret
    calmness = Calmness()
    slow = [1.76 if generator.random() < 0.4 else 1.55 for _ in range(400)]
    _noted(calmness, slow)
    assert calmness.shift_ms == pytest.approx(0.24)
    assert all(_noted(calmness, slow))


def test_after_that_a_longer_prelude_still_shows() -> None:
    calmness = Calmness()
    _noted(calmness, [1.76] * 40)
    assert not calmness.note(_CALM_MS + calmness.shift_ms + 0.16 + 0.05 * _CALM_MS, _CALM_MS)


@pytest.mark.parametrize("share", [0.4, 1.0])
@pytest.mark.parametrize("calm_ms", [0.29, _CALM_MS])
def test_work_of_somebody_elses_is_a_violation(share: float, calm_ms: float) -> None:
    generator = random.Random(7)  # noqa: S311 - no secret
    calmness = Calmness()
    busy_ms = 1.15 * calm_ms + 3 * 0.16
    with pytest.raises(Violation, match=r"the device was busy.*of late"):
        _noted(calmness, (busy_ms if generator.random() < share else calm_ms for _ in range(2000)), calm_ms)


def test_what_may_be_either_is_a_fault() -> None:
    with pytest.raises(InfrastructureFault, match="has become slower"):
        _noted(Calmness(), [_CALM_MS * 1.15 + 0.2] * 40)


def test_it_does_not_creep() -> None:
    """However slowly preludes become longer, they are held against the first."""
    calmness = Calmness()
    ever_longer = (_CALM_MS + 0.02 * (number // 30) for number in range(3000))
    with pytest.raises((InfrastructureFault, Violation)):
        _noted(calmness, ever_longer)
    assert calmness.shift_ms <= 0.15 * _CALM_MS + 0.15
