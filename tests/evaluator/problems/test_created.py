"""Problems that clients create: their ids, their bounds, and the reserved names of folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evaluator.errors import ProblemError
from evaluator.problems.created import CREATED, is_created, parse_created
from evaluator.problems.loading import load_problem
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
    ],
)
def test_fields_have_bounds(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ProblemError, match=words):
        parse_created("p", SOURCE, fields)
