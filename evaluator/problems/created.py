"""Problems that clients create through the API: a reference with fields of ``problem.toml``. None is executed here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from evaluator.errors import ProblemError
from evaluator.problems.manifest import FIELDS, MissingNames, parse_problem
from evaluator.problems.problem import Problem
from evaluator.problems.published import Unusable, parse_published

__all__ = ["CREATED", "CREATED_FIELDS", "is_created", "parse_created"]

CREATED: Final = "prob"
"""The prefix of the ids of such problems."""

_ID: Final = re.compile(CREATED + "_[0-9a-hjkmnp-tv-z]{26}")
CREATED_FIELDS: Final = FIELDS - {"limits", "kernelbench"}
"""The fields that clients may give. Limits are the operator's. A KernelBench identity would replace another problem."""

_MOST: Final = {"title": 200, "description": 4000, "sizes": 16, "tags": 16, "held_out_salt": 200}
"""The most characters, or entries. The source has a limit of its own, that of a candidate."""
_TAG_CHARACTERS: Final = 60
_GLOBALS: Final = 64


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
        value = fields.get(name)
        if isinstance(value, str | list | Mapping) and len(value) > most:
            unit = "characters" if isinstance(value, str) else "entries"
            raise ProblemError(f"{name} has {len(value):,} {unit}, and at most {most:,} are taken")
    for tag in fields["tags"] if isinstance(fields.get("tags"), list) else ():
        if isinstance(tag, str) and len(tag) > _TAG_CHARACTERS:
            raise ProblemError(f"tags: a tag has at most {_TAG_CHARACTERS} characters")
    sizes = fields.get("sizes")
    for name, size in sizes.items() if isinstance(sizes, Mapping) else ():
        if isinstance(size, Mapping) and len(size) > _GLOBALS:
            raise ProblemError(f"sizes.{name} has {len(size)} globals, and at most {_GLOBALS} are taken")
