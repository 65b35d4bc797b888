"""References that candidates bring: in a file, in a field of a line, by a service and on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from api.app import create_app
from evaluator.problems.requested import requested_problem
from kerneljudge.cli.output import BadUsage
from kerneljudge.client import Client
from kerneljudge.grading.inputs import Fields, Input, KnownProblems, Refused, Work
from kerneljudge.grading.references import reference_in, reference_key
from kerneljudge_server.problems import problem_of
from runtime.settings import Settings
from tests.kerneljudge.conftest import PROBLEMS, Cli

SCALE = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x * {factor}


def get_inputs():
    return [torch.rand(16, 64)]


def get_init_inputs():
    return []
"""
CANDIDATE = """
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x * 2.0
"""


@pytest.fixture
def app(tmp_path: Path) -> FastAPI:
    """An application that takes references."""
    return create_app(Settings(data_dir=tmp_path / "data", problems_dir=PROBLEMS, request_references=True))


def _lines(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_line_with_a_reference_names_the_problem_that_it_makes(tmp_path: Path) -> None:
    source = SCALE.format(factor=2)
    policies = {"source": source, "tolerance": {"atol": 0.01, "rtol": 0.02}, "gradient_policy": "none"}
    given = _lines(
        tmp_path / "in.jsonl",
        {"code": "a", "of": source, "problem": "never read"},
        {"code": "b", "of": policies},
        {"code": "c", "of": None, "problem": "relu"},
        {"code": "d", "of": source},
    )
    known = KnownProblems([{"id": "relu", "tags": [], "kernelbench": None}])  # type: ignore[typeddict-item]
    found = [each for each in Input(given, Fields(reference="of"), None, known, "bfloat16") if isinstance(each, Work)]
    plain = reference_key({"source": source}, "bfloat16")
    assert [work.problem for work in found] == [plain, reference_key(reference_in(policies), "bfloat16"), "relu", plain]
    assert [work.sample for work in found] == [0, 0, 0, 1]
    assert found[1].reference == policies
    assert found[1].problem != plain


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        (7, "a reference is its source"),
        ({"tolerance": None}, "an object with source"),
        ({"source": "x = 1", "sizes": {}}, "no field 'sizes'"),
        ({"source": "x = 1", "tolerance": {"atol": 2, "rtol": 0}}, "between 0 and 1"),
        ({"source": "x = 1", "tolerance": {"atol": 0.1}}, "the numbers atol and rtol"),
        ({"source": "x = 1", "gradient_policy": "maybe"}, "gradient_policy of a reference must be one of check"),
        ({"source": "x = 1", "row_independent": "yes"}, "row_independent of a reference"),
    ],
)
def test_a_reference_that_is_none_refuses_its_line_alone(tmp_path: Path, reference: object, words: str) -> None:
    known = KnownProblems([])
    with pytest.raises(BadUsage, match=words):
        problem_of(reference_in(reference), None)
    given = _lines(tmp_path / "in.jsonl", {"code": "a", "ref": reference}, {"code": "b", "ref": SCALE.format(factor=2)})
    first, second = Input(given, Fields(reference="ref"), None, known)
    assert isinstance(first, Refused)
    assert words in first.message
    assert isinstance(second, Work)


def test_submit_brings_a_reference_in_place_of_a_problem(online: Cli, service: Client, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(CANDIDATE)
    (tmp_path / "model.py").write_text(SCALE.format(factor=2))
    result = online("submit", "mine.py", "--reference", "model.py", "--device", "cpu", "--json")
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert record["problem"] == requested_problem(SCALE.format(factor=2)).id
    assert service.get(record["id"])["problem"] == record["problem"]


@pytest.mark.parametrize("command", ["submit", "eval", "diagnose"])
@pytest.mark.parametrize("both", [True, False])
def test_a_problem_or_a_reference_must_be_given_and_not_both(
    online: Cli, tmp_path: Path, command: str, both: bool
) -> None:
    (tmp_path / "mine.py").write_text(CANDIDATE)
    result = online(command, "mine.py", *(["-p", "relu", "--reference", "model.py"] if both else []))
    assert result.exit_code == 2
    assert "either --problem, an id, or --reference, a file" in result.stderr


def test_lines_are_handed_in_with_their_references(online: Cli, service: Client, tmp_path: Path) -> None:
    source = SCALE.format(factor=2)
    bad = {"reference": {"source": source, "input_domain": "real"}, "code": "x = ("}
    given = _lines(tmp_path / "in.jsonl", bad, {**bad, "code": "y = ("})
    # Neither parses, so both have their verdicts at once, and nothing has to grade them.
    result = online(
        "grade", given, "--out", tmp_path / "out.jsonl", "--reference-field", "reference", "--device", "cpu"
    )
    assert result.exit_code == 1, result.output
    results = [json.loads(each) for each in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert {each["problem"] for each in results} == {problem_of(reference_in(bad["reference"]), None).id}
    assert all(service.get(each["id"])["verdict"] == "invalid_source" for each in results)


def test_references_are_judged_on_this_machine_too(cli: Cli, tmp_path: Path) -> None:
    given = _lines(
        tmp_path / "in.jsonl",
        {"code": CANDIDATE, "reference": SCALE.format(factor=2)},
        {"code": CANDIDATE, "reference": SCALE.format(factor=3)},
    )
    out = tmp_path / "out.jsonl"
    argv = ["grade", given, "--out", out, "--local", "--reference-field", "reference", "--tier", "check"]
    result = cli(*argv, "--device", "cpu", "--problems-dir", PROBLEMS)
    assert result.exit_code == 1, result.output
    results = {each["key"]: each for each in map(json.loads, out.read_text().splitlines())}
    assert [results[key]["verdict"] for key in "12"] == ["passed", "wrong_output"]
    assert "2 of 2 are in" in cli(*argv, "--device", "cpu", "--problems-dir", PROBLEMS).stderr

    (tmp_path / "model.py").write_text(SCALE.format(factor=2))
    argv = ["eval", "-", "--reference", tmp_path / "model.py", "--tier", "check", "--device", "cpu", "--json"]
    result = cli(*argv, stdin=CANDIDATE)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["problem"] == results["1"]["problem"]

    result = cli("grade", given, "--out", tmp_path / "o.jsonl", "--local", "--reference-field", "reference",
                 "--size", "smoke", "--device", "cpu", "--problems-dir", PROBLEMS)  # fmt: skip
    assert result.exit_code == 2, result.output
    assert "has no size 'smoke'" in (tmp_path / "o.jsonl").read_text()
