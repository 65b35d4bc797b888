"""A candidate's module as the rules read it: the reached part of it, its paths into torch, and the places of values."""

from __future__ import annotations

import ast
import builtins
from collections import Counter
from functools import cached_property
from typing import Final

from evaluator.candidates.candidate import CLASS_NAME
from evaluator.source_flags.module import Function, Module
from evaluator.source_rules.assignments import assignments
from evaluator.source_rules.handing import Handing
from evaluator.source_rules.kin import Kin
from evaluator.source_rules.languages import TRITON
from evaluator.source_rules.reach import unreached

__all__ = ["Place", "Program", "is_attribute", "is_super"]

Place = tuple[ast.AST | None, str]
"""A variable: the function that has it, ``None`` for the module, and its name.

An attribute has there the class whose method writes it to ``self``, or ``_OF``.
"""

_OF: Final = ast.Pass()
"""Stands for all objects whose class is not known."""
_MAX_STEPS: Final = 12
_TABLES: Final = frozenset({"__dict__", "__wrapped__"})
_Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class Program:
    """``module`` with the questions that rules about calls ask of it.

    A function or class at the top level that nothing reached mentions does not count: a copy of the reference beside
    the candidate is not called. Nor does the block of ``if __name__ == "__main__"``, which no import executes.
    """

    def __init__(self, module: Module, root: str | None = CLASS_NAME) -> None:
        self.module = module
        self._root = root
        self._paths: dict[ast.AST, str | None] = {}
        self._attribute_paths: dict[tuple[ast.ClassDef | None, str], str | None] = {}
        self._classes_of: dict[Place, ast.ClassDef | None] = {}
        self._values: dict[Place, list[ast.expr | None]] = {}

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """The reached nodes, in the order of the source."""
        left_out = unreached(self.module, self._root, self.kernels)
        kept: list[ast.AST] = []
        for node in self.module.nodes:
            around = self.module.parent(node)
            if node in left_out or around in left_out:
                left_out.add(node)
            else:
                kept.append(node)
        return kept

    @cached_property
    def assigned(self) -> dict[Place, list[ast.expr | None]]:
        """The values of each variable and attribute; ``None`` for one that is not written out."""
        found: dict[Place, list[ast.expr | None]] = {}
        for node in self.nodes:
            for target, value in assignments(node):
                place = self.place(target)
                if place is not None:
                    found.setdefault(place, []).append(value)
        return found

    @cached_property
    def _of_attributes(self) -> dict[str, list[ast.expr | None]]:
        """The values of all attributes of one name together."""
        found: dict[str, list[ast.expr | None]] = {}
        for place, values in self.assigned.items():
            if is_attribute(place):
                found.setdefault(place[1], []).extend(values)
        return found

    @cached_property
    def _locals(self) -> dict[ast.AST, Counter[str]]:
        """The names that each function binds for itself, with the number of places where it does."""
        found: dict[ast.AST, Counter[str]] = {}
        shared: dict[ast.AST, set[str]] = {}
        for node in self.module.nodes:
            match node:
                case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                    bound = name
                case ast.Global(names=given):
                    function = self._function_around(node)
                    if function is not None:
                        shared.setdefault(function, set()).update(given)
                    continue
                case _:
                    continue
            function = self._function_around(node)
            if function is not None:
                found.setdefault(function, Counter())[bound] += 1
        for function, names in shared.items():
            for name in names:
                found.get(function, Counter[str]()).pop(name, None)
        return found

    @cached_property
    def stars(self) -> list[str]:
        """The modules of which everything is imported."""
        return [
            node.module
            for node in self.module.nodes
            if isinstance(node, ast.ImportFrom) and node.module and any(alias.name == "*" for alias in node.names)
        ]

    @cached_property
    def names_of_torch(self) -> frozenset[str]:
        """The names under which the module imports torch or a part of it."""
        imports = (node for node in self.module.nodes if isinstance(node, ast.Import | ast.ImportFrom))
        return frozenset(
            alias.asname or alias.name.partition(".")[0]
            for node in imports
            for alias in node.names
            if (getattr(node, "module", None) or alias.name).partition(".")[0] == "torch"
        )

    @cached_property
    def kernels(self) -> frozenset[ast.AST]:
        """The functions that Triton compiles: nothing in them is of torch."""
        return frozenset(
            node for node in self.module.nodes if isinstance(node, Function) and self._is_triton(node.decorator_list)
        )

    def in_kernel(self, node: ast.AST) -> bool:
        """Whether ``node`` is in a function that Triton compiles."""
        return any(function in self.kernels for function in self.module.functions_around(node))

    def place(self, node: ast.AST) -> Place | None:
        """Return the variable or attribute that ``node`` reads or writes."""
        match node:
            case ast.Attribute(value=base, attr=name):
                return self._owner(base) or _OF, name
            case ast.Name(id=name) | ast.arg(arg=name):
                return self._scope_of(node, name), name
        return None

    def attribute(self, name: str) -> Place:
        """Return the place of attributes called ``name`` of unknown objects."""
        return _OF, name

    def variable(self, node: ast.expr, steps: int = _MAX_STEPS) -> Place | None:
        """Return the variable or attribute that ``node`` reads, with the class of its object where that is known."""
        if isinstance(node, ast.Attribute):
            return self.class_of(node.value, steps) or _OF, node.attr
        return self.place(node)

    def places(self, variable: Place) -> list[Place] | None:
        """Return the places whose values ``variable`` may have; ``None`` for an attribute of an unknown object."""
        owner, name = variable
        if not is_attribute(variable):
            return [variable]
        kin = self._kin.of(owner) if isinstance(owner, ast.ClassDef) else None
        return None if kin is None else [(_OF, name), *((each, name) for each in kin)]

    def values(self, variable: Place) -> list[ast.expr | None]:
        """Return the values that ``variable`` may have; ``None`` for one that is not written out."""
        if variable not in self._values:
            places = self.places(variable)
            if places is None:
                found = self._of_attributes.get(variable[1], [])
            else:
                found = [value for place in places for value in self.assigned.get(place, [])]
            # A parameter that nothing else is assigned to.
            self._values[variable] = [*self.handing.given.get(variable, found)] if found == [None] else found
        return self._values[variable]

    def class_of(self, node: ast.expr, steps: int = _MAX_STEPS) -> ast.ClassDef | None:
        """Return the class in the source of which ``node`` is an object, or which it is; ``None`` if unsure."""
        owner = self._owner(node)
        if owner is not None or steps == 0:
            return owner
        match node:
            case ast.Call(func=ast.Name() as function):
                return None if self.is_itself(function) else self._owner(function)
            case ast.Name() | ast.Attribute():
                variable = self.variable(node, steps - 1)
                return None if variable is None else self._class_of_all(variable, steps)
        return None

    def _class_of_all(self, variable: Place, steps: int) -> ast.ClassDef | None:
        """The class of every value of ``variable``."""
        if variable not in self._classes_of:
            # Meanwhile, for a name that leads back to itself.
            self._classes_of[variable] = None
            values = self.values(variable)
            found = {None if value is None else self.class_of(value, steps - 1) for value in values}
            self._classes_of[variable] = found.pop() if len(found) == 1 else None
        return self._classes_of[variable]

    def _owner(self, node: ast.expr) -> ast.ClassDef | None:
        """The class here that ``node`` names, or of which it is ``self``."""
        if not isinstance(node, ast.Name):
            return None
        if self.is_itself(node):
            class_ = self.class_around(node)
            return None if class_ is None else self._one_of(class_)
        known = self.defined.get(node.id)
        return known if isinstance(known, ast.ClassDef) and self._scope_of(node, node.id) is None else None

    @cached_property
    def handing(self) -> Handing:
        """The calls of functions here, with the arguments that they hand on."""
        return Handing(self.module, self.nodes, self.defined)

    @cached_property
    def _kin(self) -> Kin:
        named = {name: node for name, node in self.defined.items() if isinstance(node, ast.ClassDef)}
        return Kin((node for node in self.module.nodes if isinstance(node, ast.ClassDef)), named)

    def _one_of(self, class_: ast.ClassDef) -> ast.ClassDef:
        """One for all definitions of a class, in the branches of an ``if``, say."""
        known = self.defined.get(class_.name)
        return known if isinstance(known, ast.ClassDef) and _is_top(self.module, class_) else class_

    def path(self, node: ast.expr, steps: int = _MAX_STEPS) -> str | None:
        """Return the full name that ``node`` refers to, as ``Module.dotted``, and through attributes and tables.

        Names out of ``from torch import *`` count as torch's.
        """
        if node not in self._paths:
            # Meanwhile, for a name that leads back to itself.
            self._paths[node] = None
            self._paths[node] = self._path(node, steps)
        return self._paths[node]

    def _path(self, node: ast.expr, steps: int) -> str | None:
        known = self.module.dotted(node)
        if known is not None:
            name = known.removeprefix("builtins.")
            known = f"{self.stars[0]}.{name}" if name != known and self._is_from_star(name) else known
            return ".".join(part for part in known.split(".") if part not in _TABLES)
        if steps == 0:
            return None
        match node:
            case ast.Attribute(value=base, attr=name):
                around = self.path(base, steps - 1)
                if around is not None:
                    return around if name in _TABLES else f"{around}.{name}"
                return self._path_of_attribute(node, steps) if self.is_itself(base) else None
            case ast.Subscript(value=base, slice=key):
                text, table = self.module.text(key), self.path(base, steps - 1)
                if text is not None and table is not None:
                    return text if table == "sys.modules" else f"{table}.{text}"
            case ast.Call(func=function, args=[first, *rest]):
                called = self.path(function, steps - 1)
                if called == "builtins.vars":
                    return self.path(first, steps - 1)
                if called == "builtins.getattr" and rest:
                    base_path, attribute = self.path(first, steps - 1), self.module.text(rest[0])
                    return f"{base_path}.{attribute}" if base_path and attribute else None
        return None

    @cached_property
    def defined(self) -> dict[str, ast.AST]:
        """The functions and classes at the top level, by name."""
        return {
            node.name: node
            for node in self.module.nodes
            if isinstance(node, Function | ast.ClassDef) and _is_top(self.module, node)
        }

    def is_itself(self, node: ast.expr) -> bool:
        """Whether ``node`` is the first parameter of the method around it: an object of a class here, or the class."""
        if not isinstance(node, ast.Name):
            return False
        method = self._scope_of(node, node.id)
        class_ = None if method is None else self.module.parent(method)
        if not isinstance(method, Function) or not isinstance(class_, ast.ClassDef) or self.is_tensor(class_):
            return False
        first = next(iter((*method.args.posonlyargs, *method.args.args)), None)
        static = any(self.module.dotted(each) == "builtins.staticmethod" for each in method.decorator_list)
        only = method is not None and self._locals[method][node.id] == 1
        return first is not None and first.arg == node.id and only and not static

    def is_tensor(self, class_: ast.ClassDef) -> bool:
        """Whether objects of ``class_`` are tensors."""
        return any((self.module.dotted(base) or "").startswith("torch.Tensor") for base in class_.bases)

    def _path_of_attribute(self, node: ast.Attribute, steps: int) -> str | None:
        key = self.class_around(node), node.attr
        if key not in self._attribute_paths:
            self._attribute_paths[key] = None
            self._attribute_paths[key] = self._only_path(node, steps)
        return self._attribute_paths[key]

    def _only_path(self, node: ast.Attribute, steps: int) -> str | None:
        values = self.values(self.variable(node) or (None, ""))
        if not values and (class_ := self.class_around(node)) is not None:
            values = [
                value
                for statement in class_.body
                for target, value in assignments(statement)
                if isinstance(target, ast.Name) and target.id == node.attr
            ]
        paths = {None if value is None else self.path(value, steps - 1) for value in values}
        return next(iter(paths)) if len(paths) == 1 else None

    def class_around(self, node: ast.AST) -> ast.ClassDef | None:
        """Return the innermost class around ``node``."""
        around = self.module.parent(node)
        while around is not None and not isinstance(around, ast.ClassDef):
            around = self.module.parent(around)
        return around

    def _is_from_star(self, name: str) -> bool:
        return bool(self.stars) and self.stars[0].startswith("torch") and not hasattr(builtins, name)

    def _function_around(self, node: ast.AST) -> ast.AST | None:
        around = self.module.parent(node)
        while around is not None and not isinstance(around, _Scope):
            around = self.module.parent(around)
        return around

    def _scope_of(self, node: ast.AST, name: str) -> ast.AST | None:
        around = self._function_around(node)
        while around is not None and name not in self._locals.get(around, ()):
            around = self._function_around(around)
        return around

    def _is_triton(self, decorators: list[ast.expr]) -> bool:
        plain = (item.func if isinstance(item, ast.Call) else item for item in decorators)
        return any(self.module.dotted(item) in TRITON for item in plain)


def _is_top(module: Module, node: ast.AST) -> bool:
    around = module.parent(node)
    while isinstance(around, ast.If | ast.Try | ast.With | ast.ExceptHandler):
        around = module.parent(around)
    return around is module.tree


def is_attribute(place: Place) -> bool:
    """Whether ``place`` is an attribute, and no variable."""
    return place[0] is _OF or isinstance(place[0], ast.ClassDef)


def is_super(node: ast.expr) -> bool:
    """Whether ``node`` is a call of ``super``."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"
