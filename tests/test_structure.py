"""Packages, modules and classes are small enough to be read, or a decision record says why not."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from tests.structure import MOST_CLASS_LINES, MOST_LINES, MOST_MODULES, ROOT, modules, modules_by_package

_RECORD = ROOT / "docs" / "decisions" / "0029-large-modules.md"
_RULE = {"modules": MOST_MODULES, "lines": MOST_LINES, "lines of a class": MOST_CLASS_LINES}


@dataclass(frozen=True)
class Size:
    """How many ``of`` (modules, lines, lines of a class) a part has."""

    part: str
    of: str
    count: int


def sizes() -> list[Size]:
    found = [Size(name, "modules", len(held)) for name, held in modules_by_package().items()]
    for module in modules():
        found += [Size(module.name, "lines", module.lines), Size(module.name, "lines of a class", module.class_lines)]
    return found


def allowed() -> dict[tuple[str, str], int]:
    """The figures of the record's table, by part and kind."""
    rows = re.findall(r"^\| `([\w.]+)` \| ([^|]+) \| [^|]+ \|$", _RECORD.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows
    figures = [(part, figure.strip().partition(" ")) for part, cell in rows for figure in cell.split(",")]
    return {(part, of): int(count) for part, (count, _, of) in figures}


@pytest.mark.parametrize("of", list(_RULE))
def test_what_is_larger_than_the_rule_has_a_reason_and_does_not_grow(of: str) -> None:
    excused = allowed()
    too_large = [
        size for size in sizes() if size.of == of and size.count > max(_RULE[of], excused.get((size.part, of), 0))
    ]
    assert not too_large, f"split it, or give a reason in {_RECORD.name}"


def test_what_has_become_small_leaves_the_record() -> None:
    counts = {(size.part, size.of): size.count for size in sizes()}
    needless = [key for key in allowed() if counts.get(key, 0) <= _RULE[key[1]]]
    assert not needless


def test_no_class_of_the_released_packages_has_the_name_of_another_in_its_layer() -> None:
    names: dict[tuple[str, str], list[str]] = {}
    for module in modules():
        for name in module.public_classes:
            names.setdefault((module.name.partition(".")[0], name), []).append(module.name)
    assert {key: places for key, places in names.items() if len(places) > 1} == {}
