"""The corpus itself: every case can be read, and says something new."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluator.candidates.candidate import Candidate, InvalidSource, parse_candidate
from evaluator.evaluation import Verdict
from tests import corpus
from tests.corpus import CANDIDATES, Case, known_problems, load_case, load_cases

CASES = load_cases()
PROBLEMS = known_problems()


def test_every_folder_is_a_case() -> None:
    assert {case.name for case in CASES} == {path.name for path in CANDIDATES.iterdir() if path.is_dir()}


def test_no_two_cases_have_the_same_source() -> None:
    assert len({(case.problem, case.source) for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_names_a_problem_and_one_of_its_sizes(case: Case) -> None:
    assert case.size in PROBLEMS[case.problem].sizes
    assert case.description.endswith(".")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_source_is_refused_exactly_where_that_is_its_verdict(case: Case) -> None:
    parsed = parse_candidate(code=case.source)
    if case.verdict is Verdict.INVALID_SOURCE:
        assert isinstance(parsed, InvalidSource)
        assert all(part in "\n".join([parsed.message, *parsed.hints]) for part in case.message_contains)
    else:
        assert isinstance(parsed, Candidate)


def test_every_kind_of_wrong_verdict_but_the_slow_ones_has_a_case() -> None:
    slow = {Verdict.TIMEOUT, Verdict.OUT_OF_MEMORY}
    assert {case.verdict for case in CASES} | slow >= set(Verdict)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("kind", '"nice"', "kind must be one of"),
        ("device", '"tpu"', "device must be one of"),
        ("verdict", '"wrong_output"', "an honest candidate passes"),
        ("verdict", '"fine"', "'fine' is not a valid Verdict"),
        ("colour", '"red"', "unknown field 'colour'"),
    ],
)
def test_a_case_that_cannot_be_meant_is_refused(
    field: str, value: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"description": '"x."', "kind": '"honest"', "problem": '"relu"', "device": '"any"', "size": '"smoke"'}
    given |= {"verdict": '"passed"', field: value}
    folder = tmp_path / "case"
    folder.mkdir()
    (folder / "candidate.py").write_text("class ModelNew: pass\n")
    (folder / "expected.toml").write_text("\n".join(f"{name} = {text}" for name, text in given.items()))
    monkeypatch.setattr(corpus, "CANDIDATES", tmp_path)
    with pytest.raises(ValueError, match=message):
        load_case("case")


def test_the_problem_of_a_case_is_one_that_others_can_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"description": '"x."', "kind": '"wrong"', "device": '"any"', "size": '"full"', "verdict": '"wrong_output"'}
    for name, more in (("first", {}), ("second", {"problem": '"first"'})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "candidate.py").write_text("class ModelNew: pass\n")
        lines = [f"{field} = {text}" for field, text in (given | more).items()]
        (tmp_path / name / "expected.toml").write_text("\n".join(lines))
    problem = tmp_path / "first" / "problem"
    problem.mkdir()
    (problem / "reference.py").write_text("class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n")
    (problem / "problem.toml").write_text('title = "x"\ndescription = "x."\n[sizes.full]\n')
    monkeypatch.setattr(corpus, "CANDIDATES", tmp_path)
    assert known_problems()["first"].id == "first"
    assert {case.problem for case in load_cases()} == {"first"}
