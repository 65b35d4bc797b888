"""Modules of torch that a candidate holds: which of them it calls, and which it keeps for their weights alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Final

from evaluator.candidates.candidate import CLASS_NAME
from evaluator.source_flags.module import Function
from evaluator.source_rules.foreign import Foreign
from evaluator.source_rules.program import Place, Program, is_attribute, is_super
from kerneljudge.terms.operator_names import TENSOR_METHODS, operators_of

__all__ = ["REFERENCE", "Layers"]

REFERENCE: Final = "model.Model"
"""The problem's own reference, by the name under which candidates can import it."""

Operators = frozenset[str]
_NONE: Final[Operators] = frozenset()
_FORWARD: Final = frozenset({"forward", "_conv_forward", "__call__", "_call_impl", "_wrapped_call_impl"})
_SAME: Final = frozenset(
    {"to", "cuda", "cpu", "half", "float", "double", "bfloat16", "eval", "train", "requires_grad_", "apply", "type",
     "values", "items", "pop", "get"}
)  # fmt: skip
"""Methods of a module, or of several together, that return it or its parts."""
_PARTS: Final = frozenset({"children", "modules", "named_children", "named_modules", "get_submodule", "__getattr__"})
"""Methods by which a module reaches the layers in its attributes."""
_WRAPS: Final = frozenset(
    {"torch.compile", "torch.jit.script", "torch.jit.trace", "torch.fx.symbolic_trace", "copy.deepcopy", "copy.copy",
     "collections.OrderedDict", "functools.partial", "builtins.list", "builtins.tuple", "builtins.dict", "builtins.zip",
     "builtins.enumerate", "builtins.reversed", "builtins.iter", "builtins.next", "builtins.sorted", "builtins.getattr"}
)  # fmt: skip
"""Functions whose result calls, holds or is one of their arguments."""
_CALLS: Final = frozenset(
    {"builtins.map", "functools.reduce", "torch.utils.checkpoint.checkpoint", "torch.func.functional_call",
     "torch.vmap", "torch.utils.checkpoint.checkpoint_sequential",
     "torch.nn.utils.stateless.functional_call", "torch.func.vmap"}
)  # fmt: skip
"""Functions that call one of their arguments."""
_KEEPS: Final = frozenset({"append", "extend", "insert", "add_module", "register_module", "update"})
_METHODS: Final = TENSOR_METHODS | {
    "chunk", "contiguous", "detach", "expand", "flatten", "gather", "index_select", "narrow", "permute", "repeat",
    "reshape", "scatter", "select", "split", "squeeze", "transpose", "unflatten", "unsqueeze", "view",
}  # fmt: skip
"""Methods of tensors whose names layers have as well."""
_RETURNED: Final = "return"
"""Stands for the values that a function returns: no variable has this name."""
_MAX_ROUNDS: Final = 6
_MAX_NESTING: Final = 40


