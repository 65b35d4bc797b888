"""A source file cut into its top-level parts: directives, openings and ends of namespaces, declarations.

A declaration ends at its ``;``, or with the body of a function. Conditional compilation is followed as far as that
needs: each branch must open and close as many brackets as the others do.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from evaluator.builder.recipes.split.lexer import Kind, Token, directive_name
from evaluator.builder.recipes.split.refused import Refused

__all__ = ["CLASS_KEYS", "Chunk", "Form", "chunks_of", "without_template"]

CLASS_KEYS: Final = frozenset({"struct", "class", "union", "enum"})
_SPECIFIERS: Final = frozenset({"typedef", "static", "const", "constexpr", "inline", "extern", "volatile", "export"})
_OPENING: Final = {"(": ")", "[": "]", "{": "}"}
_CLOSING: Final = frozenset(_OPENING.values())


class Form(Enum):
    """The form of a top-level part.

    ``OPEN``: a namespace or ``extern "C"`` up to its brace, which ``CLOSE`` ends. ``MACRO``: an invocation that stands
    alone. ``TYPE``: a class or enumeration with its members. ``OTHER``: any other declaration.
    """

    DIRECTIVE = auto()
    OPEN = auto()
    CLOSE = auto()
    MACRO = auto()
    FUNCTION = auto()
    TYPE = auto()
    OTHER = auto()


@dataclass(frozen=True)
class Chunk:
    """``tokens`` without directives; ``header`` of them come before the body, the brace of which is next."""

    form: Form
    tokens: tuple[Token, ...]
    header: int
    directives: tuple[Token, ...] = ()

    @property
    def start(self) -> int:
        return self.tokens[0].start if self.tokens else self.directives[0].start

    @property
    def end(self) -> int:
        return self.tokens[-1].end if self.tokens else self.directives[0].end

    @property
    def head(self) -> tuple[Token, ...]:
        """The tokens before the body; all of them where there is none."""
        return self.tokens[: self.header]


def chunks_of(tokens: Sequence[Token], definitions: Collection[str]) -> list[Chunk]:
    """Cut ``tokens`` into chunks. Raises ``Refused`` where the end of a part is not certain.

    ``definitions``: macros that expand to whole definitions, after which no ``;`` is needed.
    """
    return _Cutter(tokens, definitions).cut()


def without_template(tokens: Sequence[Token]) -> Sequence[Token]:
    """Return a declaration without ``template <…>`` and attributes in front of it."""
    rest = tokens
    while rest:
        if rest[0].text == "template" and len(rest) > 1 and rest[1].text == "<":
            rest = rest[_after_angles(rest, 1) :]
        elif rest[0].text == "template":
            rest = rest[1:]
        elif rest[0].text == "[" and len(rest) > 1 and rest[1].text == "[":
            rest = rest[_after_brackets(rest, 0) :]
        else:
            break
    return rest


class _Cutter:
    def __init__(self, tokens: Sequence[Token], definitions: Collection[str]) -> None:
        self._tokens = tokens
        self._definitions = definitions
        self._place = 0

    def cut(self) -> list[Chunk]:
        found: list[Chunk] = []
        depth = 0
        while self._place < len(self._tokens):
            token = self._tokens[self._place]
            if token.kind is Kind.DIRECTIVE:
                found.append(Chunk(Form.DIRECTIVE, (), 0, (token,)))
                self._place += 1
            elif token.text == "}":
                depth -= 1
                if depth < 0:
                    raise Refused("there are more closing braces than opening ones")
                found.append(Chunk(Form.CLOSE, (token,), 1))
                self._place += 1
            elif token.kind is not Kind.WORD and token.text not in (";", "[", ":", "(", "~"):
                raise Refused(f"{token.text[:20]!r} stands where a declaration begins")
            else:
                found.append(self._declaration())
                depth += found[-1].form is Form.OPEN
        if depth:
            raise Refused("a namespace has no end")
        return found

    def _declaration(self) -> Chunk:
        taken: list[Token] = []
        directives: list[Token] = []
        brackets: list[str] = []
        branches: list[list[str]] = []
        angles = 0
        assigned = False
        body: int | None = None
        while self._place < len(self._tokens):
            token = self._tokens[self._place]
            self._place += 1
            if token.kind is Kind.DIRECTIVE:
                _follow(token, brackets, branches)
                directives.append(token)
                continue
            taken.append(token)
            text, previous = token.text, [before.text for before in taken[-4:-1]]
            if token.kind is not Kind.MARK:
                if text == "requires" and not assigned and not brackets:
                    raise Refused("a requires clause")
                continue
            if text in _OPENING:
                if text == "{" and not brackets and body is None:
                    if _opens_scope(taken):
                        return self._finish(Form.OPEN, taken, len(taken), directives, branches)
                    body = len(taken) - 1
                brackets.append(_OPENING[text])
                continue
            if text in _CLOSING:
                if not brackets or brackets.pop() != text:
                    raise Refused("brackets do not match")
                if brackets:
                    continue
                if text == ")" and self._ends_macro(taken):
                    return self._finish(Form.MACRO, taken, len(taken), directives, branches)
                if text == "}" and not assigned and body is not None and _is_function(taken[:body]):
                    return self._finish(Form.FUNCTION, taken, body, directives, branches)
                continue
            if brackets:
                continue
            if text == "<" and (angles or previous[-1:] == ["template"]):
                angles += 1
            elif text == ">" and angles:
                angles -= 1
            elif text == "=" and not angles and "operator" not in previous and body is None:
                assigned = True
            elif text == ";":
                is_type = body is not None and not assigned and _is_type(taken[:body])
                header = body if is_type and body is not None else len(taken)
                return self._finish(Form.TYPE if is_type else Form.OTHER, taken, header, directives, branches)
        raise Refused("a declaration has no end")

    def _ends_macro(self, taken: Sequence[Token]) -> bool:
        """Whether this was an invocation that needs nothing after it."""
        if taken[0].text not in self._definitions or taken[1].text != "(" or _after_brackets(taken, 1) != len(taken):
            return False
        following = next((token for token in self._tokens[self._place :] if token.kind is not Kind.DIRECTIVE), None)
        return following is None or following.kind is Kind.WORD or following.text == "}"

    def _finish(
        self,
        form: Form,
        taken: Sequence[Token],
        header: int,
        directives: Sequence[Token],
        branches: Sequence[object],
    ) -> Chunk:
        if branches:
            raise Refused("a condition of the preprocessor begins inside a declaration and ends outside")
        return Chunk(form, tuple(taken), header, tuple(directives))


def _follow(token: Token, brackets: list[str], branches: list[list[str]]) -> None:
    """Track conditions inside a declaration: all of their branches must leave the brackets as they were."""
    name = directive_name(token)
    if name in ("if", "ifdef", "ifndef"):
        branches.append(list(brackets))
    elif name in ("else", "elif", "elifdef", "elifndef", "endif"):
        if not branches or branches[-1] != brackets:
            raise Refused("a condition of the preprocessor cuts through a declaration")
        if name == "endif":
            branches.pop()


def _opens_scope(taken: Sequence[Token]) -> bool:
    words = [token.text for token in taken]
    if words[0] == "inline":
        words = words[1:]
    if words[0] == "namespace":
        return "=" not in words
    return words[:2] in (["extern", '"C"'], ["extern", '"C++"']) and len(words) == 3


def _is_type(header: Sequence[Token]) -> bool:
    """Whether a body behind ``header`` is that of a class or an enumeration."""
    rest = list(without_template(header))
    while rest and rest[0].text in _SPECIFIERS:
        rest = rest[1:]
    if not rest or rest[0].text not in CLASS_KEYS:
        return False
    rest = rest[1:]
    while rest and rest[0].kind is Kind.WORD and len(rest) > 1 and rest[1].text == "(":
        rest = rest[_after_brackets(rest, 1) :]  # alignas(16), __align__(16), __attribute__((…))
    # `struct S f(int) {` is a function: a name, then another one.
    qualified = [token for token in rest if token.text != "final"]
    bases = next((place for place, token in enumerate(qualified) if token.text == ":"), len(qualified))
    return not any(token.text == "(" for token in qualified[:bases])


def _is_function(header: Sequence[Token]) -> bool:
    if _is_type(header):
        return False
    depth = 0
    for token in without_template(header):
        if token.text == "(" and not depth:
            return True
        depth += (token.text == "<") - (token.text == ">")
    return any(token.text == "(" for token in without_template(header))


def _after_brackets(tokens: Sequence[Token], place: int) -> int:
    """The index after the bracket that opens at ``place`` has been closed; the end where it has not."""
    depth = 0
    for number in range(place, len(tokens)):
        depth += (tokens[number].text in _OPENING) - (tokens[number].text in _CLOSING)
        if not depth:
            return number + 1
    return len(tokens)


def _after_angles(tokens: Sequence[Token], place: int) -> int:
    depth = brackets = 0
    for number in range(place, len(tokens)):
        text = tokens[number].text
        brackets += (text in _OPENING) - (text in _CLOSING)
        if not brackets:
            depth += (text == "<") - (text == ">")
        if not depth:
            return number + 1
    return len(tokens)
