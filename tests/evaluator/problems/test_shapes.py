"""Shapes of a problem: written out, generated around a size, and kept from view."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.errors import ProblemError
from evaluator.problems.loading import load_problem
from evaluator.problems.problem import Problem
from evaluator.problems.shapes import NEIGHBOURS, Shape, Varied, full_name, neighbours, split_name

_REFERENCE = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x


rows = 4096
dim = 2 * rows
kind, offset = 64, 0.5
switch = 0


def get_inputs():
    return [torch.rand(rows, dim)]


def get_init_inputs():
    return []
"""
_MANIFEST = """\
title = "Identity"
description = "Returns its input."

[sizes.full]
rows = 64

[sizes.smoke]
rows = 4
"""


def _load(tmp_path: Path, more: str = "", salt: str = "") -> Problem:
    folder = tmp_path / "identity"
    folder.mkdir(exist_ok=True)
    (folder / "reference.py").write_text(_REFERENCE, encoding="utf-8")
    (folder / "problem.toml").write_text(
        f'held_out_salt = "{salt}"\n' * bool(salt) + _MANIFEST + more, encoding="utf-8"
    )
    return load_problem(folder)


def test_a_shape_changes_globals_of_its_size_alone(tmp_path: Path) -> None:
    problem = _load(tmp_path, '[shapes.full.ragged]\nuse = "timed"\nvalues = { kind = 7 }\n')
    assert problem.shapes == {"full": {"ragged": Shape("timed", {"kind": 7})}}
    source = problem.sized_source("full/ragged")
    assert "rows = 64\n" in source
    assert "kind, offset = 7, 0.5" in source
    assert problem.shapes_of("smoke") == {}
    with pytest.raises(ProblemError, match="has no size 'smoke/ragged'; it has full, smoke, full/ragged"):
        problem.sized_source("smoke/ragged")


def test_a_shape_is_checked_unless_it_says_otherwise(tmp_path: Path) -> None:
    problem = _load(tmp_path, "[shapes.smoke.other]\nvalues = { rows = 5 }\n")
    assert problem.shapes["smoke"]["other"].use == "checked"


def test_neighbours_are_generated_around_each_size_and_held_out(tmp_path: Path) -> None:
    problem = _load(tmp_path, "[neighbours.vary]\nrows = {}\nkind = { least = 16, multiple_of = 16 }\n")
    assert problem.shapes == {
        "full": {
            "one_more": Shape("held_out", {"rows": 65, "kind": 80}),
            "one_less": Shape("held_out", {"rows": 63, "kind": 48}),
            "prime": Shape("held_out", {"rows": 47, "kind": 48}),
            "least": Shape("held_out", {"rows": 1, "kind": 16}),
        },
        "smoke": {
            "one_more": Shape("held_out", {"rows": 5, "kind": 80}),
            "one_less": Shape("held_out", {"rows": 3, "kind": 48}),
            "least": Shape("held_out", {"rows": 1, "kind": 16}),
        },
    }


def test_kinds_and_sizes_of_neighbours_can_be_chosen(tmp_path: Path) -> None:
    chosen = '[neighbours]\nuse = "checked"\nkinds = ["least"]\nsizes = ["full"]\n[neighbours.vary]\nrows = {}\n'
    assert _load(tmp_path, chosen).shapes == {"full": {"least": Shape("checked", {"rows": 1})}}


@given(
    value=st.integers(1, 5000),
    multiple=st.integers(1, 64),
    least=st.integers(1, 8),
    kinds=st.sets(st.sampled_from(NEIGHBOURS)),
)
def test_neighbours_keep_to_the_least_and_the_multiple(value: int, multiple: int, least: int, kinds: set[str]) -> None:
    varied = Varied(least * multiple, multiple)
    start = max(varied.least, value)
    found = neighbours({"n": start}, {"n": varied}, "held_out", kinds)
    assert set(found) <= kinds
    assert ("one_more" in found) == ("one_more" in kinds)
    assert len({shape.values["n"] for shape in found.values()}) == len(found)
    for name, shape in found.items():
        assert shape.values["n"] != start
        assert shape.values["n"] >= varied.least
        assert shape.values["n"] % multiple == 0
        assert (shape.values["n"] > start) == (name == "one_more")


