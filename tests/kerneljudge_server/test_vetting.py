"""``kerneljudge problems check``, and what the other commands say of what it found."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from evaluator.errors import InfrastructureFault
from evaluator.problems.loading import load_problem
from evaluator.problems.vetting import REFUSALS, Label, Vetting
from kerneljudge.cli import render
from kerneljudge.records import Board, ProblemRecord
from kerneljudge.terms.rules import Rules
from kerneljudge_server import local
from kerneljudge_server.problems import problem_record
from tests.kerneljudge.conftest import PROBLEMS, Cli

REFERENCE = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        {forward}


rows = 8


def get_inputs():
    return [torch.rand(rows, 64)]


def get_init_inputs():
    return []
"""
MANIFEST = 'title = "T"\ndescription = "D"\n[sizes.full]\nrows = 8\n[sizes.smoke]\nrows = 8\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two problems: one that cannot be differentiated, and one that fails."""
    for name, forward in (("broken", "raise ValueError('not today')"), ("order", "return x.argsort(stable=True)")):
        problem = tmp_path / "odd" / name
        problem.mkdir(parents=True)
        (problem / "reference.py").write_text(REFERENCE.format(forward=forward))
        (problem / "problem.toml").write_text(MANIFEST)
    return tmp_path / "odd"


def found(*labels: Label) -> Vetting:
    """What may have been found about ``relu``."""
    known = load_problem(PROBLEMS / "relu").vettings_at("float32")[0]
    return replace(known, labels=labels, refusals=tuple(REFUSALS[label] for label in labels if label in REFUSALS))


def test_what_fits_on_a_gpu_of_so_much_memory_is_told_without_one(cli: Cli) -> None:
    result = cli("problems", "check", "relu", "softmax", "--memory", "24")
    assert result.exit_code == 1, result.output
    rows = {line.split()[0]: line for line in result.stdout.splitlines()}
    assert re.search(r"does not fit, 1/[248] of its bytes would", rows["relu"])
    assert "full" in rows["softmax"]
    assert rows["softmax"].rstrip().endswith("fits")
    assert "1 of 2 fit on 24 GiB" in result.stdout


def test_what_fits_is_one_json_object_for_a_program(cli: Cli) -> None:
    result = cli(
        "problems", "check", "softmax", "--memory", "80", "--precision", "float32", "--size", "smoke", "--json"
    )
    assert result.exit_code == 0, result.output
    (item,) = json.loads(result.stdout)["items"]
    assert (item["problem"], item["size"], item["fits"], item["scale"]) == ("softmax", "smoke", True, "1/1")
    assert 0 < item["planned_bytes"] <= item["room_bytes"]


def test_a_plan_asks_no_device_and_stores_nothing(cli: Cli) -> None:
    for option in (["--write"], ["--device", "cpu"]):
        result = cli("problems", "check", "relu", "--memory", "80", *option)
        assert result.exit_code == 2
        assert "leave out --write and --device" in result.output


def test_a_refused_problem_is_status_1_with_a_table_of_what_was_tried(cli: Cli, folder: Path) -> None:
    result = cli("problems", "check", "--device", "cpu", "--write", "--problems-dir", folder)
    assert result.exit_code == 1, result.stderr
    for words in (
        "order  (cpu, smoke, float32)", "wrong output", "no_gradient: there is nothing to differentiate", "  ranked",
        "not ranked: The reference itself fails, so nothing can be judged. (", "not today",
    ):  # fmt: skip
        assert words in result.stdout, words
    assert "broken: float64" in result.stderr
    assert f"written: {folder / 'broken' / 'vetting.json'}" in result.stderr
    assert load_problem(folder / "order").labels == (Label.NO_GRADIENT,)

    listed = cli("problems", "list", "--problems-dir", folder).stdout
    assert "not ranked: reference_fails" in listed
    shown = cli("problems", "show", "broken", "--problems-dir", folder).stdout
    assert "The reference itself fails" in shown
    record = json.loads(cli("problems", "show", "order", "--problems-dir", folder, "--json").stdout)
    assert (record["labels"], record["ranked"], record["refusal"]) == (["no_gradient"], True, None)


