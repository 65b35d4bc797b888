"""Large tensors in timed calls: what is compared in secret rows alone, after trials in which all of it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from evaluator.candidates.candidate import Candidate, parse_candidate
from evaluator.config import EvalConfig, SamplingPlan
from evaluator.engine import Engine
from evaluator.errors import ProblemError
from evaluator.evaluation import Gradients, Verdict
from evaluator.judge.correctness.commitment import INPUT_BLOCKS, Commitment
from evaluator.judge.correctness.verify import CallFindings
from evaluator.judge.errors import Violation
from evaluator.judge.inputs.drawing import Variant
from evaluator.problems.loading import load_problem
from evaluator.problems.problem import Problem
from evaluator.protocol.control_page import CallReport
from tests.evaluator.verifying import verifier_over_blocks

REFERENCE = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns)) if weighted else None

    def forward(self, x):
        return torch.relu(x if self.weight is None else x * self.weight)


rows = 24
columns = 64
weighted = False


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
"""
# "full" is twice as much as is treated at a time on a CPU: two slices of 256 rows.
MANIFEST = """\
title = "T"
description = "D"
[sizes.full]
rows = 512
columns = 32768
[sizes.smoke]
rows = 512
[sizes.weighted]
rows = 512
weighted = 1
[sizes.few]
rows = 16
columns = 2048
[sizes.unsliced]
rows = 1024
columns = 512
[sizes.whole]
rows = 4096
columns = 512
[sizes.short]
rows = 32768
columns = 16
[sizes.small]
rows = 1023
columns = 512
[reference]
row_independent = true
"""
CANDIDATE = """\
import torch

calls = 0


class ModelNew(torch.nn.Module):
    def forward(self, x):
        global calls
        calls += 1
        y = torch.relu(x)
        if {when}:
            {change}
        return y
"""
FAILS_IN_A_RUNNER = """\
import sys

        if "evaluator.judge.session" not in sys.modules:
            raise RuntimeError("not here")
        return torch.relu"""
SLICE_ELEMENTS = 2**14


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    folder = tmp_path / "large"
    folder.mkdir()
    (folder / "reference.py").write_text(REFERENCE)
    (folder / "problem.toml").write_text(MANIFEST)
    return load_problem(folder)


def test_rows_left_out_once_calls_are_timed_are_found(cpu_engine: Engine, problem: Problem) -> None:
    plan = SamplingPlan(trials=1, gradient_trials=1, max_samples=3, warm_samples=0)
    candidate = parse_candidate(
        code=CANDIDATE.format(when=f"calls > {plan.trials + plan.gradient_trials}", change="y[-16:] = 0")
    )
    assert isinstance(candidate, Candidate)
    evaluation = cpu_engine.evaluate(problem, candidate, EvalConfig(size="full", sampling=plan))
    assert evaluation.verdict is Verdict.WRONG_OUTPUT
    assert evaluation.gradients is Gradients.MATCH
    assert "in 256 rows that were looked at" in evaluation.message
    row = int(evaluation.message.partition("at [")[2].partition(",")[0])
    assert 496 <= row < 512, evaluation.message


class SpotCheck:
    """One forward and backward call, right in every element until a test changes something."""

    def __init__(self, problem: Problem, size: str = "smoke", slice_elements: int = SLICE_ELEMENTS) -> None:
        self.verifier, blocks = verifier_over_blocks(problem, size, slice_elements)
        self.x, self.y, self.upstream, self.gradient = (block.tensors[0] for block in blocks.values())

    def begin(self) -> Commitment:
        """Up to "done": inputs are given, and outputs there."""
        commitment = self.verifier.commitments.prepare([*INPUT_BLOCKS, "outputs", "input_gradients"], spot_check=True)
        given, upstream = torch.randn_like(self.x), torch.randn_like(self.upstream)
        for name, value, target in (("inputs", given, self.x), ("upstream", upstream, self.upstream)):
            target.copy_(value)
            self.verifier.commitments.commit(commitment, {name: [value]})
        self.y.copy_(self.x.relu())
        self.gradient.copy_(self.upstream * (self.x > 0))
        return commitment

    def end(self, commitment: Commitment) -> CallFindings:
        """The judge's reading of what is there, and its comparison."""
        self.verifier.commitments.pick(commitment, INPUT_BLOCKS)
        for tensor in (self.x, self.upstream):
            tensor.fill_(torch.nan)
        self.verifier.commitments.pick(commitment, ["outputs", "input_gradients"])
        for tensor in (self.y, self.gradient):
            tensor.fill_(torch.nan)  # whatever is written afterwards, or was elsewhere, does not count
        report = CallReport(device_ms=1.0, peak_bytes=0, present=3, forward_ms=0.5)
        return self.verifier.verify_gradients(commitment, report, 0, Variant.SIGNED, with_native=False)