def test_a_kind_that_was_asked_for_is_there_though_another_kind_would_be_the_same(tmp_path: Path) -> None:
    chosen = '[neighbours]\nkinds = ["prime"]\nsizes = ["smoke"]\n[neighbours.vary]\nrows = {}\n'
    assert _load(tmp_path, chosen).shapes == {"smoke": {"prime": Shape("held_out", {"rows": 3})}}


@pytest.mark.parametrize(
    ("value", "prime"),
    [(4, 3), (6, 3), (9, 5), (64, 47), (3000, 2243), (2**31, 1610612711), (2699, 2017), (54_000_000, 40_499_993)],
)
def test_the_prime_is_the_largest_up_to_three_quarters(value: int, prime: int) -> None:
    assert neighbours({"n": value}, {"n": Varied()}, "held_out", ["prime"])["prime"].values == {"n": prime}


def test_a_product_of_primes_that_looks_prime_to_one_base_is_none() -> None:
    # 2,047, 3,277 and 8,321 are such to base 2.
    for product in (2047, 3277, 8321):
        found = neighbours({"n": -(-product * 4 // 3)}, {"n": Varied()}, "held_out", ["prime"])["prime"].values["n"]
        assert found < product
        assert all(found % divisor for divisor in range(2, int(found**0.5) + 1))


def test_one_more_is_the_next_multiple(tmp_path: Path) -> None:
    chosen = '[neighbours]\nsizes = ["full"]\n[neighbours.vary]\nrows = { multiple_of = 48 }\n'
    found = {name: shape.values["rows"] for name, shape in _load(tmp_path, chosen).shapes["full"].items()}
    assert found == {"one_more": 96, "one_less": 48}


def test_the_version_tells_no_held_out_shape_to_a_search_without_the_salt(tmp_path: Path) -> None:
    shape = '[shapes.full.other]\nuse = "held_out"\nvalues = { rows = 61 }\n'
    first = _load(tmp_path, shape, salt="a" * 16)
    second = _load(tmp_path, shape, salt="b" * 16)
    assert first.version != second.version
    assert first.shapes == second.shapes
    assert "a" * 16 not in json.dumps(first.to_record())
    assert Problem.from_dict(json.loads(json.dumps(first.to_dict()))) == first


def test_a_version_without_shapes_is_as_it_was_before_there_were_any(tmp_path: Path) -> None:
    plain = _load(tmp_path)
    assert "shapes" in plain.to_dict()
    stored = plain.to_dict()
    del stored["shapes"]  # as definitions from before them are stored
    assert Problem.from_dict(stored) == plain
    assert _load(tmp_path, "[shapes.smoke.other]\nvalues = { rows = 5 }\n").version != plain.version
    # The version of this very text, computed before there were shapes.
    assert plain.version == "b421a7896811a79c"


def test_a_definition_with_shapes_is_stored_and_read_again(tmp_path: Path) -> None:
    problem = _load(tmp_path, "[neighbours.vary]\nrows = {}\n")
    assert Problem.from_dict(json.loads(json.dumps(problem.to_dict()))) == problem


def test_no_held_out_shape_is_in_the_public_record(tmp_path: Path) -> None:
    more = "[shapes.full.shown]\nvalues = { rows = 1234567 }\n[neighbours.vary]\nrows = {}\n"
    record = _load(tmp_path, more).to_record()
    assert record["shapes"] == {"full": {"shown": {"use": "checked", "values": {"rows": 1234567}}}, "smoke": {}}
    assert record["held_out_shapes"] == {"full": 4, "smoke": 3}
    assert "one_more" not in json.dumps(record)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"rows": 65}, ("a ragged tail", "a larger extent")),
        ({"rows": 68}, ("a larger extent",)),
        ({"rows": 62}, ("a ragged tail", "a smaller extent")),
        ({"rows": 1}, ("an extent of one",)),
        ({"rows": 1, "kind": 128}, ("an extent of one", "a larger extent")),
        ({"kind": 32}, ("a smaller extent",)),
        ({"offset": 0.75}, ("another value of a global",)),
        ({"switch": 1}, ("another value of a global",)),
        ({"rows": 1, "switch": 1}, ("an extent of one", "another value of a global")),
    ],
)
def test_the_trouble_is_named_without_a_number(
    tmp_path: Path, values: dict[str, float], words: tuple[str, ...]
) -> None:
    text = ", ".join(f"{name} = {value}" for name, value in values.items())
    problem = _load(tmp_path, f"[shapes.full.other]\nvalues = {{ {text} }}\n")
    assert problem.trouble_of("full", "other") == words


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("[shapes.large.x]\nvalues = { rows = 5 }\n", "unknown field 'large'; known are full, smoke"),
        ("[shapes.full.X]\nvalues = { rows = 5 }\n", "shapes.full.X: a shape is named in lower case"),
        ("[shapes.full]\nx = 5\n", "must be a table with use and values"),
        ("[shapes.full.x]\nvalues = { rows = 5 }\nuses = 1\n", "unknown field 'uses'; known are use, values"),
        ("[shapes.full.x]\nuse = 'timed'\n", "shapes.full.x.values must be a table"),
        ("[shapes.full.x]\nvalues = { rows = true }\n", "shapes.full.x.values.rows must be a finite number, not True"),
        ("[shapes.full.x]\nvalues = { cols = 5 }\n", "has no global assignment of cols"),
        ("[shapes.full.x]\nuse = 'hidden'\nvalues = { rows = 5 }\n", "use must be one of timed, checked, held_out"),
        ("[shapes.full.x]\nvalues = { rows = nan }\n", "must be a finite number, not nan"),
        ("[shapes.full.x]\nvalues = { rows = 64 }\n", "shapes.full.x is the size itself"),
        (
            "[shapes.full.x]\nvalues = { rows = 65 }\n[neighbours.vary]\nrows = {}\n",
            "shapes.full.one_more is the same as shapes.full.x",
        ),
        (
            "[shapes.full.x]\nuse = 'held_out'\nvalues = { rows = 5 }\n",
            "needs held_out_salt, a random text of at least 16",
        ),
        (
            "[neighbours.vary]\nrows = { least = 5 }\n",
            "neighbours.vary.rows: its least is above its value at size smoke",
        ),
        (
            "[neighbours]\nkinds = ['least']\nsizes = ['smoke']\n[neighbours.vary]\nrows = { least = 4 }\n",
            "generates no shape at size smoke",
        ),
        ("[neighbours]\nuse = 'checked'\n", "must name a global of the reference that may vary"),
        ("[neighbours]\nevery = 1\n", "unknown field 'every'"),
        ("[neighbours.vary]\ndim = {}\n", "neighbours.vary.dim must be a global whose value is a whole number"),
        ("[neighbours.vary]\nrows = 3\n", "neighbours.vary.rows: a table of whole numbers is expected"),
        ("[neighbours.vary]\nrows = { most = 3 }\n", "unknown field 'most'; known are least, multiple_of"),
        ("[neighbours.vary]\nrows = { least = 3, multiple_of = 2 }\n", "least a multiple of multiple_of"),
        ("[neighbours]\nkinds = ['odd']\n[neighbours.vary]\nrows = {}\n", "kinds must be a list of some of one_more"),
        ("[neighbours]\nsizes = []\n[neighbours.vary]\nrows = {}\n", "sizes must be a list of some of full, smoke"),
        (
            "[shapes.full.least]\nvalues = { rows = 5 }\n[neighbours.vary]\nrows = {}\n",
            "shapes.full.least has the name of a generated neighbour",
        ),
        (
            "".join(f"[shapes.full.s{n}]\nvalues = {{ rows = {n + 1} }}\n" for n in range(17)),
            "size full has 17 shapes; 16 are the most",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, more: str, said: str) -> None:
    with pytest.raises(ProblemError) as caught:
        _load(tmp_path, more)
    assert said in str(caught.value)
    assert "problem.toml" in str(caught.value)


def test_a_shape_has_a_name_that_no_size_can_have(tmp_path: Path) -> None:
    assert split_name(full_name("full", "ragged")) == ("full", "ragged")
    assert split_name("full") == ("full", None)
    with pytest.raises(ProblemError, match="a size is named in letters"):
        _load(tmp_path, '[sizes."full/ragged"]\nrows = 5\n')
