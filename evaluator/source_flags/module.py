"""A candidate's syntax tree, as the rules read it: the meanings of its names, and the contents of its texts."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

__all__ = ["Function", "Module", "TooMuchToRead"]

Function = ast.FunctionDef | ast.AsyncFunctionDef
_OPENS_SCOPE: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
# Python keeps one object of each of these for all trees: they have no place of their own.
_SHARED: Final = (ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)
_MAX_STEPS: Final = 8
_MAX_PARTS: Final = 16
_MAX_NESTING: Final = 100
_MAX_CHARACTERS: Final = 1_000_000
_MAX_NODES: Final = 50_000
"""Dense Python has 0.16 nodes a character: a readable source of the largest allowed size has fewer."""


class TooMuchToRead(ValueError):
    """A tree of so many nodes that a pass through them would take seconds."""


@dataclass(frozen=True)
class _Binding:
    """The origin of a name: an import of ``path``, nothing but an assignment of ``value``, or another one."""

    path: str | None = None
    value: ast.expr | None = None


class Module:
    """A module with every node's place in it.

    ``nodes``: all of them, each before its children. Comprehensions count as part of the scope around them. Raises
    ``TooMuchToRead`` for a tree of more than 50,000 nodes.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.nodes: list[ast.AST] = []
        self._parents: dict[ast.AST, ast.AST] = {}
        self._scopes: dict[ast.AST, ast.AST] = {}
        self._bindings: dict[ast.AST, dict[str, _Binding]] = {tree: {}}
        self._globals: dict[ast.AST, set[str]] = {}
        self._paths: dict[ast.AST, str | None] = {}
        self._texts: dict[ast.AST, str | None] = {}
        self._characters_left = _MAX_CHARACTERS
        self._index()

    def parent(self, node: ast.AST) -> ast.AST | None:
        """Return the node directly around ``node``; ``None`` for the module."""
        return self._parents.get(node)

    def functions_around(self, node: ast.AST) -> Iterator[Function]:
        """Yield the functions around ``node``, the innermost first."""
        scope = self._scopes.get(node)
        while scope is not None:
            if isinstance(scope, Function):
                yield scope
            scope = self._scopes.get(scope)

    def classes(self) -> dict[str, ast.ClassDef]:
        """The classes at the top level, also those within its ``if`` and ``try``, by name."""
        return {
            node.name: node for node in self.nodes if isinstance(node, ast.ClassDef) and self._scopes[node] is self.tree
        }

    def value_of(self, name: ast.Name) -> ast.expr | None:
        """Return the value assigned to ``name``, where the name can stand for nothing else."""
        binding = self._lookup(name)
        return None if binding is None else binding.value

    def is_parameter(self, name: ast.Name) -> bool:
        """Whether ``name`` is a parameter of a function around it, other than ``self``."""
        for function in self.functions_around(name):
            given = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
            if any(argument.arg == name.id for argument in given):
                return name.id != "self"
        return False

    def dotted(self, node: ast.expr) -> str | None:
        """Return the full name that ``node`` refers to (``torch.nn.functional.relu``), through imports and aliases.

        Python's own names are in ``builtins``. ``None`` for unknown ones: attributes of parameters, say.
        """
        if node not in self._paths:
            self._paths[node] = self._dotted(node, _MAX_STEPS)
        return self._paths[node]

    def text(self, node: ast.expr, nesting: int = _MAX_NESTING) -> str | None:
        """Return the certain text of ``node``: constants, names for them, concatenations; ``None`` if unsure."""
        if node not in self._texts:
            # Meanwhile, for a name that leads back to itself.
            self._texts[node] = None
            found = self._text(node, nesting - 1) if nesting > 0 else None
            self._characters_left -= len(found or "")
            self._texts[node] = found if self._characters_left > 0 else None
        return self._texts[node]

    def texts(self, node: ast.expr | None) -> tuple[str, ...] | None:
        """Return the texts in a list (the keys of a dictionary), or the one text of ``node``; ``None`` if unsure."""
        for _ in range(_MAX_STEPS):
            if not isinstance(node, ast.Name):
                break
            node = self.value_of(node)
        match node:
            case ast.Constant(value=None):
                return ()
            case ast.List(elts=items) | ast.Tuple(elts=items):
                known = [self.text(item) for item in items]
            case ast.Dict(keys=keys):
                known = [None if key is None else self.text(key) for key in keys]
            case ast.expr():
                known = [self.text(node)]
            case _:
                return None
        found = tuple(text for text in known if text is not None)
        return found if len(found) == len(known) else None

    def _index(self) -> None:
        # A stack of our own: a chain of elif nests deeper than Python's.
        waiting: list[tuple[ast.AST, ast.AST]] = [(self.tree, self.tree)]
        while waiting:
            node, scope = waiting.pop()
            self.nodes.append(node)
            if len(self.nodes) > _MAX_NODES:
                raise TooMuchToRead
            if node is not self.tree:
                self._scopes[node] = scope
                self._bind(node, scope)
            if isinstance(node, _OPENS_SCOPE):
                self._bindings[node] = {}
                scope = node
            inner = [child for child in ast.iter_child_nodes(node) if not isinstance(child, _SHARED)]
            self._parents.update(dict.fromkeys(inner, node))
            waiting.extend((child, scope) for child in reversed(inner))

    def _bind(self, node: ast.AST, scope: ast.AST) -> None:
        match node:
            case ast.Import(names=names):
                for alias in names:
                    top = alias.name.partition(".")[0]
                    self._add(scope, alias.asname or top, _Binding(alias.name if alias.asname else top))
            case ast.ImportFrom(names=names, module=str(path), level=0):
                for alias in names:
                    self._add(scope, alias.asname or alias.name, _Binding(f"{path}.{alias.name}"))
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                self._add(scope, name, _Binding())
            case ast.arg(arg=name) | ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                self._add(scope, name, _Binding())
            case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                self._add(scope, name, _Binding())
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                self._add(scope, name, _Binding(value=_assigned(node, self._parents[node])))
            case ast.Global(names=global_names):
                self._globals.setdefault(scope, set()).update(global_names)

    def _add(self, scope: ast.AST, name: str, binding: _Binding) -> None:
        if name in self._globals.get(scope, ()):
            scope = self.tree
        known = self._bindings[scope].get(name)
        # Any of several values may be meant. An import is the intended meaning where another value replaces a missing
        # one.
        self._bindings[scope][name] = binding if known is None else _Binding(path=known.path or binding.path)

    def _lookup(self, name: ast.Name) -> _Binding | None:
        """Return the binding of ``name``; ``None`` where nothing in the module binds it."""
        scope: ast.AST | None = self._scopes[name]
        first = True
        while scope is not None:
            # Names that a class binds are not visible in its methods.
            if name.id in self._bindings[scope] and (first or not isinstance(scope, ast.ClassDef)):
                return self._bindings[scope][name.id]
            scope, first = self._scopes.get(scope), False
        return None

    def _dotted(self, node: ast.expr, steps: int) -> str | None:
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
            if len(parts) > _MAX_PARTS:
                return None
        base = self._base(node, steps) if steps > 0 else None
        return None if base is None else ".".join([base, *reversed(parts)])

    def _base(self, node: ast.expr, steps: int) -> str | None:
        match node:
            case ast.Name(id=name):
                binding = self._lookup(node)
                if binding is None:
                    return f"builtins.{name}"
                return binding.path or (None if binding.value is None else self._dotted(binding.value, steps - 1))
            case ast.Call(func=function, args=[first, *rest]):
                called = self._dotted(function, steps - 1)
                if called in ("builtins.__import__", "importlib.import_module"):
                    return self.text(first)
                if called == "builtins.getattr" and rest:
                    base, attribute = self._dotted(first, steps - 1), self.text(rest[0])
                    return f"{base}.{attribute}" if base and attribute else None
        return None

    def _text(self, node: ast.expr, nesting: int) -> str | None:
        match node:
            case ast.Constant(value=str(value)):
                return value
            case ast.JoinedStr(values=values):
                return _joined(self.text(value, nesting) for value in values)
            case ast.FormattedValue(value=inner, conversion=-1, format_spec=None):
                return self._formatted(inner, nesting)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return _joined(self.text(side, nesting) for side in (left, right))
            case ast.Name():
                assigned = self.value_of(node)
                return None if assigned is None else self.text(assigned, nesting)
            case ast.Call(func=ast.Attribute(value=inner, attr="strip" | "lstrip" | "rstrip" as how), args=[]):
                stripped = self.text(inner, nesting)
                return None if stripped is None else str(getattr(stripped, how)())
            case ast.Call(func=function, args=[inner]) if self.dotted(function) == "textwrap.dedent":
                indented = self.text(inner, nesting)
                return None if indented is None else textwrap.dedent(indented)
        return None

    def _formatted(self, node: ast.expr, nesting: int) -> str | None:
        value = self.value_of(node) if isinstance(node, ast.Name) else node
        match value:
            case ast.Constant(value=int(number)) if not isinstance(number, bool):
                # Python refuses to write out numbers of thousands of digits.
                return str(number) if number.bit_length() < 128 else None
            case ast.expr():
                return self.text(value, nesting)
        return None


def _assigned(name: ast.Name, parent: ast.AST) -> ast.expr | None:
    """The value, where ``name`` alone stands left of an assignment."""
    match parent:
        case ast.Assign(value=value):
            return value
        case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
            return value if target is name else None
    return None


def _joined(parts: Iterable[str | None]) -> str | None:
    texts = list(parts)
    known = [text for text in texts if text is not None]
    short_enough = sum(map(len, known)) <= _MAX_CHARACTERS
    return "".join(known) if short_enough and len(known) == len(texts) else None