def test_a_ranked_problem_is_status_0_and_json_is_one_object(cli: Cli, folder: Path) -> None:
    result = cli("problems", "check", "order", "--device", "cpu", "--problems-dir", folder, "--json")
    assert result.exit_code == 0, result.stderr
    (item,) = json.loads(result.stdout)["items"]
    assert (item["problem"], item["labels"], item["ranked"]) == ("order", ["no_gradient"], True)
    assert Vetting.from_dict({name: value for name, value in item.items() if name != "ranked"}).checks
    assert not (folder / "order" / "vetting.json").exists()


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["rleu"], "there are broken, order"),
        (["order", "--size", "huge"], "it has full, smoke"),
        (["order", "--device", "tpu"], "not 'tpu'"),
    ],
)
def test_bad_usage_is_status_2(cli: Cli, folder: Path, argv: list[str], words: str) -> None:
    result = cli("problems", "check", *argv, "--problems-dir", folder, "--json")
    assert result.exit_code == 2
    assert words in json.loads(result.stdout)["error"]


def test_a_fault_of_ours_is_status_3(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_given: object) -> Iterator[Vetting]:
        raise InfrastructureFault("the judge died")
        yield

    monkeypatch.setattr(local, "vet", broken)
    result = cli("problems", "check", "relu", "--device", "cpu", "--problems-dir", PROBLEMS, "--json")
    assert result.exit_code == 3
    assert json.loads(result.stdout) == {"error": "the judge died"}


def test_what_cannot_be_written_is_bad_usage(cli: Cli, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    def found_and_blocked(*_given: object) -> Iterator[Vetting]:
        (folder / "order" / "vetting.json").mkdir()
        yield replace(found(), problem="order")

    monkeypatch.setattr(local, "vet", found_and_blocked)
    result = cli("problems", "check", "order", "--device", "cpu", "--write", "--problems-dir", folder)
    assert result.exit_code == 2
    assert "cannot write to" in result.stderr


def written(content: object, capsys: pytest.CaptureFixture[str]) -> str:
    render.write(content)  # type: ignore[arg-type] - whatever render makes
    return capsys.readouterr().out


def test_a_leaderboard_says_why_there_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    board: Board = {
        "problem": "relu", "problem_version": "1", "device": "cpu", "device_name": None, "track": "inference",
        "size": "smoke", "precision": "float32", "refusal": "Zeros pass.", "entries": [], "next_cursor": None,
    }  # fmt: skip
    assert "not ranked. Zeros pass." in written(render.leaderboard(board), capsys)
    del board["refusal"]  # type: ignore[misc] # as a service sends it that is older than vetting
    assert "no entry yet" in written(render.leaderboard(board), capsys)


@pytest.mark.parametrize(
    ("vetting", "words"),
    [
        (None, "not vetted"),
        (found(), "nothing found"),
        (found(Label.HALF_PASSES), "half_passes"),
        (found(Label.ZEROS_PASS), "not ranked: zeros_pass"),
        (replace(found(Label.ZEROS_PASS), version="other"), "not vetted since it was changed"),
    ],
)
def test_a_list_of_problems_says_what_is_known(
    vetting: Vetting | None, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    vettings = () if vetting is None else (vetting,)
    record = problem_record(replace(load_problem(PROBLEMS / "relu"), vettings=vettings))
    for text in (written(render.problem_list([record]), capsys), written(render.problem(record), capsys)):
        assert words in text


def test_a_problem_of_a_service_that_knows_nothing_of_vetting_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    record = dict(problem_record(load_problem(PROBLEMS / "relu")))
    for name in ("labels", "ranked", "refusal", "vetting"):
        del record[name]
    old: ProblemRecord = record  # type: ignore[assignment]
    assert "not vetted" in written(render.problem(old), capsys)


def test_labels_of_a_newer_service_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    record = problem_record(load_problem(PROBLEMS / "relu"))
    record["labels"] = ["smells"]
    assert "smells" in written(render.problem(record), capsys)


def test_the_rules_of_a_problem_are_shown_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    free = load_problem(PROBLEMS / "relu")
    strict = replace(free, rules=Rules(languages=("cuda",), no_lower_precision=True))
    assert "rules " not in written(render.problem(problem_record(free)), capsys).split("class Model")[0]
    assert "languages=cuda,no_lower_precision=true" in written(render.problem(problem_record(strict)), capsys)
