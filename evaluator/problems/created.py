"""Problems that clients create through the API: a reference with fields of ``problem.toml``. None is executed here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from evaluator.errors import ProblemError
from evaluator.problems.manifest import FIELDS, MAX_SHAPES, MissingNames, parse_problem
from evaluator.problems.problem import Problem
from evaluator.problems.published import Unusable, parse_published

__all__ = ["CREATED", "CREATED_FIELDS", "is_created", "parse_created"]

CREATED: Final = "prob"
"""The prefix of the ids of such problems."""

_ID: Final = re.compile(CREATED + "_[0-9a-hjkmnp-tv-z]{26}")
CREATED_FIELDS: Final = FIELDS - {"limits", "kernelbench"}
"""The fields that clients may give. Limits are the operator's. A KernelBench identity would replace another problem."""

_MOST: Final = {
    "title": 200,
    "description": 4000,
    "sizes": 16,
    "tags": 16,
    "held_out_salt": 200,
    "shapes": 16,
    "neighbours": 4,
}
"""The most characters, or entries. The source has a limit of its own, that of a candidate."""
_TAG_CHARACTERS: Final = 60
_GLOBALS: Final = 64
"""The most globals of a size, of a shape and of neighbours."""
_NEIGHBOUR_ENTRIES: Final = {"vary": _GLOBALS, "sizes": 16, "kinds": 16}


def is_created(problem_id: str) -> bool:
    """Whether a problem was created through the API. No problem in a folder may have such an id."""
    return _ID.fullmatch(problem_id) is not None


def parse_created(problem_id: str, source: str, fields: Mapping[str, Any]) -> Problem:
    """Return the problem of a reference with some of the fields of ``problem.toml``.

    A file of KernelBench needs none: its title is then the first sentence about its ``Model``, its size ``full`` is as
    written, and its inputs have the domain ``real`` if ``get_inputs`` only draws random numbers. Raises
    ``ProblemError`` naming the field.
    """
    unknown = sorted(set(fields) - CREATED_FIELDS)
    if unknown:
        raise ProblemError(f"unknown field {unknown[0]!r}; known are {', '.join(sorted(CREATED_FIELDS))}")
    _refuse_large(fields)
    try:
        published = parse_published(source.replace("\r\n", "\n"), "")
    except Unusable as error:
        raise ProblemError(f"source: {error}") from error
    first = published.description.partition(". ")[0].rstrip(".")[: _MOST["title"]]
    known = {
        "title": first or "A problem without a title",
        "description": published.description[: _MOST["description"]] or "Without a description.",
        "sizes": {"full": {}},
        "inputs": {"domain": "real" if published.drawn else "as_written"},
    }
    try:
        return parse_problem(problem_id, published.source, {**known, **fields})
    except MissingNames as error:
        raise ProblemError(f"source: it {error}") from error


def _refuse_large(fields: Mapping[str, Any]) -> None:
    """Raises ``ProblemError`` for a field above its bound. Its type is checked later, with all others."""
    for name, most in _MOST.items():
        _refuse_above(most, name, fields.get(name))
    for tag in fields["tags"] if isinstance(fields.get("tags"), list) else ():
        if isinstance(tag, str) and len(tag) > _TAG_CHARACTERS:
            raise ProblemError(f"tags: a tag has at most {_TAG_CHARACTERS} characters")
    for name, size in _entries(fields.get("sizes")):
        _refuse_above(_GLOBALS, f"sizes.{name}", size, "globals")
    for size, shapes in _entries(fields.get("shapes")):
        _refuse_above(MAX_SHAPES, f"shapes.{size}", shapes)
        for name, shape in _entries(shapes):
            _refuse_above(_GLOBALS, f"shapes.{size}.{name}.values", dict(_entries(shape)).get("values"), "globals")
    for name, entry in _entries(fields.get("neighbours")):
        _refuse_above(_NEIGHBOUR_ENTRIES.get(name, _GLOBALS), f"neighbours.{name}", entry)


def _refuse_above(most: int, name: str, value: object, unit: str = "entries") -> None:
    if isinstance(value, str | list | Mapping) and len(value) > most:
        counted = "characters" if isinstance(value, str) else unit
        raise ProblemError(f"{name} has {len(value):,} {counted}, and at most {most:,} are taken")


def _entries(value: object) -> Iterable[tuple[str, object]]:
    return value.items() if isinstance(value, Mapping) else ()
