"""``kerneljudge eval`` on a problem that nobody has vetted: what passes first has it vetted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaluator.config import EvalConfig
from evaluator.errors import InfrastructureFault
from evaluator.evaluation import Evaluation, Interval, Latency, Verdict
from evaluator.problems.loading import load_problem
from evaluator.problems.problem import Problem
from evaluator.problems.vetting import REFUSALS, Label
from kerneljudge.cli.render import submission as rendered
from kerneljudge_server import kept_vettings
from tests.kerneljudge.conftest import PROBLEMS, Cli

CONFIG = EvalConfig(device="cpu", size="smoke")


class CountingJudge:
    """Lets everything pass, or what vetting tries fail. ``asked``: how often."""

    environment: dict[str, Any] = {"torch": "2.9"}  # noqa: RUF012 - read only

    def __init__(self, *, lenient: bool) -> None:
        self._lenient = lenient
        self.asked = 0

    def evaluate(self, problem: Problem, candidate: Any, config: EvalConfig) -> Evaluation:
        self.asked += 1
        right = self._lenient or "raise Finding" in candidate.source or candidate.source.endswith("    pass\n")
        return replace(passed(problem, config), verdict=Verdict.PASSED if right else Verdict.WRONG_OUTPUT)


def passed(problem: Problem, config: EvalConfig, **changes: Any) -> Evaluation:
    where = {"device": config.device_kind, "size": config.size, "precision": config.precision}
    return Evaluation(Verdict.PASSED, "", problem=problem.id, problem_version=problem.version, **where, **changes)


def fast(problem: Problem, config: EvalConfig = CONFIG) -> Evaluation:
    latency = Latency(1.0, 180.0, 1.0, 180.0)
    figures = {"speedup": 180.0, "speedup_interval": Interval(170.0, 190.0), "latency_ms": latency}
    return passed(problem, config, **figures)


@pytest.fixture
def unvetted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Problem]:
    monkeypatch.setenv("KERNELJUDGE_DATA_DIR", str(tmp_path / "data"))
    return replace(load_problem(PROBLEMS / "relu"), vettings=())


def vetted(judge: CountingJudge, problem: Problem, config: EvalConfig = CONFIG) -> Evaluation:
    stages: list[str] = []
    found = kept_vettings.vetted(judge, problem, config, fast(problem, config), lambda step: stages.append(step.stage))
    assert set(stages) <= {"vetting"}
    return found


def test_a_sound_problem_is_vetted_once_and_has_figures(unvetted: Problem) -> None:
    judge = CountingJudge(lenient=False)
    assert vetted(judge, unvetted).speedup == 180.0
    asked = judge.asked
    assert asked > 10
    assert vetted(judge, unvetted).speedup == 180.0
    assert judge.asked == asked, "it is kept"
    assert vetted(judge, unvetted, replace(CONFIG, precision="float16")).speedup == 180.0
    assert judge.asked > asked, "for each precision"
    changed = replace(unvetted, gradient_policy="none")
    asked = judge.asked
    vetted(judge, changed)
    assert judge.asked > asked, "and version"


def test_a_problem_at_fault_has_the_reason_in_place_of_figures(unvetted: Problem) -> None:
    judge = CountingJudge(lenient=True)
    for _ in range(2):
        found = vetted(judge, unvetted)
        assert (found.verdict, found.speedup, found.latency_ms) == ("passed", None, None)
        assert REFUSALS[Label.ZEROS_PASS] in found.notes[-1]


def test_a_vetting_that_breaks_off_leaves_no_figure_and_is_made_again(
    unvetted: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = CountingJudge(lenient=False)

    def broken(*_given: object) -> Evaluation:
        raise InfrastructureFault("the judge died")

    with monkeypatch.context() as patched:
        patched.setattr(judge, "evaluate", broken)
        with pytest.raises(InfrastructureFault):
            vetted(judge, unvetted)
    assert vetted(judge, unvetted).speedup == 180.0


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"labels": ["smells"], "checks": []}'])
def test_a_kept_vetting_that_cannot_be_read_is_made_again(unvetted: Problem, text: str, tmp_path: Path) -> None:
    vetted(CountingJudge(lenient=True), unvetted)
    (kept,) = (tmp_path / "data" / "cache" / "vettings").iterdir()
    kept.write_text(text)
    assert vetted(CountingJudge(lenient=False), unvetted).speedup == 180.0


def test_what_does_not_pass_and_what_was_vetted_where_it_comes_from_asks_nothing(unvetted: Problem) -> None:
    judge = CountingJudge(lenient=True)
    wrong = replace(passed(unvetted, CONFIG), verdict=Verdict.WRONG_OUTPUT)
    assert kept_vettings.vetted(judge, unvetted, CONFIG, wrong, lambda _step: None) is wrong
    known = load_problem(PROBLEMS / "relu")
    assert vetted(judge, known).speedup == 180.0
    assert judge.asked == 0


def test_the_command_line_vets_a_problem_that_does_not_depend_on_its_input(cli: Cli, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(PROBLEMS / "relu", tmp_path / "problems" / "always_zero"))
    (folder / "vetting.json").unlink()
    source = (folder / "reference.py").read_text()
    assert "return torch.relu(x)" in source
    (folder / "reference.py").write_text(source.replace("return torch.relu(x)", "return torch.relu(x) * 0.0"))
    zeros = tmp_path / "zeros.py"
    zeros.write_text(
        "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
        "        return torch.zeros_like(x)\n"
    )
    argv = ["eval", zeros, "-p", "always_zero", "--device", "cpu", "--problems-dir", tmp_path / "problems", "--json"]
    result = cli(*argv)
    record = json.loads(result.stdout)
    assert (record["verdict"], record["speedup"], record["speedup_status"]) == ("passed", None, "not_vetted")
    assert (record["latency_ms"], record["roofline_share"]) == (None, None)
    assert REFUSALS[Label.ZEROS_PASS] in record["notes"][-1]
    assert "vetting" in result.stderr
    assert rendered(record)
