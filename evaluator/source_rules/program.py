"""A candidate's module as the rules read it: the reached part of it, its paths into torch, and the places of values."""

from __future__ import annotations

import ast
import builtins
from functools import cached_property
from typing import Final

from evaluator.candidates.candidate import CLASS_NAME
from evaluator.source_flags.extensions import builds_extension
from evaluator.source_flags.module import Function, Module
from evaluator.source_rules.assignments import assignments
from evaluator.source_rules.reach import unreached

__all__ = ["Place", "Program", "is_super"]

Place = tuple[ast.AST | None, str]
"""A variable: the function that has it, ``None`` for the module, and its name. Attributes have ``_OF`` there."""

_OF: Final = ast.Pass()
"""Stands for all objects together: attributes are told apart by their names alone."""
_MAX_STEPS: Final = 12
_NO_TENSORS: Final = ("numpy.", "math.", "logging.", "time.", "json.", "random.", "os.", "pathlib.", "re.", "ctypes.")
"""Packages whose functions return no tensor."""
_NO_TENSOR: Final = frozenset(
    f"builtins.{name}"
    for name in ("int", "float", "str", "bool", "len", "range", "list", "dict", "set", "tuple", "open")
)
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
        self._foreign: dict[ast.AST, bool] = {}
        self._foreign_places: dict[Place, bool] = {}
        self._attribute_paths: dict[str, str | None] = {}

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
    def _locals(self) -> dict[ast.AST, set[str]]:
        """The names that each function binds for itself."""
        found: dict[ast.AST, set[str]] = {}
        shared: dict[ast.AST, set[str]] = {}
        for node in self.module.nodes:
            match node:
                case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                    names = {name}
                case ast.Global(names=given):
                    function = self._function_around(node)
                    if function is not None:
                        shared.setdefault(function, set()).update(given)
                    continue
                case _:
                    continue
            function = self._function_around(node)
            if function is not None:
                found.setdefault(function, set()).update(names)
        return {function: names - shared.get(function, set()) for function, names in found.items()}

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
            case ast.Attribute(attr=name):
                return _OF, name
            case ast.Name(id=name) | ast.arg(arg=name):
                return self._scope_of(node, name), name
        return None

    def attribute(self, name: str) -> Place:
        """Return the place of attributes called ``name``."""
        return _OF, name

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

    def is_foreign(self, node: ast.expr | None, steps: int = _MAX_STEPS) -> bool:
        """Whether ``node`` is certainly no tensor: an extension, an object of a class here, a module, a number."""
        if node is None or steps == 0:
            return False
        if node not in self._foreign:
            self._foreign[node] = False
            self._foreign[node] = self._is_foreign(node, steps)
        return self._foreign[node]

    def _is_foreign(self, node: ast.expr, steps: int) -> bool:
        match node:
            case ast.Constant() | ast.List() | ast.Tuple() | ast.Dict() | ast.Set() | ast.JoinedStr():
                return True
            case ast.Call():
                return self._makes_foreign(node, steps)
            case ast.Name() | ast.Attribute():
                if self.is_itself(node):
                    return True
                path = self.path(node)
                if path is not None:
                    return not path.startswith(("builtins.", "torch.Tensor"))
                if isinstance(node, ast.Name) and node.id in self.defined:
                    return True
                return self._holds_foreign(self.place(node) or (None, ""), steps)
        return False

    def _holds_foreign(self, place: Place, steps: int) -> bool:
        """Whether every value of the variable or attribute is foreign."""
        if place not in self._foreign_places:
            self._foreign_places[place] = False
            values = self.assigned.get(place, [])
            found = bool(values) and all(self.is_foreign(value, steps - 1) for value in values)
            self._foreign_places[place] = found
        return self._foreign_places[place]

    @cached_property
    def defined(self) -> dict[str, ast.AST]:
        """The functions and classes at the top level, by name."""
        return {
            node.name: node
            for node in self.module.nodes
            if isinstance(node, Function | ast.ClassDef) and _is_top(self.module, node)
        }

    @cached_property
    def _builders(self) -> frozenset[str]:
        """The functions in which an extension is built."""
        return frozenset(
            function.name
            for node in self.module.nodes
            if isinstance(node, ast.Call) and builds_extension(self.module, node)
            for function in self.module.functions_around(node)
        )

    def _makes_foreign(self, call: ast.Call, steps: int) -> bool:
        if builds_extension(self.module, call):
            return True
        path = self.path(call.func)
        if path is not None:
            return path.startswith(_NO_TENSORS) or path in _NO_TENSOR
        match call.func:
            case ast.Name(id=name):
                known = self.defined.get(name)
                return name in self._builders or (isinstance(known, ast.ClassDef) and not self._is_tensor(known))
            case ast.Attribute(value=base, attr=name):
                return name in self._builders and self.is_foreign(base, steps - 1)
        return False

    def is_itself(self, node: ast.expr) -> bool:
        """Whether ``node`` is the first parameter of the method around it: an object of a class here, or the class."""
        if not isinstance(node, ast.Name):
            return False
        method = self._scope_of(node, node.id)
        class_ = None if method is None else self.module.parent(method)
        if not isinstance(method, Function) or not isinstance(class_, ast.ClassDef) or self._is_tensor(class_):
            return False
        first = next(iter((*method.args.posonlyargs, *method.args.args)), None)
        static = any(self.module.dotted(each) == "builtins.staticmethod" for each in method.decorator_list)
        only = self.assigned.get((method, node.id)) == [None]
        return first is not None and first.arg == node.id and only and not static

    def _is_tensor(self, class_: ast.ClassDef) -> bool:
        return any((self.module.dotted(base) or "").startswith("torch.Tensor") for base in class_.bases)

    def _path_of_attribute(self, node: ast.Attribute, steps: int) -> str | None:
        if node.attr not in self._attribute_paths:
            self._attribute_paths[node.attr] = None
            self._attribute_paths[node.attr] = self._only_path(node, steps)
        return self._attribute_paths[node.attr]

    def _only_path(self, node: ast.Attribute, steps: int) -> str | None:
        values = self.assigned.get((_OF, node.attr), [])
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
        return any((self.module.dotted(item) or "") in ("triton.jit", "triton.runtime.jit.jit") for item in plain)


def _is_top(module: Module, node: ast.AST) -> bool:
    around = module.parent(node)
    while isinstance(around, ast.If | ast.Try | ast.With | ast.ExceptHandler):
        around = module.parent(around)
    return around is module.tree


def is_super(node: ast.expr) -> bool:
    """Whether ``node`` is a call of ``super``."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"
