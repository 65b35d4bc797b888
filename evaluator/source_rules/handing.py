"""The functions of a source that its calls reach, and the arguments that they hand to each parameter."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

from evaluator.source_flags.module import Function, Module

__all__ = ["Handing"]

_MAX_FUNCTIONS: Final = 8
"""Of one name: ordinary sources have fewer methods of one name that take a layer or an extension."""


class Handing:
    """The calls in ``nodes`` of ``module``, as far as they are of ``defined``, its functions and classes by name."""

    def __init__(self, module: Module, nodes: Sequence[ast.AST], defined: Mapping[str, ast.AST]) -> None:
        self._module = module
        self._nodes = nodes
        self._defined = defined

    @cached_property
    def _methods(self) -> dict[str, list[Function]]:
        """The methods of the classes at the top level, by name."""
        found: dict[str, list[Function]] = {}
        for class_ in self._defined.values():
            for method in class_.body if isinstance(class_, ast.ClassDef) else ():
                if isinstance(method, Function):
                    found.setdefault(method.name, []).append(method)
        return found

    @cached_property
    def _inner(self) -> dict[str, list[Function]]:
        """The functions within functions, by name."""
        found: dict[str, list[Function]] = {}
        for node in self._nodes:
            if isinstance(node, Function) and isinstance(self._module.parent(node), Function):
                found.setdefault(node.name, []).append(node)
        return found

    @cached_property
    def returns(self) -> dict[Function, list[ast.expr]]:
        """The values that each function returns."""
        found: dict[Function, list[ast.expr]] = {}
        for node in self._nodes:
            if isinstance(node, ast.Return) and node.value is not None:
                function = next(self._module.functions_around(node), None)
                if function is not None:
                    found.setdefault(function, []).append(node.value)
        return found

    def called(self, function: ast.expr) -> list[tuple[Function, int]]:
        """Return the functions here that ``function`` may be, each with the number of its parameters given otherwise.

        A class stands for its ``__init__``, and ``apply`` of a function of autograd for its ``forward``.
        """
        match function:
            case ast.Name(id=name):
                known = self._defined.get(name)
                if isinstance(known, Function):
                    return [(known, 0)]
                if known is None:
                    return [(inner, 0) for inner in self._inner.get(name, [])[:_MAX_FUNCTIONS]]
                return [(method, 1) for method in _methods_of(known, "__init__")]
            case ast.Attribute(value=ast.Name(id=class_name), attr="apply") if self._is_autograd(class_name):
                return [(method, 1) for method in _methods_of(self._defined[class_name], "forward")]
            case ast.Attribute(attr=name):
                methods = self._methods.get(name, [])
                return [(method, 0 if _is_static(method) else 1) for method in methods[:_MAX_FUNCTIONS]]
        return []

    def pairs(self, call: ast.Call) -> Iterator[tuple[ast.arg, ast.expr]]:
        """Yield each parameter of a function here with the argument that ``call`` gives to it."""
        for function, skipped in self.called(call.func):
            parameters = [*function.args.posonlyargs, *function.args.args][skipped:]
            yield from zip(parameters, call.args, strict=False)
            by_name = {parameter.arg: parameter for parameter in (*parameters, *function.args.kwonlyargs)}
            for keyword in call.keywords:
                if keyword.arg in by_name:
                    yield by_name[keyword.arg], keyword.value

    @cached_property
    def given(self) -> dict[tuple[ast.AST | None, str], list[ast.expr]]:
        """All values of each parameter, its default among them, by its place; only where these are certain."""
        found: dict[ast.arg, list[ast.expr]] = {}
        unsure: set[Function] = set()
        for node in self._nodes:
            match node:
                case ast.Call():
                    if any(isinstance(each, ast.Starred) for each in node.args) or None in {
                        keyword.arg for keyword in node.keywords
                    }:
                        unsure.update(function for function, _ in self.called(node.func))
                    for parameter, value in self.pairs(node):
                        found.setdefault(parameter, []).append(value)
                case ast.Name(ctx=ast.Load()) | ast.Attribute(ctx=ast.Load()):
                    if not self._is_called(node):
                        unsure.update(self._mentioned(node))
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    for parameter, default in _defaults(node.args):
                        found.setdefault(parameter, []).append(default)
                    if self._is_called_by_others(node):
                        unsure.add(node)
        known: dict[tuple[ast.AST | None, str], list[ast.expr]] = {}
        for parameter, values in found.items():
            function = next(self._module.functions_around(parameter), None)
            if function is not None and function not in unsure:
                known[function, parameter.arg] = values
        return known

    def _is_autograd(self, name: str) -> bool:
        class_ = self._defined.get(name)
        return isinstance(class_, ast.ClassDef) and any(
            self._module.dotted(base) == "torch.autograd.Function" for base in class_.bases
        )

    def _is_called(self, node: ast.expr) -> bool:
        around = self._module.parent(node)
        if isinstance(around, ast.Attribute) and isinstance(node, ast.Name) and around.attr == "apply":
            node, around = around, self._module.parent(around)
        return isinstance(around, ast.Call) and around.func is node

    def _mentioned(self, node: ast.Name | ast.Attribute) -> Iterator[Function]:
        """The functions here that may be called somewhere else, because ``node`` mentions them."""
        if isinstance(node, ast.Attribute):
            yield from self._methods.get(node.attr, [])[:_MAX_FUNCTIONS]
            return
        known = self._defined.get(node.id)
        if isinstance(known, Function):
            yield known
        yield from (*_methods_of(known, "__init__"), *_methods_of(known, "forward"))

    def _is_called_by_others(self, function: Function) -> bool:
        """Whether torch or Python calls ``function``, or the caller cannot be told."""
        class_ = self._module.parent(function)
        if not isinstance(class_, ast.ClassDef):
            return self._defined.get(function.name) is not function
        if function.name == "forward":
            return not self._is_autograd(class_.name)
        special = function.name.startswith("__") and function.name != "__init__"
        return special or len(self._methods.get(function.name, [])) > _MAX_FUNCTIONS


def _methods_of(class_: ast.AST | None, name: str) -> list[Function]:
    if not isinstance(class_, ast.ClassDef):
        return []
    return [method for method in class_.body if isinstance(method, Function) and method.name == name]


def _is_static(method: Function) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "staticmethod" for each in method.decorator_list)


def _defaults(arguments: ast.arguments) -> Iterator[tuple[ast.arg, ast.expr]]:
    plain = [*arguments.posonlyargs, *arguments.args]
    if arguments.defaults:
        yield from zip(plain[-len(arguments.defaults) :], arguments.defaults, strict=True)
    for parameter, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if default is not None:
            yield parameter, default
