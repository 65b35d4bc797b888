"""The values in a candidate's source that are certainly no tensors: a method of theirs is none of torch's."""

from __future__ import annotations

import ast
from functools import cached_property
from typing import Final

from evaluator.source_flags.extensions import builds_extension
from evaluator.source_flags.module import Function
from evaluator.source_rules.assignments import assignments
from evaluator.source_rules.program import Place, Program

__all__ = ["Foreign"]

_MAX_STEPS: Final = 12
_PACKAGES: Final = ("numpy.", "math.", "logging.", "time.", "json.", "random.", "os.", "pathlib.", "re.", "ctypes.")
"""Packages whose functions return no tensor."""
_FUNCTIONS: Final = frozenset(
    f"builtins.{name}"
    for name in ("int", "float", "str", "bool", "len", "range", "list", "dict", "set", "tuple", "open", "sorted",
                 "frozenset", "bytes")
)  # fmt: skip
_DISPLAYS = (
    ast.Constant | ast.List | ast.Tuple | ast.Dict | ast.Set | ast.JoinedStr | ast.ListComp | ast.SetComp | ast.DictComp
)


class Foreign:
    """The values in ``program`` that are certainly no tensors."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._known: dict[ast.AST, bool] = {}
        self._variables: dict[Place, bool] = {}
        self._tables: dict[Place, bool] = {}

    def is_foreign(self, node: ast.expr | None, steps: int = _MAX_STEPS) -> bool:
        """Whether ``node`` is certainly no tensor: an extension, an object of a class here, a module, a number."""
        if node is None or steps == 0:
            return False
        if node not in self._known:
            # Meanwhile, for a name that leads back to itself.
            self._known[node] = False
            self._known[node] = self._is_foreign(node, steps)
        return self._known[node]

    def _is_foreign(self, node: ast.expr, steps: int) -> bool:
        program = self._program
        if isinstance(node, _DISPLAYS):
            return True
        match node:
            case ast.Call():
                return self._is_made(node, steps)
            case ast.BoolOp(values=values):
                return all(self.is_foreign(value, steps - 1) for value in values)
            case ast.IfExp(body=first, orelse=second):
                return self.is_foreign(first, steps - 1) and self.is_foreign(second, steps - 1)
            case ast.Subscript(value=ast.Name() | ast.Attribute() as table):
                return self._are_items(table, steps)
            case ast.Name() | ast.Attribute():
                if program.is_itself(node):
                    return True
                path = program.path(node)
                if path is not None:
                    return not path.startswith(("builtins.", "torch.Tensor"))
                if isinstance(node, ast.Name) and node.id in program.defined:
                    return True
                return self._are_values(node, steps)
        return False

    def _are_values(self, node: ast.Name | ast.Attribute, steps: int) -> bool:
        """Whether every value of the variable or attribute is foreign."""
        variable = self._program.variable(node)
        if variable is None:
            return False
        if variable not in self._variables:
            self._variables[variable] = False
            # A variable that keeps its value gets no other one: ext = ext or build().
            values = [
                each
                for value in self._program.values(variable)
                for each in (value.values if isinstance(value, ast.BoolOp) else [value])
                if not (isinstance(each, ast.Name | ast.Attribute) and self._program.variable(each) == variable)
            ]
            known = bool(values) and all(self.is_foreign(value, steps - 1) for value in values)
            self._variables[variable] = known or (not values and self._is_property(node, steps))
        return self._variables[variable]

    def _is_property(self, node: ast.Name | ast.Attribute, steps: int) -> bool:
        """Whether ``node`` is a property of an object here that returns nothing but foreign values."""
        if not isinstance(node, ast.Attribute) or self._program.class_of(node.value) is None:
            return False
        return self._are_returned(node, steps)

    def _are_items(self, table: ast.Name | ast.Attribute, steps: int) -> bool:
        """Whether everything in the list or dictionary ``table`` is foreign."""
        variable = self._program.variable(table)
        if variable is None:
            return False
        if variable not in self._tables:
            self._tables[variable] = False
            items = self._items(variable)
            self._tables[variable] = bool(items) and all(self.is_foreign(item, steps - 1) for item in items or ())
        return self._tables[variable]

    def _items(self, variable: Place) -> list[ast.expr | None] | None:
        """The items of the list or dictionary ``variable``; ``None`` where something else may put some there."""
        name = variable[1]
        if name in self._handed_on:
            return None
        found = [*self._stored.get(name, [])]
        for value in self._program.values(variable):
            match value:
                case ast.Dict(values=items) | ast.List(elts=items) | ast.Tuple(elts=items):
                    found.extend(items)
                case _:
                    return None
        return found

    @cached_property
    def _stored(self) -> dict[str, list[ast.expr | None]]:
        """The values that are stored into the items of variables and attributes, by the names of these."""
        found: dict[str, list[ast.expr | None]] = {}
        for node in self._program.nodes:
            for target, value in assignments(node):
                if isinstance(target, ast.Subscript) and (name := _name(target.value)):
                    found.setdefault(name, []).append(value)
        return found

    @cached_property
    def _handed_on(self) -> frozenset[str]:
        """The names of variables and attributes that are read as a whole: others may put items into them."""
        found = set[str]()
        for node in self._program.nodes:
            if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
                around = self._program.module.parent(node)
                reads = isinstance(around, ast.Subscript) and around.value is node
                reads = reads or (isinstance(around, ast.Attribute) and around.attr == "get")
                if not (reads or isinstance(around, ast.Compare | ast.UnaryOp | ast.If)):
                    found.add(_name(node))
        return frozenset(found)

    @cached_property
    def _builders(self) -> frozenset[str]:
        """The functions in which an extension is built."""
        module = self._program.module
        return frozenset(
            function.name
            for node in module.nodes
            if isinstance(node, ast.Call) and builds_extension(module, node)
            for function in module.functions_around(node)
        )

    def _is_made(self, call: ast.Call, steps: int) -> bool:
        if builds_extension(self._program.module, call):
            return True
        path = self._program.path(call.func)
        if path is not None:
            return path.startswith(_PACKAGES) or path in _FUNCTIONS
        match call.func:
            case ast.Name(id=name):
                known = self._program.defined.get(name)
                if isinstance(known, ast.ClassDef):
                    return not self._program.is_tensor(known)
                return name in self._builders or self._are_returned(call.func, steps)
            case ast.Attribute(value=ast.Name() | ast.Attribute() as base, attr="get") if self._are_items(base, steps):
                return True
            case ast.Attribute(value=base, attr=name) if self.is_foreign(base, steps - 1):
                return name in self._builders or self._are_returned(call.func, steps)
        return False

    def _are_returned(self, function: ast.expr, steps: int) -> bool:
        """Whether the functions here that ``function`` may be return nothing but foreign values."""
        called = [each for each, _ in self._program.handing.called(function)]
        return bool(called) and all(self._returns_foreign(each, steps) for each in called)

    def _returns_foreign(self, function: Function, steps: int) -> bool:
        if function not in self._known:
            self._known[function] = False
            values = self._program.handing.returns.get(function, [])
            self._known[function] = bool(values) and all(self.is_foreign(value, steps - 1) for value in values)
        return self._known[function]


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""
