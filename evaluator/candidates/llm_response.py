"""Raw model answers as text: their reasoning, and their code blocks.

The scan is tolerant, because the answers are not valid Markdown as often as they are. A fence may be indented, stand in
a list or a quote or behind words on its line, or have code on its own line. It may be left open at the end, or be
missing at the start, where a prompt had opened it already. It may stand inside a string of the code that it encloses.
Each of these has made an earlier draft count as the answer.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

__all__ = ["Answer", "CodeBlock", "read_answer"]

_SECTIONS: Final = "(?:think|thinking|thought|reasoning)"
_TAG: Final = re.compile(
    # A comment of code with a tag in the middle mentions it.
    rf"^[ \t]*<{_SECTIONS}(?:\s[^<>\n]*)?>|^[ \t]*#[^<\n]*</{_SECTIONS}\s*>(?=[ \t]*+\S)"
    rf"|(?P<closing></{_SECTIONS}\s*>)",
    re.IGNORECASE | re.MULTILINE,
)
_QUOTES: Final = "`'\""
_FINAL_CHANNELS: Final = ("<|channel|>final<|message|>", "assistantfinal")
"""The text before them is reasoning, where an answer is the raw text of a model that has such channels."""
_ANALYSIS: Final = re.compile(r"\s*+(?:<\|start\|>assistant)?(?:<\|channel\|>)?analysis")
_FENCE: Final = re.compile(
    r"(?P<indent>[ \t\ufeff]*+(?:>[ \t]?+)*+[ \t]*+)(?P<fence>`{3,}|~{3,})[ \t]*+(?P<info>[^`\n]*)$"
)
_LED_FENCE: Final = re.compile(
    r"(?P<indent>[ \t\ufeff]*+(?:>[ \t]?+)*+)(?P<lead>[^`\n]++)(?P<fence>`{3,})[ \t]*+(?P<info>[^`\n]*)$"
)
_LIST_ITEM: Final = re.compile(r"(?:[-*+]|\d{1,9}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?")
_INTRODUCES: Final = (":", ">", "**", "assistantfinal", "final")
_QUOTED: Final = re.compile(r"[ \t]*+>[ \t]?")
_CODE_BEHIND: Final = re.compile(
    r"(?:(?:python3?|py)[ \t]+)?"
    r"(?P<code>(?:import[ \t]|from[ \t]+\S+[ \t]+import\b|class[ \t]|def[ \t]|@|#(?!include|define)|\"\"\"|''').*)$"
)
_PYTHONS: Final = frozenset({"python", "python3", "py"})
# Comments and one-line strings are consumed whole, so that a quote within them opens nothing.
_PYTHON: Final = re.compile(r"#.*|\"\"\"|'''|\"(?:\\.|[^\"\\])*\"?|'(?:\\.|[^'\\])*'?|`{3,}")
_IN_STRING: Final = {quote: re.compile(rf"\\.|{quote}") for quote in ('"""', "'''")}
_MAX_OPEN_STRINGS: Final = 16
"""The number of strings without an end that are searched to the end of the text. After that many, a fence closes its
block.
"""
_MARKDOWN: Final = frozenset({"", "markdown", "md"})
_COMPILED: Final = frozenset({"c", "cc", "cpp", "c++", "cu", "cuda", "cxx", "h", "hpp", "ptx", "rust"})
_TEXT: Final = frozenset({"bash", "console", "diff", "json", "patch", "sh", "shell", "text", "toml", "txt", "yaml"})
_NOT_PYTHON: Final = _COMPILED | _TEXT | {"markdown", "md"}


@dataclass(frozen=True)
class CodeBlock:
    """One code block: its ``text`` with line feeds only, and the language that its fence names, if any."""

    text: str
    language: str
    closed: bool

    @property
    def may_be_python(self) -> bool:
        """False where the fence names another language. Many models name none or a wrong one: never a proof."""
        return self.language not in _NOT_PYTHON