def test_what_is_right_is_found_right(problem: Problem) -> None:
    spot_check = SpotCheck(problem)
    spot_check.verifier.influence = {0: 0.5}
    findings = spot_check.end(spot_check.begin())
    assert (findings.verdict, findings.gradients) == (None, Gradients.MATCH)
    # What the output depends on is learnt from whole calls, and not forgotten.
    assert spot_check.verifier.influence == {0: 0.5}
    assert [tally.total for tally in findings.tallies] == [SLICE_ELEMENTS, SLICE_ELEMENTS]


def test_planted_rows_are_looked_at_in_any_case(problem: Problem) -> None:
    spot_check = SpotCheck(problem)
    for planted in ([], [3], [0, 17, 511]):
        rows = spot_check.verifier.commitments.prepare(
            [*INPUT_BLOCKS, "outputs"], spot_check=True, planted=planted
        ).rows
        assert rows is not None
        assert set(planted) <= set(rows.tolist())
        assert len(set(rows.tolist())) == 256


def test_each_call_has_other_rows(problem: Problem) -> None:
    spot_check = SpotCheck(problem)
    chosen = [spot_check.begin().rows for _ in range(2)]
    assert chosen[0] is not None
    assert chosen[1] is not None
    assert len(set(chosen[0].tolist())) == 256
    assert not torch.equal(chosen[0], chosen[1])


@pytest.mark.parametrize("what", ["y", "gradient"])
def test_one_wrong_element_in_a_row_that_is_looked_at_is_found(problem: Problem, what: str) -> None:
    spot_check = SpotCheck(problem)
    commitment = spot_check.begin()
    assert commitment.rows is not None
    row = int(commitment.rows[17])
    getattr(spot_check, what)[row, 5] = 9.0
    findings = spot_check.end(commitment)
    assert findings.verdict is {"y": Verdict.WRONG_OUTPUT, "gradient": Verdict.WRONG_GRADIENT}[what]
    assert f"at [{row}, 5] it is 9" in findings.message


@pytest.mark.parametrize(("what", "said"), [("x", "input 0 was changed"), ("upstream", "the gradient given to")])
def test_what_is_given_must_be_as_it_was(problem: Problem, what: str, said: str) -> None:
    spot_check = SpotCheck(problem)
    commitment = spot_check.begin()
    assert commitment.rows is not None
    # Single places are read while the clock runs, and not rows.
    getattr(spot_check, what)[: len(spot_check.x) // 2] += 1
    with pytest.raises(Violation, match=said):
        spot_check.end(commitment)


def test_it_is_not_enough_for_the_gradients_of_weights_or_few_rows(problem: Problem) -> None:
    assert SpotCheck(problem).verifier.commitments.may_spot_check(gradients=True)
    weighted, few = (SpotCheck(problem, size).verifier.commitments for size in ("weighted", "few"))
    assert weighted.may_spot_check(gradients=False)
    assert not weighted.may_spot_check(gradients=True)
    assert not few.may_spot_check(gradients=False)


@pytest.mark.parametrize(("size", "rows"), [("unsliced", 256), ("short", 4096)])
def test_256_rows_are_looked_at_or_more_of_short_ones(size: str, rows: int, problem: Problem) -> None:
    spot_check = SpotCheck(problem, size, 2**21)
    assert not spot_check.verifier.commitments.sliced
    assert spot_check.verifier.commitments.may_spot_check(gradients=True)
    commitment = spot_check.begin()
    assert commitment.rows is not None
    assert len(commitment.rows) == rows
    assert spot_check.end(commitment).gradients is Gradients.MATCH


def test_small_tensors_are_looked_at_as_a_whole(problem: Problem) -> None:
    assert not SpotCheck(problem, "small", 2**21).verifier.commitments.may_spot_check(gradients=True)
    assert SpotCheck(problem).verifier.commitments.sliced


def test_what_is_not_sliced_is_compared_as_a_whole_in_every_trial(cpu_engine: Engine, problem: Problem) -> None:
    plan = SamplingPlan(trials=4, gradient_trials=3, max_samples=0)
    candidate = parse_candidate(code=CANDIDATE.format(when="calls == 4", change="y[-1, -1] += 1"))
    assert isinstance(candidate, Candidate)
    evaluation = cpu_engine.evaluate(problem, candidate, EvalConfig(size="whole", sampling=plan))
    assert evaluation.verdict is Verdict.WRONG_OUTPUT
    assert "rows that were looked at" not in evaluation.message
    assert "at [4095, 511]" in evaluation.message


def test_a_baseline_that_fails_is_found_where_nothing_is_timed(cpu_engine: Engine, problem: Problem) -> None:
    # In the judge the reference is what it says, in its runner it is not.
    broken = replace(problem, source=problem.source.replace("return torch.relu", FAILS_IN_A_RUNNER))
    candidate = parse_candidate(code=CANDIDATE.format(when=False, change="pass"))
    assert isinstance(candidate, Candidate)
    plan = SamplingPlan(trials=1, gradient_trials=1, max_samples=0)
    with pytest.raises(ProblemError, match="the reference fails"):
        cpu_engine.evaluate(broken, candidate, EvalConfig(size="smoke", sampling=plan))
