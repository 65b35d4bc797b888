"""The tokens of C++ and CUDA source, with their places: as much of the language as cutting a file apart takes.

Comments and spaces are left out. A preprocessor directive is one token, from its ``#`` to the end of its logical line.
Text that cannot be read with certainty (an open comment, alternative spellings of ``#`` and ``{``) is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from evaluator.builder.recipes.split.refused import Refused

__all__ = ["Definition", "Kind", "Token", "definition_of", "directive_name", "included", "tokens_of"]

_NEWLINE: Final = r"\\[ \t]*\r?\n"
_SPACE: Final = rf"(?:[ \t\r\f\v\n]|{_NEWLINE})+"
_LINE_COMMENT: Final = rf"//(?:{_NEWLINE}|[^\n])*"
_BLOCK_COMMENT: Final = r"/\*(?s:.*?)\*/"
_STRING: Final = rf'"(?:{_NEWLINE}|\\.|[^"\\\n])*"'
_CHARACTER: Final = r"'(?:\\.|[^'\\\n])+'"
_RAW: Final = r'(?:u8|[uUL])?R"(?P<fence>[^\s()\\"]{0,16})\((?s:.*?)\)(?P=fence)"'
_NUMBER: Final = r"\.?\d(?:[eEpP][+-]|'\w|[\w.])*"
_WORD: Final = r"[A-Za-z_$\u0080-\U0010ffff][\w$]*"
_TOKEN: Final = re.compile(
    rf"(?P<space>{_SPACE}|{_LINE_COMMENT}|{_BLOCK_COMMENT})"
    rf"|(?P<text>{_RAW}|(?:u8|[uUL])?(?:{_STRING}|{_CHARACTER}))"
    rf"|(?P<number>{_NUMBER})|(?P<word>{_WORD})|(?P<mark>(?s:.))"
)
_DIRECTIVE: Final = re.compile(rf"#(?:{_NEWLINE}|{_BLOCK_COMMENT}|{_LINE_COMMENT}|{_STRING}|[^\n])*")
_NAME: Final = re.compile(r"#[ \t]*(\w*)(?=\W|$)")
_INCLUDED: Final = re.compile(r'#[ \t]*\w+[ \t]*(?:<(?P<angled>[^<>\n]+)>|"(?P<quoted>[^"\n]+)")')
_RAW_PREFIXES: Final = frozenset({"R", "LR", "UR", "uR", "u8R"})
_DIGRAPHS: Final = ("%:", "<%", "%>", "??=", "??<", "??>", "??/")


class Kind(Enum):
    """``WORD``: a name or keyword. ``MARK``: one character of punctuation. ``TEXT``: a string or character."""

    DIRECTIVE = auto()
    WORD = auto()
    NUMBER = auto()
    TEXT = auto()
    MARK = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """A token, where ``source[start:end]`` is ``text``."""

    kind: Kind
    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Definition:
    """A ``#define``; ``takes_arguments`` where a parenthesis follows the name at once."""

    name: str
    takes_arguments: bool
    body: tuple[Token, ...]


def tokens_of(source: str) -> list[Token]:
    """Split ``source`` into tokens. Raises ``Refused`` where it cannot be read with certainty."""
    return _scan(source, directives=True)


def _scan(source: str, *, directives: bool) -> list[Token]:
    found: list[Token] = []
    position, first_of_line = 0, directives
    while position < len(source):
        if first_of_line and source[position] == "#":
            match = _DIRECTIVE.match(source, position)
            assert match is not None
            found.append(Token(Kind.DIRECTIVE, position, match.end(), match[0]))
            position = match.end()
            continue
        match = _TOKEN.match(source, position)
        assert match is not None
        position = match.end()
        if match["space"]:
            # A comment of several lines hides no directive behind its end; a new line does.
            first_of_line |= directives and "\n" in match[0] and not match[0].startswith(("/*", "//"))
            continue
        first_of_line = False
        kind = next(kind for name, kind in _KINDS.items() if match[name])
        if kind is Kind.WORD and match[0] in _RAW_PREFIXES and source.startswith('"', position):
            # At once: each further one would be looked for to the end of the text again.
            raise Refused("a raw string has no end")
        if kind is Kind.MARK and (directives or match[0] != "#"):
            _check_mark(source, match.start())
        found.append(Token(kind, match.start(), position, match[0]))
    return found


_KINDS: Final = {"text": Kind.TEXT, "number": Kind.NUMBER, "word": Kind.WORD, "mark": Kind.MARK}


def _check_mark(source: str, position: int) -> None:
    if source.startswith("/*", position):
        raise Refused("a comment has no end")
    if source[position] in "\"'":
        raise Refused("a string has no end")
    if source[position] in "\\#`@\0":
        raise Refused(f"a stray {source[position]!r}")
    if source.startswith(_DIGRAPHS, position):
        raise Refused("punctuation is spelt in the alternative way")


def directive_name(token: Token) -> str:
    """Name the directive: ``include``, ``define``, ``if`` …; empty for a lone ``#``."""
    match = _NAME.match(token.text)
    if match is None:
        raise Refused("a directive is not to be read")
    return match[1]


def included(token: Token) -> str | None:
    """Return the name after ``#include``, without its brackets; ``None`` for other directives.

    Raises ``Refused`` where a macro stands for the name.
    """
    if directive_name(token) not in ("include", "include_next", "import"):
        return None
    match = _INCLUDED.match(token.text)
    if match is None:
        raise Refused("an #include is not to be read")
    return match["angled"] or match["quoted"]


def definition_of(token: Token) -> Definition | None:
    """Parse a ``#define``; ``None`` for other directives."""
    if directive_name(token) != "define":
        return None
    inner = _scan(token.text[1:], directives=False)
    if len(inner) < 2 or inner[1].kind is not Kind.WORD:
        raise Refused("a #define is not to be read")
    name, rest = inner[1], inner[2:]
    takes_arguments = bool(rest) and rest[0].text == "(" and rest[0].start == name.end
    if takes_arguments:
        close = next((place for place, part in enumerate(rest) if part.text == ")"), None)
        if close is None:
            raise Refused("a #define is not to be read")
        rest = rest[close + 1 :]
    return Definition(name.text, takes_arguments, tuple(rest))
