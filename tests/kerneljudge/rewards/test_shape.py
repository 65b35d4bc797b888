"""Rewards of verdicts: being right, being fast, and the doubt about both."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerneljudge.grading.local_record import blank_record
from kerneljudge.records import SubmissionRecord
from kerneljudge.rewards import RewardShape, Ungraded, Unmeasured
from kerneljudge.terms.outcomes import Verdict

_FAILING = [verdict for verdict in Verdict if verdict is not Verdict.PASSED]
_AMOUNTS = st.floats(min_value=0, max_value=10)


def record(verdict: str | None = "passed", **known: Any) -> SubmissionRecord:
    return blank_record("relu", **{"status": "done", "verdict": verdict, "gradients": "match", **known})


def between(low: float, high: float) -> dict[str, float]:
    return {"low": low, "high": high, "level": 0.95}


def test_being_right_pays_and_being_fast_pays_more() -> None:
    shape = RewardShape(correct=0.5, log_speedup=2.0, cap=1.0, least=0.2)
    assert shape.reward(record(speedup=1.0)) == 0.5
    assert shape.reward(record(speedup=1.2)) == pytest.approx(0.5 + 2 * math.log(1.2))
    assert shape.reward(record(speedup=100.0)) == 1.5
    assert shape.reward(record(speedup=0.9)) == pytest.approx(0.5 + 2 * math.log(0.9))
    assert shape.reward(record(speedup=0.001)) == 0.2
    assert shape.reward(record(speedup=None)) == 0.5


@pytest.mark.parametrize("status", ["unsettled", "not_vetted"])
def test_what_passed_without_a_figure_has_no_reward_of_0_unless_that_is_asked_for(status: str) -> None:
    known = record(speedup=None, speedup_status=status)
    assert RewardShape().reward(known) is None
    assert RewardShape(unmeasured=0.2).reward(known) == 0.2
    with pytest.raises(Unmeasured, match=status):
        RewardShape(unmeasured="raise").reward(known)
    # The other track has its own status, and what did not pass needs no figure.
    assert RewardShape(track="training").reward(known) == 0.3
    assert RewardShape().reward(record("wrong_output", speedup_status=status)) == 0


def test_who_leaves_constant_weights_out_is_paid_for_being_right_alone() -> None:
    known = record(speedup=None, speedup_status="weights_fixed")
    assert RewardShape(unmeasured="raise").reward(known) == 0.3


def test_the_training_track_has_its_own_speedup() -> None:
    known = record(speedup=1.0, speedup_training=math.e)
    assert RewardShape(track="training").reward(known) == pytest.approx(1.3)
    assert RewardShape().reward(known) == 0.3


def test_missing_gradients_can_cost_what_was_earned() -> None:
    known = record(speedup=1.0, gradients="missing")
    assert RewardShape().reward(known) == 0.3
    assert RewardShape(missing_gradients=0.1).reward(known) == pytest.approx(0.2)
    assert RewardShape(missing_gradients=5).reward(known) == 0


def test_what_fails_costs_its_penalty() -> None:
    shape = RewardShape(penalties={"invalid_source": 0.5, "timeout": 0.25})
    assert shape.reward(record("invalid_source")) == -0.5
    assert shape.reward(record("timeout")) == -0.25
    assert shape.reward(record("wrong_output")) == 0
    assert RewardShape().reward(record("rejected")) == -1


@pytest.mark.parametrize("status", ["failed", "cancelled", "queued"])
def test_what_was_not_graded_has_no_reward_of_0_unless_that_is_asked_for(status: str) -> None:
    known = record(None, status=status)
    assert RewardShape().reward(known) is None
    assert RewardShape(ungraded=-0.125).reward(known) == -0.125
    with pytest.raises(Ungraded, match=status):
        RewardShape(ungraded="raise").reward(known)


def test_the_lower_end_of_the_interval_counts_unless_the_middle_is_asked_for() -> None:
    known = record(speedup=2.0, speedup_interval=between(1.5, 2.6))
    assert RewardShape().reward(known) == pytest.approx(0.3 + math.log(1.5))
    assert RewardShape(estimate="point").reward(known) == pytest.approx(0.3 + math.log(2.0))


def test_a_difference_that_cannot_be_told_earns_nothing_for_being_fast() -> None:
    wide = record(speedup=1.12, speedup_interval=between(0.89, 1.86))
    sure = record(speedup=1.12, speedup_interval=between(1.11, 1.13))
    reward = RewardShape().reward
    assert (reward(wide) or 0) < 0.3 < (reward(sure) or 0)
    assert reward(record(speedup=3.0, speedup_interval=between(0.0, 9.0))) == 0.1


def test_each_track_has_its_own_interval() -> None:
    known = record(speedup=1.0, speedup_training=3.0, speedup_training_interval=between(math.e, 4.0))
    assert RewardShape(track="training").reward(known) == pytest.approx(1.3)


def test_a_share_of_the_roofline_bound_pays() -> None:
    shape = RewardShape(log_speedup=0, roofline=2.0)
    known = record(speedup=5.0, speedup_status="measured", roofline={"inference": {"share": 0.25}})
    assert shape.reward(known) == pytest.approx(0.8)
    over = record(speedup=5.0, speedup_status="measured", roofline={"inference": {"share": 1.5}})
    assert shape.reward(over) == pytest.approx(2.3)
    both = RewardShape(log_speedup=1.0, roofline=1.0)
    assert both.reward(known) == pytest.approx(0.3 + math.log(5.0) + 0.25)


def test_an_unknown_roofline_is_no_share_of_0() -> None:
    shape = RewardShape(roofline=1.0)
    known = record(speedup=5.0, speedup_status="measured", roofline={"training": {"share": 0.25}})
    assert shape.reward(known) is None
    with pytest.raises(Unmeasured, match="roofline"):
        RewardShape(roofline=1.0, unmeasured="raise").reward(known)
    # Nothing was timed, which is no doubt about a figure.
    assert shape.reward(record(speedup=None)) == 0.3
    assert RewardShape().reward(known) == pytest.approx(0.3 + math.log(5.0))


@given(
    verdict=st.sampled_from(_FAILING),
    speedup=st.none() | st.floats(min_value=1e-3, max_value=1e9),
    gradients=st.sampled_from(["match", "missing", "not_checked"]),
    correct=_AMOUNTS,
    log_speedup=_AMOUNTS,
    cap=_AMOUNTS,
    penalties=st.dictionaries(st.sampled_from(_FAILING), _AMOUNTS),
)
def test_nothing_that_did_not_pass_ever_earns(
    verdict: Verdict,
    speedup: float | None,
    gradients: str,
    correct: float,
    log_speedup: float,
    cap: float,
    penalties: dict[str, float],
) -> None:
    shape = RewardShape(correct=correct, log_speedup=log_speedup, cap=cap, least=0, penalties=penalties)
    failed = record(verdict, speedup=speedup, speedup_training=speedup, gradients=gradients)
    assert shape.reward(failed) <= 0 <= shape.reward(record(speedup=speedup, gradients=gradients))


@pytest.mark.parametrize(
    "values",
    [
        {"correct": -1.0, "least": -1.0},
        {"correct": 0.1, "least": 0.2},
        {"log_speedup": -1.0},
        {"cap": math.nan},
        {"missing_gradients": -0.1},
        {"track": "both"},
        {"estimate": "high"},
        {"roofline": -0.5},
        {"ungraded": "none"},
        {"unmeasured": "zero"},
        {"penalties": {"rejected": -1.0}},
        {"penalties": {"rejected": math.nan}},
        {"penalties": {"passed": 1.0}},
        {"penalties": {"slow": 1.0}},
    ],
)
def test_a_shape_that_would_reward_failing_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must|there is no"):
        RewardShape(**values)
