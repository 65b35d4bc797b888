"""The record of an evaluation: figures exist exactly where their status allows them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from evaluator.evaluation import Evaluation, Gradients, Interval, SpeedupStatus, Verdict
from evaluator.roofline import Roofline


def _passed(**known: Any) -> Evaluation:
    given = {"problem": "gelu", "problem_version": "1", "device": "cpu", "size": "smoke", "precision": "float32"}
    return Evaluation(**{"verdict": Verdict.PASSED, "message": "", **given, **known})


def test_a_figure_is_measured_and_the_status_survives_the_record() -> None:
    found = _passed(speedup=1.5, speedup_interval=Interval(1.4, 1.6), speedup_training_status=SpeedupStatus.UNSETTLED)
    assert found.speedup_status is SpeedupStatus.MEASURED
    assert found.unsettled
    assert Evaluation.from_dict(found.to_dict()) == found


def test_a_record_that_is_older_than_the_status_has_it_from_its_figures() -> None:
    older = _passed(speedup=1.5).to_dict()
    del older["speedup_status"], older["speedup_training_status"]
    read = Evaluation.from_dict(older)
    assert (read.speedup_status, read.speedup_training_status) == (SpeedupStatus.MEASURED, None)


@pytest.mark.parametrize(
    "known",
    [
        {"speedup": 1.5, "speedup_status": SpeedupStatus.UNSETTLED},
        {"speedup_status": SpeedupStatus.MEASURED},
        {"speedup_training": 1.5, "speedup_training_status": SpeedupStatus.NOT_VETTED},
        {"verdict": Verdict.WRONG_OUTPUT, "speedup_status": SpeedupStatus.UNSETTLED},
    ],
)
def test_a_status_that_its_figure_belies_is_refused(known: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="status"):
        _passed(**known)


def test_without_speedup_takes_every_figure_and_gives_none_to_what_was_not_measured() -> None:
    bound = Roofline(1.0, "memory", 0.5, 1.0, None, 1.0, 8, 8, 8.0, None)
    found = _passed(
        speedup=1.5, speedup_warm=1.6, speedup_compiled=1.1, roofline_share=0.5, roofline={"inference": bound}
    )
    left = found.without_speedup(SpeedupStatus.NOT_VETTED)
    assert left.speedup_status is SpeedupStatus.NOT_VETTED
    assert left.speedup_training_status is None
    assert (left.speedup, left.speedup_warm, left.speedup_compiled, left.roofline_share) == (None,) * 4
    assert not left.roofline
    check = _passed(gradients=Gradients.MATCH).without_speedup(SpeedupStatus.NOT_VETTED)
    assert (check.speedup_status, check.speedup_training_status) == (SpeedupStatus.NOT_VETTED,) * 2
    wrong = replace(_passed(), verdict=Verdict.WRONG_OUTPUT)
    assert wrong.without_speedup(SpeedupStatus.NOT_VETTED) is wrong