class Layers:
    """The layers in ``program``: places that may hold a module of torch, with the operators that its call computes.

    ``of_reference``: those that a call of the problem's ``Model`` computes. ``inherited``: its attributes with layers.
    """

    def __init__(
        self,
        program: Program,
        foreign: Foreign,
        of_reference: Operators,
        inherited: Mapping[Place, Operators],
    ) -> None:
        self._program = program
        self._foreign = foreign
        self._of_reference = of_reference
        self._held: dict[Place, Operators] = {}
        self._classes_held: dict[Place, Operators] = {}
        self._of_all: Operators = _NONE
        self._of_attributes: dict[str, Operators] = {}
        self._classes = {name: node for name, node in program.defined.items() if isinstance(node, ast.ClassDef)}
        for place, held in inherited.items():
            self._add(place, held)
        self._fill()

    @property
    def attributes(self) -> Mapping[str, Operators]:
        """The names of attributes that hold layers."""
        return self._of_attributes

    def calls(self) -> Iterator[tuple[int, str, Operators]]:
        """Yield each call of a layer: its line, its name as written, and the operators that it computes."""
        for node in self._program.nodes:
            match node:
                case ast.Call():
                    yield from self._of_call(node)
                case ast.Attribute(value=base, attr=name, lineno=line) if name in _FORWARD:
                    held = self._above(self._program.class_around(node)) if is_super(base) else self._makes(base)
                    if held:
                        yield line, "super().forward" if is_super(base) else _shown(node), held
                case ast.ClassDef(name=name, lineno=line) if name == CLASS_NAME:
                    if held := self._of_class(node):
                        yield line, f"the forward that {name} inherits", held
                case ast.Assign(targets=[ast.Name(id=name)], value=value, lineno=line) if name == CLASS_NAME:
                    if held := self._of_path(self._program.path(value)) | self._of_name(value):
                        yield line, f"{name}, which is {_shown(value)}", held

    def _of_call(self, call: ast.Call) -> Iterator[tuple[int, str, Operators]]:
        if isinstance(call.func, ast.Attribute) and call.func.attr in _FORWARD | _SAME | _PARTS | _KEEPS:
            return
        if (held := self._makes(call.func)) and not self._is_of_tensor(call.func):
            yield call.lineno, _shown(call.func), held
        if self._program.path(call.func) in _CALLS:
            for given in call.args:
                if held := self._makes(given):
                    yield given.lineno, _shown(given), held

    def _is_of_tensor(self, function: ast.expr) -> bool:
        """Whether ``function`` is rather a method of a tensor than a layer of that name in another object."""
        if not isinstance(function, ast.Attribute) or function.attr.strip("_") not in _METHODS:
            return False
        return self._program.class_of(function.value) is None and not self._makes(function.value)

    def _fill(self) -> None:
        for _ in range(_MAX_ROUNDS):
            before = dict(self._held)
            self._classes_held.clear()
            self._of_all = _NONE.union(*self._of_attributes.values())
            for function, returned in self._program.handing.returns.items():
                self._add((function, _RETURNED), self._all(returned))
            for place, values in self._program.assigned.items():
                for value in values:
                    self._add(place, self._makes(value))
            for node in self._program.nodes:
                self._hand_on(node)
            if self._held == before:
                return

    def _hand_on(self, node: ast.AST) -> None:
        """Note layers that a loop, a call of a function here, or a method of a container hands on."""
        match node:
            case ast.For(target=target, iter=values) | ast.comprehension(target=target, iter=values):
                self._unpack(target, values)
            case ast.Call(func=ast.Attribute(value=base, attr=name), args=args) if name in _KEEPS:
                held = self._all(args)
                self._add(self._program.place(base), held)
                if name in ("add_module", "register_module") and args:
                    self._add(self._program.attribute(self._program.module.text(args[0]) or ""), held)
            case ast.Call(func=function, args=[_, key, value]) if self._program.path(function) == "builtins.setattr":
                self._add(self._program.attribute(self._program.module.text(key) or ""), self._makes(value))
            case ast.Call():
                for parameter, given in self._program.handing.pairs(node):
                    self._add(self._program.place(parameter), self._makes(given))

    def _unpack(self, target: ast.expr, values: ast.expr) -> None:
        """Note layers that a loop over ``values`` gives to ``target``."""
        match target, values:
            case ast.Tuple(elts=targets), ast.Call(func=function, args=given) if self._program.path(
                function
            ) == "builtins.zip" and len(given) == len(targets):
                for one, its_values in zip(targets, given, strict=True):
                    self._unpack(one, its_values)
            case ast.Tuple(elts=[_, inner]), ast.Call(func=function, args=[given, *_]) if (
                self._program.path(function) == "builtins.enumerate"
            ):
                self._unpack(inner, given)
            case _:
                held = self._makes(values)
                for part in ast.walk(target) if held else ():
                    self._add(self._program.place(part), held)

    def _add(self, place: Place | None, held: Operators) -> None:
        if place is not None and held:
            self._held[place] = self._held.get(place, _NONE) | held
            if is_attribute(place):
                name = place[1]
                self._of_attributes[name] = self._of_attributes.get(name, _NONE) | held

    def _all(self, nodes: list[ast.expr], nesting: int = _MAX_NESTING) -> Operators:
        return _NONE.union(*(self._makes(node, nesting) for node in nodes))

    def _makes(self, node: ast.expr | None, nesting: int = _MAX_NESTING) -> Operators:
        """The operators that a call of ``node``, or of a part of it, computes."""
        if node is None or nesting == 0:
            return _NONE
        nesting -= 1
        match node:
            case ast.Attribute(value=base, attr="_modules") if self._program.is_itself(base):
                return self._of_all
            case ast.Name() | ast.Attribute():
                return self._of_variable(node)
            case ast.Call():
                return self._of_construction(node, nesting)
            case ast.Subscript(value=inner) | ast.Starred(value=inner) | ast.NamedExpr(value=inner):
                return self._makes(inner, nesting)
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items) | ast.BoolOp(values=items):
                return self._all(items, nesting)
            case ast.Dict(values=items):
                return self._all(items, nesting)
            case ast.IfExp(body=first, orelse=second) | ast.BinOp(left=first, op=ast.Add(), right=second):
                return self._all([first, second], nesting)
            case ast.ListComp(elt=inner) | ast.GeneratorExp(elt=inner) | ast.DictComp(value=inner):
                return self._makes(inner, nesting)
        return _NONE

    def _of_construction(self, call: ast.Call, nesting: int) -> Operators:
        path = self._program.path(call.func)
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        if path is not None and _is_class_of_torch(path):
            return self._of_path(path) | self._all(given, nesting)
        if path == REFERENCE:
            return self._of_reference
        if path == "builtins.getattr" and len(call.args) > 1 and self._program.is_itself(call.args[0]):
            name = self._program.module.text(call.args[1])
            return self._of_all if name is None else self._of_attributes.get(name, _NONE)
        if path in _WRAPS:
            return self._all(given, nesting) | _NONE.union(*(self._of_path(self._program.path(arg)) for arg in given))
        if isinstance(call.func, ast.Attribute) and call.func.attr in _SAME | _PARTS:
            own = call.func.attr in _PARTS and self._program.is_itself(call.func.value)
            return self._of_all if own else self._makes(call.func.value, nesting)
        called = self._program.handing.called(call.func)
        returned = (self._held.get((function, _RETURNED), _NONE) for function, _ in called)
        return self._of_name(call.func).union(self._of_classes(call.func, nesting), *returned)

    def _of_classes(self, node: ast.expr | None, nesting: int) -> Operators:
        """The operators of objects of the classes of torch that ``node`` may be, or has as its items."""
        if node is None or nesting == 0:
            return _NONE
        nesting -= 1
        match node:
            case ast.Name() | ast.Attribute():
                path, variable = self._program.path(node), self._program.variable(node)
                if path is not None or variable is None:
                    return self._of_path(path)
                if variable not in self._classes_held:
                    # Meanwhile, for a name that leads back to itself.
                    self._classes_held[variable] = _NONE
                    found = (self._of_classes(value, nesting) for value in self._program.values(variable))
                    self._classes_held[variable] = _NONE.union(*found)
                return self._classes_held[variable]
            case ast.Subscript(value=inner) | ast.Call(func=ast.Attribute(value=inner, attr="get" | "pop")):
                return self._of_classes(inner, nesting)
            case ast.Dict(values=items) | ast.List(elts=items) | ast.Tuple(elts=items):
                return _NONE.union(*(self._of_classes(item, nesting) for item in items))
            case ast.IfExp(body=first, orelse=second):
                return self._of_classes(first, nesting) | self._of_classes(second, nesting)
            case ast.Lambda(body=body):
                return self._makes(body, nesting)
        return _NONE

    def _of_variable(self, node: ast.Name | ast.Attribute) -> Operators:
        variable = self._program.variable(node)
        places = None if variable is None else self._program.places(variable)
        if places is not None:
            return _NONE.union(*(self._held.get(place, _NONE) for place in places))
        if not isinstance(node, ast.Attribute):
            return _NONE
        if self._program.class_of(node.value) is None and self._foreign.is_foreign(node.value):
            return _NONE
        return self._of_attributes.get(node.attr, _NONE)

    def _of_name(self, node: ast.expr) -> Operators:
        """The operators of an object of the class here that ``node`` names."""
        return self._of_class(self._classes.get(node.id)) if isinstance(node, ast.Name) else _NONE

    def _of_path(self, path: str | None) -> Operators:
        if path == REFERENCE:
            return self._of_reference
        return operators_of(path.rpartition(".")[2]) if path is not None and _is_class_of_torch(path) else _NONE

    def _of_class(self, node: ast.ClassDef | None, seen: frozenset[str] = _NONE) -> Operators:
        """The operators of the forward that the class ``node`` inherits; none where it has one of its own."""
        if node is None or any(isinstance(each, Function) and each.name in _FORWARD for each in node.body):
            return _NONE
        return self._above(node, seen)

    def _above(self, node: ast.ClassDef | None, seen: frozenset[str] = _NONE) -> Operators:
        """The operators of the forward above the class ``node``."""
        if node is None or node.name in seen:
            return _NONE
        bases = [(self._program.path(base), base) for base in node.bases]
        known = [self._classes.get(base.id) for _, base in bases if isinstance(base, ast.Name)]
        inherited = [self._of_class(each, seen | {node.name}) for each in known]
        if any((path or "").rpartition(".")[2] == "Sequential" for path, _ in bases):
            # Its layers are the arguments of its constructor.
            calls = (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))
            inherited += [self._all(call.args) for call in calls if isinstance(call.func, ast.Attribute)]
        return _NONE.union(*inherited, *(self._of_path(path) for path, _ in bases))


def _is_class_of_torch(path: str) -> bool:
    return path.startswith("torch.") and path.rpartition(".")[2].lstrip("_")[:1].isupper()


def _shown(node: ast.expr) -> str:
    return ast.unparse(node)[:60] if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) else "a layer"
