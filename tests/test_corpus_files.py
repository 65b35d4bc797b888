"""The corpus itself: every case can be read, and says something new."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from evaluator.candidates.candidate import Candidate, InvalidSource, parse_candidate
from evaluator.evaluation import Verdict
from tests import corpus
from tests.corpus import CANDIDATES, Case, known_problems, load_case, load_cases
from tests.structure import syntax_of

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


def _names(tree: ast.Module | ast.ClassDef) -> dict[str, ast.AST]:
    """The names that a module or class defines, attributes of ``self`` included."""
    found: dict[str, ast.AST] = {}
    for node in tree.body if isinstance(tree, ast.Module) else ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                found[name] = node
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                found[name] = node
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                found[name] = node
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                found.update({alias.asname or alias.name: node for alias in aliases})
    return found


def _stale(source: str) -> Iterator[str]:
    """The names of ours that a candidate uses and that do not exist, in what it imports and in what it replaces."""
    bound: dict[str, ast.AST] = {}
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "evaluator":
            for alias in node.names:
                within = syntax_of(str(node.module))
                part = syntax_of(f"{node.module}.{alias.name}") or (within and _names(within).get(alias.name))
                if part is None:
                    yield f"{node.module}.{alias.name}"
                else:
                    bound[alias.asname or alias.name] = part
    chains = [ast.unparse(node).split(".") for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    yield from (".".join(chain) for chain in chains if chain[0] in bound and _is_missing(bound[chain[0]], chain[1:]))
    for module, names in re.findall(r"sys\.modules\[\"(evaluator[\w.]*)\"\]((?:\.\w+)*)", source):
        part = syntax_of(module)
        if part is None or _is_missing(part, names.split(".")[1:]):
            yield module + names


def _is_missing(part: ast.AST | None, names: Sequence[str]) -> bool:
    """Whether a module or a class of ours has no such attribute. Builtins may be shadowed in a module."""
    for name in names:
        inherits = isinstance(part, ast.ClassDef) and part.bases
        if not isinstance(part, ast.Module | ast.ClassDef) or inherits or name.startswith("__"):
            return False
        if isinstance(part, ast.Module) and hasattr(builtins, name):
            return False
        part = _names(part).get(name)
        if part is None:
            return True
    return False


@pytest.mark.parametrize("case", [case for case in CASES if "evaluator" in case.source], ids=lambda case: case.name)
def test_what_a_case_changes_of_ours_exists(case: Case) -> None:
    assert list(_stale(case.source)) == [], "an attack on a name that has moved says nothing"


def test_a_name_that_has_moved_is_found() -> None:
    source = "from evaluator.judge.session import Session, Gone\nSession._gone = None\nSession._choose_inputs = None\n"
    source += 'sys.modules["evaluator.runner.calls"].CallLoop._moved = None\n'
    gone = ["evaluator.judge.session.Gone", "Session._gone", "evaluator.runner.calls.CallLoop._moved"]
    assert list(_stale(source)) == gone
