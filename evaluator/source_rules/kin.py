"""The classes of a source that share the attributes of an object: those above a class, and those below it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import Final

__all__ = ["Kin"]

_MAX_KIN: Final = 32
"""Ordinary sources have fewer classes above and below one; a search of more would take long."""


class Kin:
    """``classes`` with the relations between them. ``named``: those that a name at the top level stands for."""

    def __init__(self, classes: Iterable[ast.ClassDef], named: Mapping[str, ast.ClassDef]) -> None:
        self._above: dict[ast.ClassDef, list[ast.ClassDef]] = {}
        self._below: dict[ast.ClassDef, list[ast.ClassDef]] = {}
        self._known: dict[ast.ClassDef, frozenset[ast.ClassDef] | None] = {}
        for class_ in classes:
            for base in class_.bases:
                above = named.get(base.id) if isinstance(base, ast.Name) else None
                if above is not None:
                    self._above.setdefault(class_, []).append(above)
                    self._below.setdefault(above, []).append(class_)

    def of(self, class_: ast.ClassDef) -> frozenset[ast.ClassDef] | None:
        """Return the classes whose methods can have the same ``self`` as those of ``class_``; ``None`` for too many."""
        if class_ not in self._known:
            self._known[class_] = self._search(class_)
        return self._known[class_]

    def _search(self, class_: ast.ClassDef) -> frozenset[ast.ClassDef] | None:
        below = _reached({class_}, self._below)
        return None if below is None else _reached(below, self._above)


def _reached(
    start: Iterable[ast.ClassDef], steps: Mapping[ast.ClassDef, list[ast.ClassDef]]
) -> frozenset[ast.ClassDef] | None:
    found = set(start)
    waiting = list(found)
    while waiting:
        for each in steps.get(waiting.pop(), []):
            if each not in found:
                found.add(each)
                waiting.append(each)
                if len(found) > _MAX_KIN:
                    return None
    return frozenset(found)
