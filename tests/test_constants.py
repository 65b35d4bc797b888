"""The page of measured constants names constants that exist, with the values of the source."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

import pytest

from tests.structure import ROOT, syntax_of

PAGE = ROOT / "docs" / "constants.md"
HOW = ("by analysis", "one-off measurement", "not measured")


class Row(NamedTuple):
    """One row of a table: a constant's dotted name, its value as an expression, the reason, and how it was found."""

    name: str
    value: str
    reason: str
    made_by: str


def rows() -> list[Row]:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    found = [re.fullmatch(r"\| `([\w.]+)` \| `([^`|]+)` \| ([^|]+) \| ([^|]+) \|", line) for line in lines]
    assert all(found), "a row has not the four columns"
    return [Row(*match.groups()) for match in found if match is not None]


def value_in_source(name: str) -> str | None:
    """The assigned expression of a constant, by its dotted name; ``None`` where its module has no such constant."""
    module, _, constant = name.rpartition(".")
    tree = syntax_of(module)
    for statement in [] if tree is None else tree.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value) if found == constant:
                return ast.unparse(value)
    return None


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.name)
def test_a_constant_of_the_page_has_the_value_of_the_source(row: Row) -> None:
    assert value_in_source(row.name) == ast.unparse(ast.parse(row.value))


def test_no_constant_is_named_twice() -> None:
    names = [row.name for row in rows()]
    assert names
    assert len(names) == len(set(names))


def test_each_value_has_a_reason_and_a_benchmark_that_exists_or_says_how_it_was_found() -> None:
    for row in rows():
        benchmarks = re.findall(r"`benchmarks\.(\w+)`", row.made_by)
        assert row.reason.endswith("."), row.name
        assert benchmarks or row.made_by.startswith(HOW), row.name
        assert all((ROOT / "benchmarks" / f"{benchmark}.py").exists() for benchmark in benchmarks), row.name
