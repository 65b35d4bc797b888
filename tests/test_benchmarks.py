"""What benchmarks hand in, and the tables that they print."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from sqlalchemy import func, select

from benchmarks import before_and_after, stages
from benchmarks.candidates import cuda
from benchmarks.kernelbench import KINDS, Line, chosen, sources, told
from benchmarks.page_data import fill
from benchmarks.reference_as_candidate import planned
from evaluator.candidates.candidate import Candidate, parse_candidate
from evaluator.interpreter import DISTRIBUTION_ROOT, python_command, python_environment
from runtime.settings import Settings
from storage.database import create_engine_for, session_factory
from storage.models import StoredLeaderboardEntry, Submission

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


def _taken(problem: str, number: int, seconds: float) -> stages.Taken:
    return stages.Taken(problem, number, "passed", seconds, {"verifying": seconds / 2, "total": seconds}, {}, {})


def test_two_checkouts_are_compared_by_problem_and_stage() -> None:
    then = [_taken("relu", number, seconds) for number, seconds in enumerate((9.0, 1.0, 3.0, 2.0))]
    now = [_taken("relu", number, 2 * seconds) for number, seconds in enumerate((9.0, 1.0, 3.0, 2.0))]
    kept = stages.medians(then, kept=True)
    assert kept == {"relu": {"all": 2.0, "verifying": 1.0}}
    assert stages.medians(then, kept=False) == {"relu": {"all": 9.0, "verifying": 4.5}}
    header, relu, together = before_and_after.rows(kept, stages.medians([*now, _taken("gelu", 1, 5.0)], kept=True))
    assert header.split() == ["preparing", "loading", "constructing", "verifying", "sampling", "all"]
    assert relu.split() == [
        "relu",
        *["0.00", "0.00", "-"] * 3,
        "1.00",
        "2.00",
        "2.00",
        *["0.00", "0.00", "-"],
        "2.00",
        "4.00",
        "2.00",
    ]
    assert together.split()[1:] == relu.split()[1:]


def test_the_problems_are_those_of_the_throughput() -> None:
    assert set(stages.PROBLEMS) == set(cuda.PROBLEMS)


@pytest.mark.timeout(300)
def test_each_checkout_is_measured_by_its_own_packages(tmp_path: Path) -> None:
    for name in ("benchmarks", "evaluator", "kerneljudge", "reference_models"):
        shutil.copytree(DISTRIBUTION_ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(DISTRIBUTION_ROOT / "pyproject.toml", tmp_path)  # it is what a checkout is known by
    (tmp_path / "evaluator" / "__init__.py").write_text("import sys\n\nprint('the copy', file=sys.stderr)\n")
    # Another version's lines may have other fields.
    benchmark = tmp_path / "benchmarks" / "stages.py"
    benchmark.write_text(benchmark.read_text().replace("asdict(taken)", "{**asdict(taken), 'of_its_own': 1}"))
    command = python_command("-m", "benchmarks.before_and_after", str(tmp_path))
    command += ["--problems", "softmax", "--times", "2", "--rounds", "1"]
    done = subprocess.run(
        command, env=python_environment(os.environ), capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the copy" in done.stderr
    tables = [line.split() for line in done.stdout.splitlines() if line.startswith("softmax")]
    assert len(tables) == 2  # with a new baseline, and with one that is kept
    assert all(float(cell) > 0 for table in tables for cell in table[-3:])


def test_a_checkout_whose_engine_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "stages.py").write_text("raise SystemExit(1)\n")
    monkeypatch.setattr(sys, "argv", ["before_and_after", str(tmp_path), "--rounds", "1"])
    with pytest.raises(SystemExit, match="0 of 24 evaluations, then exit status 1"):
        before_and_after.main()


def test_what_is_no_checkout_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["before_and_after", str(tmp_path)])
    with pytest.raises(SystemExit):
        before_and_after.main()
    assert "is no checkout of this project" in capsys.readouterr().err


def test_a_database_for_the_pages_has_the_newest_schema_and_figures_that_are_shown(tmp_path: Path) -> None:
    settings = Settings(database_url=f"sqlite:///{tmp_path / 'pages.db'}")
    fill(settings, 300, Path("reference_models"))
    with session_factory(create_engine_for(settings)).begin() as session:
        assert session.scalar(select(func.count()).select_from(Submission)) == 300
        assert session.scalar(select(func.count()).select_from(StoredLeaderboardEntry)) > 0
