"""How long each step of judging a call takes."""

from __future__ import annotations

import pytest

from evaluator.candidates.candidate import Candidate, parse_candidate
from evaluator.config import EvalConfig, SamplingPlan
from evaluator.engine import Engine
from evaluator.judge.timing import timeline
from evaluator.judge.timing.timeline import Timeline, medians_ms
from evaluator.problems.problem import Problem


def test_a_step_begins_at_the_end_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([1.0, 1.5, 1.75, 2.0])
    monkeypatch.setattr(timeline.time, "perf_counter", lambda: next(clock))
    noted = Timeline()
    for step in ("drawing", "the call", "drawing"):
        noted.note(step)
    assert noted.ms == {"drawing": 750.0, "the call": 250.0}


def test_medians_are_of_the_calls_that_had_a_step() -> None:
    calls = [{"drawing": 1.0, "the call": 9.0}, {"drawing": 2.0}, {"drawing": 6.0, "the call": 5.0}]
    assert medians_ms(calls) == {"drawing": 2.0, "the call": 7.0}
    assert medians_ms([]) == {}


def test_a_record_says_what_the_steps_of_timed_calls_took(cpu_engine: Engine, problems: dict[str, Problem]) -> None:
    candidate = parse_candidate(code=problems["relu"].source + "\n\nclass ModelNew(Model):\n    pass\n")
    assert isinstance(candidate, Candidate)
    plan = SamplingPlan(min_samples=3, max_samples=3, warm_samples=0)
    evaluation = cpu_engine.evaluate(problems["relu"], candidate, EvalConfig(size="smoke", sampling=plan))
    for track in ("inference", "training"):
        steps = evaluation.details["tracks"][track]["steps_ms"]
        latency_ms = evaluation.samples[track].candidate_device_ms
        assert steps["candidate"]["the call"] >= min(latency_ms)
        for side in ("candidate", "baseline"):
            assert {"drawing", "the call", "results", "commitment"} <= set(steps[side])
            assert all(milliseconds >= 0.0 for milliseconds in steps[side].values())
        assert steps["candidate"]["comparison"] > 0.0
