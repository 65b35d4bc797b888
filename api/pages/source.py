"""Sources of candidates as numbered lines, with marks on those that an error or a flag points to, and as differences.

A page shows as much as can be read on one; the whole text is in the API.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from evaluator.diagnosis.source_map import SourceMap
from evaluator.evaluation import Verdict
from kerneljudge.records import FlagRecord

__all__ = ["Listing", "SourceLine", "Text", "bounded", "changes", "line_of_error", "listing", "visible"]

_MAX_LINES: Final = 400
_MAX_CHARACTERS: Final = 24_000
_MOST_OF_LINE: Final = 400
_MAX_LOOKED_INTO: Final = 50_000
_MAX_COMPARED: Final = 1500
_MAX_CHANGES: Final = 300
_MAX_TEXT: Final = 12_000

_PARSED: Final = re.compile(r"^line (?P<line>[0-9]{1,7})\b")
_UNSEEN: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


@dataclass(frozen=True)
class SourceLine:
    """A line of a source.

    ``mark`` is ``error``, ``flag`` or empty; ``note`` has the reason. ``cut`` counts left-out lines.
    """

    number: int
    text: str
    mark: str = ""
    note: str = ""
    cut: int = 0


@dataclass(frozen=True)
class Listing:
    """The shown lines, of ``total``."""

    lines: tuple[SourceLine, ...]
    total: int

    @property
    def whole(self) -> bool:
        """Whether nothing is left out."""
        return len(self.lines) == self.total and not any(line.cut for line in self.lines)


@dataclass(frozen=True)
class Text:
    """The end of a longer text, or all of it."""

    text: str
    left_out: int


def line_of_error(verdict: Verdict, message: str, source: str) -> int | None:
    """Return the line of the candidate's own source that an error points to; ``None`` where it names no line."""
    if len(source) > _MAX_LOOKED_INTO:
        return None
    if verdict is Verdict.INVALID_SOURCE:
        parsed = _PARSED.match(message)
        return int(parsed["line"]) if parsed else None
    return SourceMap(source).named_by(message)


def listing(source: str, error: tuple[int, str] | None = None, flags: Iterable[FlagRecord] = ()) -> Listing:
    """Return ``source`` by lines, with ``error`` (line, reason) and ``flags`` marked.

    Of a long source, it is the part around the error, or the beginning.
    """
    texts = source.split("\n")
    if texts and not texts[-1]:
        texts.pop()
    notes: dict[int, tuple[str, str]] = {
        flag["line"]: ("flag", flag["message"]) for flag in flags if flag["line"] is not None
    }
    if error is not None:
        notes[error[0]] = ("error", error[1])
    first = 0
    if error is not None and error[0] > _MAX_LINES // 2:
        first = min(max(error[0] - _MAX_LINES // 2, 0), max(len(texts) - _MAX_LINES, 0))
    lines: list[SourceLine] = []
    room = _MAX_CHARACTERS
    for number, text in enumerate(texts[first : first + _MAX_LINES], first + 1):
        shown = text[: min(_MOST_OF_LINE, room)]
        room -= len(shown)
        left_out = len(text) - len(shown)
        mark, note = notes.get(number, ("", ""))
        lines.append(SourceLine(number, visible(shown), mark, note, left_out))
        if room <= 0 and (error is None or number >= error[0]):
            break
        # The line that matters is shown, however long the lines before it are.
        room = max(room, 200 if error is not None and number < error[0] else 0)
    return Listing(tuple(lines), len(texts))


def changes(before: str, after: str) -> tuple[tuple[str, str], ...] | None:
    """Return the differences from ``before`` to ``after``: pairs of a kind and a line.

    Kinds are ``add``, ``remove``, ``place`` and ``same``. ``None`` where the texts are too long to compare within a
    request.
    """
    old, new = before.splitlines(), after.splitlines()
    if max(len(old), len(new)) > _MAX_COMPARED or max(len(before), len(after)) > _MAX_LOOKED_INTO:
        return None
    kinds: Mapping[str, str] = {"+": "add", "-": "remove", "@": "place"}
    lines = list(difflib.unified_diff(old, new, lineterm="", n=2))[2:]
    return tuple((kinds.get(line[:1], "same"), visible(line[:_MOST_OF_LINE])) for line in lines[:_MAX_CHANGES])


def visible(text: str) -> str:
    """Return ``text`` with its invisible characters as numbers, such as those that change the direction of text."""
    return _UNSEEN.sub(lambda match: f"\u27e6U+{ord(match[0]):04X}\u27e7", text)


def bounded(text: str, most: int = _MAX_TEXT) -> Text:
    """Return the end of ``text``, because logs report an error there."""
    return Text(text[-most:], max(0, len(text) - most))