@dataclass(frozen=True)
class Answer:
    """The contents of an answer besides its reasoning.

    ``blocks`` in the order of the answer. ``lead`` is the text before the first fence (the whole text where there is
    none): code, where the prompt had opened the fence. ``reasoning_open``: a reasoning section begins and never ends.
    """

    lead: str
    blocks: tuple[CodeBlock, ...]
    reasoning: str
    reasoning_open: bool


def read_answer(text: str) -> Answer:
    """Split ``text`` (line feeds only) into reasoning, code blocks and the text before them."""
    aloud, text = _final_channel(text)
    kept, reasoning, is_open = _separate_reasoning(text)
    leads: list[str] = []
    blocks: list[CodeBlock] = []
    for part in kept:
        # Each part by itself: a fence that is left open before some reasoning does not affect the text after it.
        lead, more = _blocks(part.split("\n"))
        leads += [] if blocks else [lead]
        blocks += more
    return Answer("\n".join(leads), tuple(_with_inner(blocks)), aloud + reasoning, is_open)


def _final_channel(text: str) -> tuple[str, str]:
    """Return (the reasoning before the final channel, the rest)."""
    if _ANALYSIS.match(text):
        for channel in _FINAL_CHANNELS:
            aloud, found, final = text.rpartition(channel)
            if found:
                return aloud, final
    return "", text


def _with_inner(blocks: list[CodeBlock]) -> Iterator[CodeBlock]:
    """Yield the blocks; of a Markdown text with a longer fence around it, the blocks in that text too."""
    for block in blocks:
        yield block
        if block.language in _MARKDOWN and "```" in block.text:
            yield from _blocks(block.text.split("\n"))[1]


def _separate_reasoning(text: str) -> tuple[list[str], str, bool]:
    """Return (the parts of the answer, its reasoning, whether the reasoning is left open)."""
    kept: list[str] = []
    reasoning: list[str] = []
    inside = False
    position = 0
    for tag in _TAG.finditer(text):
        if _is_mention(text, tag):
            continue
        closes = tag["closing"] is not None
        if inside and closes:
            reasoning.append(text[position : tag.start()])
        elif closes:
            # The opening tag was part of the prompt: everything up to here is reasoning.
            reasoning.append("".join(kept) + text[position : tag.start()])
            kept.clear()
        elif not inside:
            kept.append(text[position : tag.start()])
        else:
            continue
        inside = not closes
        position = tag.end()
    (reasoning if inside else kept).append(text[position:])
    return kept, "\n".join(reasoning), inside


def _is_mention(text: str, tag: re.Match[str]) -> bool:
    """Whether the text only mentions a tag: in a comment of code, or between two of the same quotes."""
    before, after = text[tag.start() - 1 : tag.start()], text[tag.end() : tag.end() + 1]
    return tag[0].lstrip().startswith("#") or (before != "" and before == after and before in _QUOTES)


def _blocks(lines: list[str]) -> tuple[str, list[CodeBlock]]:
    first = next((number for number, line in enumerate(lines) if _opening(line)), len(lines))
    blocks: list[CodeBlock] = []
    number, open_strings = first, 0
    while number < len(lines):
        opening = _opening(lines[number])
        if opening is None:
            number += 1
            continue
        heeds_strings = open_strings < _MAX_OPEN_STRINGS
        content, number, closed, never_ended = _content(lines, number + 1, opening, heeds_strings=heeds_strings)
        open_strings += never_ended
        behind = _CODE_BEHIND.match(opening["info"].strip())
        code = _unindent(content, opening["indent"])
        if behind is not None:
            code = f"{behind['code']}\n{_dedented(code)}"
        language = "python" if behind is not None else _language(opening)
        blocks.append(CodeBlock(code.lstrip("\ufeff"), language, closed))
    return "\n".join(lines[:first]), blocks


def _language(opening: re.Match[str]) -> str:
    return re.split(r"[\s{,:(]", opening["info"].strip().lstrip("{.").lower(), maxsplit=1)[0]


