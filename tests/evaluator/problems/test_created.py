"""Problems that clients create: their ids, their bounds, and the reserved names of folders."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from evaluator.errors import ProblemError
from evaluator.problems.created import CREATED, is_created, parse_created
from evaluator.problems.loading import load_problem
from evaluator.problems.problem import Problem
from storage.ids import keyed_id, new_id

SOURCE = (Path(__file__).parents[3] / "reference_models" / "relu" / "reference.py").read_text(encoding="utf-8")


def test_its_id_is_known_by_its_form() -> None:
    assert is_created(new_id(CREATED))
    assert is_created(keyed_id(CREATED, "ada", "key"))
    assert keyed_id(CREATED, "ada", "key") != keyed_id(CREATED, "bob", "key")
    assert not any(map(is_created, ("prob_softmax", "relu", "reference_0123456789abcdef", new_id("sub"))))


def test_no_folder_has_the_name_of_a_created_problem(tmp_path: Path) -> None:
    folder = tmp_path / new_id(CREATED)
    folder.mkdir()
    (folder / "reference.py").write_text(SOURCE, encoding="utf-8")
    (folder / "problem.toml").write_text('title = "Mine"\ndescription = "Mine."\n[sizes.full]\n', encoding="utf-8")
    with pytest.raises(ProblemError, match="problems that come by the API have it"):
        load_problem(folder)


def test_a_file_alone_has_the_texts_of_its_docstring() -> None:
    documented = SOURCE.replace('"""', '"""First. Second.\n\n    Third.\n    """\n    """', 1)
    problem = parse_created("p", documented, {})
    assert (problem.title, problem.description) == ("First", "First. Second.")
    assert parse_created("p", SOURCE, {"title": "Given"}).title == "Given"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"limits": {}}, "unknown field 'limits'"),
        ({"title": "x" * 201}, "title has 201 characters"),
        ({"sizes": {f"s{number}": {} for number in range(17)}}, "sizes has 17 entries"),
        ({"sizes": {"full": {f"g{number}": 1 for number in range(65)}}}, "sizes.full has 65 globals"),
        ({"tags": ["x"] * 17}, "tags has 17 entries"),
        ({"tags": ["x" * 61]}, "a tag has at most 60"),
        ({"title": 7}, "title must be a non-empty text"),
        # The number of shapes is looked at before any shape.
        ({"shapes": {"full": dict.fromkeys(map(str, range(1500)), 7)}}, "shapes.full has 1,500 entries"),
        ({"shapes": {f"s{number}": {} for number in range(17)}}, "shapes has 17 entries"),
        ({"shapes": {"full": {"x": {"values": dict.fromkeys(map(str, range(65)), 1)}}}}, "x.values has 65 globals"),
        ({"neighbours": {"vary": dict.fromkeys(map(str, range(65)), 7)}}, "neighbours.vary has 65 entries"),
        ({"neighbours": {"kinds": ["least"] * 17}}, "neighbours.kinds has 17 entries"),
        ({"neighbours": {"kinds": [["least"]], "vary": {"dim": {}}}}, "kinds must be a list of some of one_more"),
        ({"neighbours": {"sizes": [{}], "vary": {"dim": {}}}}, "sizes must be a list of some of full"),
        ({"baselines": {"precisions": [["tf32"]]}}, "may give precisions, a list of"),
        ({"sizes": {"full": {"dim": 10**400}}}, "sizes.full.dim: a whole number must be below 10,000"),
        ({"sizes": {"full": {"dim": -(10**5000)}}}, "sizes.full.dim: a whole number must be below 10,000"),
        ({"shapes": {"full": {"x": {"values": {"dim": 10**16}}}}}, "values.dim: a whole number must be below 10,000"),
        ({"tolerance": {"float32": {"atol": 10**400, "rtol": 0}}}, "must give the numbers atol and rtol"),
        (
            {"sizes": {"full": {"dim": 10**12}}, "neighbours": {"vary": {"dim": {}}}},
            "dim: its value at size full is above",
        ),
        ({"title": "a\0b"}, "title must be Unicode text without NUL"),
        ({"description": "a\ud800b"}, "description must be Unicode text"),
        ({"tags": ["fine", "a\0b"]}, "tags must be Unicode text"),
        ({"held_out_salt": "\0" * 16}, "held_out_salt must be Unicode text"),
    ],
)
def test_fields_have_bounds(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ProblemError, match=words):
        parse_created("p", SOURCE, fields)


def test_a_source_is_read_as_often_with_many_sizes_and_shapes_as_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    parse = ast.parse

    def counted(*given: Any, **named: Any) -> ast.AST:
        read.append(given[0])
        return parse(*given, **named)

    monkeypatch.setattr(ast, "parse", counted)
    parse_created("p", SOURCE, {})
    once = len(read)
    sizes = {"full": {}, **{f"s{number}": {"dim": 100 + number} for number in range(15)}}
    shapes = {size: {f"x{number}": {"values": {"dim": 500 + number}} for number in range(16)} for size in sizes}
    problem = parse_created("p", SOURCE, {"sizes": sizes, "shapes": shapes})
    assert sum(map(len, problem.shapes.values())) == 256
    assert len(read) == 2 * once


def test_a_definition_that_a_database_has_written_differently_has_its_version() -> None:
    sizes = {"full": {"dim": -1e30, "batch_size": -0.0}}
    shapes = {"full": {"x": {"values": {"dim": 1e16}}}}
    tolerance = {"float32": {"atol": 1e-3, "rtol": -0.0}}
    problem = parse_created("p", SOURCE, {"sizes": sizes, "shapes": shapes, "tolerance": tolerance})
    text = json.dumps(problem.to_dict())
    for given, back in (("-1e+30", str(-(10**30))), ("1e+16", str(10**16))):
        assert given in text
        text = text.replace(given, back)
    assert "-0.0" not in text
    again = Problem.from_dict(json.loads(text))
    assert (again, again.version) == (problem, problem.version)
    assert "dim = -1e+30" in again.sized_source("full")
