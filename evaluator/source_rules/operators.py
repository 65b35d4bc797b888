"""Calls of torch's operators in a candidate: functions, methods of tensors, ``@``, layers, and the reference's own."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Final

from evaluator.candidates.candidate import parse_quietly
from evaluator.source_flags.module import Module, TooMuchToRead
from evaluator.source_rules.foreign import Foreign
from evaluator.source_rules.layers import REFERENCE, Layers
from evaluator.source_rules.program import Place, Program, is_super
from kerneljudge.terms.operator_names import TENSOR_METHODS, operators_of

__all__ = ["LIBRARIES", "ReferenceTooLarge", "operator_calls"]

Call = tuple[int, str, frozenset[str]]
"""A line, the call in words, and the operators that it computes."""

LIBRARIES: Final = frozenset(
    {"torch", "torch.nn.functional", "torch.Tensor", "torch.special", "torch.linalg", "torch.ops", "torch.ops.aten",
     "torch._C", "torch._C._nn", "torch._C._VariableFunctions", "torch._C._linalg", "torch._C._special", "torch._VF",
     "torch.functional", "torch.ops.prims", "torch._refs", "torch._prims", "torch._decomp"}
)  # fmt: skip
"""The modules and classes of torch that have operators."""
_OTHERS: Final = ("torch.backends.", "torch.distributions.", "torch.optim.", "torch.nn.init.", "torch.ops.")
_OPERATORS: Final = ("torch.ops.aten.", "torch.ops.prims.", "torch.ops.mkldnn.", "torch.ops.quantized.")
_ENDS: Final = frozenset({"forward", "_conv_forward", "__call__", "apply", "default", "out", "__wrapped__", "__func__"})
_BY_NAME: Final = frozenset({"operator.attrgetter", "operator.methodcaller"})


class ReferenceTooLarge(ValueError):
    """The problem's reference, which the candidate uses, is more than anybody could read."""


def operator_calls(program: Program, reference: str | None) -> Iterator[Call]:
    """Yield the calls of operators in the Python of ``program``. ``reference``: the source of the problem's reference.

    A candidate that calls the reference's forward calls all that it calls. Raises ``ReferenceTooLarge``.
    """
    inherited: dict[Place, frozenset[str]] = {}
    of_reference: frozenset[str] = frozenset()
    if reference is not None and _uses_reference(program):
        try:
            attributes, of_reference = _of_model(reference)
        except (TooMuchToRead, RecursionError, MemoryError) as error:
            raise ReferenceTooLarge from error
        inherited = {program.attribute(name): held for name, held in attributes.items()}
    foreign = Foreign(program)
    yield from _of_nodes(program, foreign, of_reference)
    yield from Layers(program, foreign, of_reference, inherited).calls()


def _of_model(reference: str) -> tuple[Mapping[str, frozenset[str]], frozenset[str]]:
    """The attributes of the reference's ``Model`` with layers, and the operators that its forward calls."""
    program = Program(Module(parse_quietly(reference)), root="Model")
    foreign = Foreign(program)
    layers = Layers(program, foreign, frozenset(), {})
    calls = (*layers.calls(), *_of_nodes(program, foreign))
    return layers.attributes, frozenset().union(*(found for _, _, found in calls))


def _uses_reference(program: Program) -> bool:
    return any(
        (program.path(node) or "").startswith("model.")
        for node in program.nodes
        if isinstance(node, ast.Name | ast.Attribute)
    )


def _of_nodes(program: Program, foreign: Foreign, of_reference: frozenset[str] = frozenset()) -> Iterator[Call]:
    for node in program.nodes:
        if isinstance(node, ast.expr | ast.stmt) and not program.in_kernel(node):
            for words, found in _of_node(program, foreign, node, of_reference):
                if found:
                    yield node.lineno, words, found


def _of_node(
    program: Program, foreign: Foreign, node: ast.expr | ast.stmt, of_reference: frozenset[str]
) -> Iterator[tuple[str, frozenset[str]]]:
    match node:
        case ast.BinOp(op=ast.MatMult()) | ast.AugAssign(op=ast.MatMult()):
            yield "@", frozenset({"matmul"})
        case ast.Call(func=function, args=args):
            yield from _method(program, foreign, function)
            path = program.path(function)
            if path in _BY_NAME and args:
                name = (program.module.text(args[0]) or "").rpartition(".")[2]
                yield f"{path}({name!r})", operators_of(name)
            elif path == "builtins.getattr" and len(args) > 1 and not foreign.is_foreign(args[0]):
                # Of a tensor: those of torch's own modules have a path.
                name = program.module.text(args[1]) or ""
                if program.path(node) is None and name.strip("_") in TENSOR_METHODS:
                    yield f"getattr(…, {name!r})", operators_of(name)
    if isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript) and _is_read(program, node):
        path = program.path(node)
        if path is not None:
            yield path, _of_path(path, of_reference)


def _method(program: Program, foreign: Foreign, function: ast.expr) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the operator where ``function``, or the value that it names, is a method of a tensor."""
    if isinstance(function, ast.Name):
        values = program.assigned.get(program.place(function) or (None, ""), [])
    else:
        values = [function]
    for value in values:
        match value:
            case ast.Attribute(value=base, attr=name) if name.strip("_") in TENSOR_METHODS | {"rmatmul", "imatmul"}:
                known = not (program.path(value) or "builtins.").startswith("builtins.")
                if not (known or foreign.is_foreign(base) or is_super(base)):
                    yield f".{name}", operators_of(name)


def _is_read(program: Program, node: ast.Name | ast.Attribute | ast.Call | ast.Subscript) -> bool:
    """Whether ``node`` is the whole of a name, and its value is used for more than a comparison."""
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
        return False
    around = program.module.parent(node)
    if isinstance(around, ast.Attribute):
        # The longer name says more: torch.matmul in torch.matmul.__name__ counts all the same.
        return program.path(around) is None
    if isinstance(around, ast.Dict):
        return node not in around.keys
    return not isinstance(around, ast.Compare)


def _of_path(path: str, of_reference: frozenset[str]) -> frozenset[str]:
    parts = path.split(".")
    if parts[0] == "operator" and len(parts) == 2:
        return operators_of(parts[1]) & {"matmul"}
    if parts[0] == "model":
        return (
            of_reference
            if path == f"{REFERENCE}.forward" or (len(parts) == 2 and _is_helper(parts[1]))
            else frozenset()
        )
    if parts[0] != "torch" or (path.startswith(_OTHERS) and not path.startswith(_OPERATORS)):
        return frozenset()
    called = len(parts) > 1 and parts[-1] in _ENDS
    while parts[-1] in _ENDS:
        parts.pop()
    if path.startswith(_OPERATORS):
        return operators_of(parts[3]) if len(parts) > 3 else frozenset()
    # A class makes layers: whether these are called is another question.
    return frozenset() if parts[-1][:1].isupper() and not called else operators_of(parts[-1])


def _is_helper(name: str) -> bool:
    return name[:1].islower() and name not in ("get_inputs", "get_init_inputs")
