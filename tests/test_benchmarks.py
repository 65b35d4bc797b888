"""What benchmarks hand in, and the tables that they print."""

from __future__ import annotations

import sys
import types
from dataclasses import replace
from typing import Any

import pytest
import torch

from benchmarks.kernelbench import KINDS, Line, chosen, sources, told
from benchmarks.reference_as_candidate import planned
from evaluator.candidate import Candidate, parse_candidate

_LINE = Line(
    problem="kernelbench_1_019_relu",
    kind="reference",
    outcome="passed",
    message="",
    seconds=2.0,
    stage_s={"verifying": 1.0, "total": 1.5},
    planned_bytes=2**31,
    peak_bytes=2**30,
    baseline_ms=2.2,
    device="cuda",
    size="full",
)


class Model(torch.nn.Module):
    """A reference: one tensor, or several."""

    def __init__(self, several: bool) -> None:
        super().__init__()
        self.several = several

    def forward(self, x: torch.Tensor) -> Any:
        return (x.clone(), x.clone()) if self.several else x.clone()


def _made(kind: str, monkeypatch: pytest.MonkeyPatch, *, several: bool) -> torch.nn.Module:
    module = types.ModuleType("model")
    module.Model = Model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "model", module)
    scope: dict[str, Any] = {}
    exec(sources()[kind], scope)  # noqa: S102 - the benchmark's own text
    made = scope["ModelNew"](several)
    assert isinstance(made, torch.nn.Module)
    return made


def test_each_kind_is_a_candidate() -> None:
    assert set(sources()) == set(KINDS)
    assert all(isinstance(parse_candidate(code=source), Candidate) for source in sources().values())


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize(
    "x", [torch.randn(5, 7), torch.zeros(5, 7), torch.arange(35).view(7, 5).t(), torch.tensor(2.0)]
)
def test_what_is_wrong_is_wrong_in_all_or_in_one_element(
    x: torch.Tensor, several: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind, wrong in (("reference", 0), ("wrong", x.numel()), ("corner", 1)):
        found = _made(kind, monkeypatch, several=several)(x)
        first = found[0] if several else found
        assert int((first != x).sum()) == wrong, kind
        assert not several or torch.equal(found[1], x)
    with pytest.raises(RuntimeError, match="on purpose"):
        _made("raises", monkeypatch, several=several)(x)


def test_shards_share_the_problems_of_a_sample() -> None:
    problems = [f"p{number}" for number in range(20)]
    shards = [chosen(problems, 10, 3, f"{part}/3") for part in (1, 2, 3)]
    whole = chosen(problems, 10, 3, "1/1")
    assert sorted(problem for shard in shards for problem in shard) == sorted(whole)
    assert len(set(whole)) == 10
    assert set(chosen(problems, None, 3, "1/1")) == set(problems)


def test_the_tables_name_what_is_not_as_expected_and_how_far_baselines_are_apart() -> None:
    wrong = replace(_LINE, kind="wrong", outcome="passed", message="", baseline_ms=None)
    text = told([_LINE, wrong], {"kernelbench_1_019_relu": 1.1})
    assert "NOT AS EXPECTED: wrong: passed" in text
    assert "NOT AS EXPECTED: reference" not in text
    assert "within 10 % of the published one: 0 of 1" in text
    assert "kernelbench_1_019_relu: 2.00 times" in text
    assert "in all: 2 in 4 s of the service's time, 30.0 a minute" in text
    assert "within 10 % of the published one: 1 of 1" in told([_LINE], {"kernelbench_1_019_relu": 2.1})


def test_each_shard_has_every_precision_and_all_of_them_have_everything_once() -> None:
    problems, precisions = ["a", "b", "c", "d"], ["float32", "float16", "bfloat16"]
    shards = [planned(problems, precisions, 2, f"{number}/3") for number in (1, 2, 3)]
    assert sorted(run for shard in shards for run in shard) == sorted(planned(problems, precisions, 2))
    assert [{run.precision for run in shard} for shard in shards] == [set(precisions)] * 3
    assert {run.repetition for run in planned(problems, precisions, 2)[:12]} == {0}
