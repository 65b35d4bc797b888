"""What the judge makes of preludes that take longer than they did."""

from __future__ import annotations

import random

import pytest

from evaluator.judge.calmness import Calmness
from evaluator.judge.verify import Violation

_CALM_MS = 0.14
_CALM_LOOK_MS = 3.2


def _settles(calmness: Calmness, prelude_ms: float, look_ms: float) -> bool:
    """Whether a call may begin after a prelude, or it has to be repeated."""
    return calmness.in_time(prelude_ms, _CALM_MS) or calmness.undisturbed(look_ms, _CALM_LOOK_MS)


def test_as_long_as_at_first_is_calm_and_nobody_looks() -> None:
    calmness = Calmness()
    assert all(calmness.in_time(prelude_ms, _CALM_MS) for prelude_ms in [0.14, 0.12, 0.22] * 50)
    assert (calmness.preludes, calmness.late, calmness.disturbed) == (150, 0, 0)


def test_a_processor_that_becomes_slower_is_nobodys_fault() -> None:
    """As seen on four H200s at work: preludes took two to three times as long, with nothing else on the device."""
    calmness = Calmness()
    assert all(_settles(calmness, 0.43, look_ms) for look_ms in [3.2, 3.25, 3.15, 3.4] * 100)
    assert (calmness.late, calmness.disturbed) == (400, 0)


def test_a_disturbed_prelude_is_repeated() -> None:
    calmness = Calmness()
    assert not _settles(calmness, 0.43, _CALM_LOOK_MS * 1.05 + 0.16)
    assert _settles(calmness, 0.43, _CALM_LOOK_MS)
    assert (calmness.late, calmness.disturbed) == (2, 1)


@pytest.mark.parametrize("share", [0.4, 1.0])
def test_work_of_somebody_elses_is_a_violation_if_it_is_always_there(share: float) -> None:
    generator = random.Random(7)  # noqa: S311 - no secret
    calmness = Calmness()
    looks_ms = [5.2 if generator.random() < share else _CALM_LOOK_MS for _ in range(1000)]
    with pytest.raises(Violation, match=r"the device was busy.*instead of 3\.200 ms"):
        [_settles(calmness, 0.43, look_ms) for look_ms in looks_ms]
    assert calmness.disturbed > 10


def test_a_disturbance_now_and_then_is_not() -> None:
    calmness = Calmness()
    for number in range(1000):
        _settles(calmness, 0.43, 5.2 if number % 5 == 0 else _CALM_LOOK_MS)
    assert calmness.disturbed == 200
