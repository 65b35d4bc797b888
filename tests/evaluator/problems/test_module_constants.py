"""The numbers at a module's top level: which there are, and writing others in their place."""

from __future__ import annotations

import ast

import pytest

from evaluator.problems.module_constants import integers, rewritten

SOURCE = """\
M = 1024 * 2
K = 256 * 8 + 4
rows: int = 12
height = width = 256
depth, length = 24, 48
shape = (3, 240)
layers = [1024] * 16
derived = M // 2
eps, on, name, nothing = 1e-5, True, "größe", 0
pair = other = (5, 7)
twice = 2048
twice, rest = 32, M


def function():
    inner = 4
"""


def test_constants_are_what_is_written_out() -> None:
    assert integers(ast.parse(SOURCE)) == {
        "M": 2048, "K": 2052, "rows": 12, "height": 256, "depth": 24, "length": 48, "shape[0]": 3, "shape[1]": 240,
        "layers[0]": 1024, "pair[0]": 5, "pair[1]": 7, "twice": 32,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("M", "M = 1024 * 2", "M = 9"),
        ("rows", "rows: int = 12", "rows: int = 9"),
        ("height", "height = width = 256", "height = width = 9"),
        ("length", "depth, length = 24, 48", "depth, length = 24, 9"),
        ("shape[1]", "shape = (3, 240)", "shape = (3, 9)"),
        ("layers[0]", "[1024] * 16", "[9] * 16"),
        ("on", '1e-5, True, "größe", 0', '1e-5, 9, "größe", 0'),
        ("nothing", '1e-5, True, "größe", 0', '1e-5, True, "größe", 9'),
    ],
)
def test_one_constant_is_replaced_and_nothing_else(name: str, before: str, after: str) -> None:
    assert rewritten(SOURCE, {name: "9"}) == SOURCE.replace(before, after)


def test_every_assignment_of_a_name_is_replaced() -> None:
    text = rewritten(SOURCE, {"twice": "9"})
    assert "twice = 9\ntwice, rest = 9, M" in text


def test_what_stands_there_already_keeps_its_words() -> None:
    assert rewritten(SOURCE, {"M": "2048", "shape[0]": "3"}) == SOURCE


@pytest.mark.parametrize("name", ["width", "shape", "shape[2]", "inner", "absent"])
def test_what_is_no_constant_is_named(name: str) -> None:
    with pytest.raises(LookupError, match=name.replace("[", r"\[")):
        rewritten(SOURCE, {name: "9"})


@pytest.mark.parametrize("text", ["n = 1 // 0", "n = 2 ** 99", "n = 2**40 * 2**40", "n = -4", "n = 0"])
def test_no_number_is_computed_that_could_be_none(text: str) -> None:
    assert integers(ast.parse(text)) == {}