def _opening(line: str) -> re.Match[str] | None:
    """Return the fence that begins a block: at the line's beginning, or behind a list's mark or an introduction."""
    fence = _FENCE.match(line)
    if fence is not None:
        return fence
    led = _LED_FENCE.match(line)
    if led is None:
        return None
    lead = led["lead"].rstrip()
    introduced = not led["info"].strip() and lead.endswith(_INTRODUCES)
    return led if introduced or _LIST_ITEM.fullmatch(led["lead"]) or _names_python(led) else None


def _names_python(fence: re.Match[str]) -> bool:
    return _language(fence) in _PYTHONS


def _dedented(code: str) -> str:
    """Move ``code``, whose first line stands elsewhere, to the left if it is indented as a whole."""
    return textwrap.dedent(code) if code.lstrip("\n")[:1] in (" ", "\t") and _all_indented(code) else code


def _all_indented(code: str) -> bool:
    return all(line[:1] in (" ", "\t") for line in code.split("\n") if line.strip())


def _content(
    lines: list[str], start: int, opening: re.Match[str], *, heeds_strings: bool
) -> tuple[list[str], int, bool, bool]:
    """Return the block's lines, the number of the line after it, and two flags.

    The flags: whether a fence closed the block, and whether a string in it never ended.
    """
    quotes = _Quotes()
    within_string: int | None = None
    for number in range(start, len(lines)):
        line = lines[number]
        fence = _FENCE.match(line)
        if fence and _ends(fence, opening):
            if not quotes.open or not heeds_strings:
                return lines[start:number], number + (not fence["info"]), not fence["info"], False
            within_string = number if within_string is None else within_string
            continue
        if not fence and not quotes.open and _begins_another(line):
            return lines[start:number], number, False, False
        end = None if fence else quotes.feed(line, opening["fence"])
        if end is not None:
            # No Python has three backquotes outside of its strings: the fence was put behind the last line.
            return [*lines[start:number], line[:end]], number + 1, True, False
    if quotes.open and within_string is not None:
        # A string that never ends is no string: the first fence did close the block.
        info = lines[within_string].strip().strip("`~")
        return lines[start:within_string], within_string + (not info), not info, True
    return lines[start:], len(lines), False, False


def _begins_another(line: str) -> bool:
    """Whether ``line`` introduces a block in words: the one before it was left open."""
    return _FENCE.match(line) is None and _opening(line) is not None


def _ends(fence: re.Match[str], opening: re.Match[str]) -> bool:
    """Whether ``fence`` ends the block. A bare one closes it; one with a language begins the next, and leaves this
    open.
    """
    same_kind = fence["fence"][0] == opening["fence"][0]
    return same_kind and len(fence["fence"]) >= len(opening["fence"])


def _unindent(lines: list[str], indent: str) -> str:
    """Remove the fence's own indentation from the lines, as Markdown does, unless the code does not share it."""
    for _ in range(indent.count(">")):
        lines = [_QUOTED.sub("", line, count=1) for line in lines]
    if ">" in indent:
        return "\n".join(lines)
    first = next((line for line in lines if line.strip()), "")
    shared = indent if first.startswith(indent) else ""
    return "\n".join(line.removeprefix(shared) for line in lines)


class _Quotes:
    """Follows Python source line by line and knows whether a triple-quoted string is open."""

    def __init__(self) -> None:
        self.open = ""

    def feed(self, line: str, fence: str) -> int | None:
        """Read on by one line. Returns the position of ``fence`` outside of strings, or ``None``."""
        position = 0
        while True:
            if self.open:
                end = self._end_of_string(line, position)
                if end is None:
                    return None
                position, self.open = end, ""
            token = _PYTHON.search(line, position)
            if token is None:
                return None
            if token.group().startswith(fence):
                return token.start()
            if token.group() in ('"""', "'''"):
                self.open = token.group()
            position = token.end()

    def _end_of_string(self, line: str, position: int) -> int | None:
        for token in _IN_STRING[self.open].finditer(line, position):
            if token.group() == self.open:
                return token.end()
        return None
