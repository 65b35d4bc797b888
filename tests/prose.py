"""Paragraphs, sentences and words of a Markdown document."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

__all__ = ["Paragraph", "paragraphs", "sentences", "words"]

_ITEM: Final = re.compile(r"(?:[-*+]|\d+[.)])\s+(.*)")
_NO_PROSE: Final = ("#", "|", "<", "[!")

Paragraph = tuple[int, str]
"""The number of its first line, and its text with names of code, links and emphasis taken out."""


def paragraphs(text: str) -> Iterator[Paragraph]:
    """Each paragraph and each item of a list; not headings, tables, blocks of code and HTML."""
    fenced, first, lines = False, 0, list[str]()
    for number, line in enumerate([*text.splitlines(), ""], 1):
        stripped = line.strip()
        fence = stripped.startswith(("```", "~~~"))
        item = None if fenced else _ITEM.match(stripped)
        if fence or item or fenced or not stripped or stripped.startswith(_NO_PROSE):
            if lines:
                yield first, _plain(" ".join(lines))
            lines = []
            fenced ^= fence
            if item is None:
                continue
            stripped = item[1]
        if not lines:
            first = number
        lines.append(stripped.lstrip("> "))


def sentences(paragraph: str) -> list[str]:
    """Sentences of a plain paragraph: they end with a full stop, question or exclamation mark before a capital."""
    return [part for part in re.split(r"(?<=[.!?])[\"')]*\s+(?=[A-Z0-9(\"'])", paragraph) if part.strip()]


def words(text: str) -> int:
    """How many words a plain text has; a name of code counts as one."""
    return sum(any(map(str.isalnum, part)) for part in text.split())


def _plain(text: str) -> str:
    text = re.sub(r"`[^`]*`", "Code", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"[*_]{1,2}([^*_]+)[*_]{1,2}", r"\1", text)
