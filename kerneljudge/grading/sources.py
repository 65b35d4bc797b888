"""Files that are named on the command line."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Given", "UnusableFile", "read_given"]

_ANSWER_SUFFIXES: Final = (".md", ".txt")
_MAX_BYTES: Final = 16 * 2**20  # far above the limit of grading; it only keeps a wrong file from filling the memory


class UnusableFile(ValueError):
    """A file that cannot be read as text."""


@dataclass(frozen=True)
class Given:
    """A given text: source, or a raw model answer (``is_response``)."""

    text: str
    is_response: bool
    name: str

    @property
    def code(self) -> str | None:
        return None if self.is_response else self.text

    @property
    def response(self) -> str | None:
        return self.text if self.is_response else None


def read_given(file: str, *, is_response: bool) -> Given:
    """Read ``file`` (``-``: standard input). Raises ``UnusableFile``.

    A ``.md`` or ``.txt`` file is a raw model answer even without ``is_response``.
    """
    path = Path(file)
    try:
        if file == "-":
            data = sys.stdin.buffer.read(_MAX_BYTES + 1)
        else:
            with path.open("rb") as stream:
                data = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        raise UnusableFile(f"cannot read {file}: {error.strerror}") from error
    if len(data) > _MAX_BYTES:
        raise UnusableFile(f"{file} has more than {_MAX_BYTES} bytes: is it the right file?")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnusableFile(f"{file} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    named_as_answer = file != "-" and path.suffix.lower() in _ANSWER_SUFFIXES
    return Given(text, is_response or named_as_answer, "stdin" if file == "-" else path.name)
