"""The origins of candidates and problems on the command line."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from evaluator.candidates.candidate import Candidate, InvalidSource, parse_candidate
from evaluator.interpreter import DISTRIBUTION_ROOT
from evaluator.problems.loading import load_problems
from evaluator.problems.problem import Problem

__all__ = [
    "Given",
    "UnusableFile",
    "extra_problems_folder",
    "folder_of",
    "known_problems",
    "problems_folder",
    "read_given",
]

_ANSWER_SUFFIXES: Final = (".md", ".txt")
_MAX_BYTES: Final = 16 * 2**20  # far above the limit of grading; it only keeps a wrong file from filling the memory
_DEFAULT_PROBLEMS: Final = "reference_models"
_DEFAULT_DATA: Final = ".kerneljudge"


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

    def parse(self) -> Candidate | InvalidSource:
        """Return the candidate in the text."""
        return parse_candidate(code=self.code, response=self.response)


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


def problems_folder(given: Path | None) -> Path:
    """Return the folder of problems: as given, ``KERNELJUDGE_PROBLEMS_DIR``, here, or beside the package."""
    if given is not None:
        return given
    configured = os.environ.get("KERNELJUDGE_PROBLEMS_DIR")
    if configured:
        return Path(configured)
    here = Path(_DEFAULT_PROBLEMS)
    return here if here.is_dir() else DISTRIBUTION_ROOT / _DEFAULT_PROBLEMS


def extra_problems_folder() -> Path:
    """Return the folder of imported problems: ``KERNELJUDGE_EXTRA_PROBLEMS_DIR``, or one in the data folder."""
    configured = os.environ.get("KERNELJUDGE_EXTRA_PROBLEMS_DIR")
    data = os.environ.get("KERNELJUDGE_DATA_DIR") or _DEFAULT_DATA
    return (Path(configured) if configured else Path(data) / "problems").expanduser().absolute()


def known_problems(given: Path | None) -> dict[str, Problem]:
    """Return the problems in the folder ``given``; without one, those of ``problems_folder`` and the imported ones.

    Raises ``ProblemError``.
    """
    return load_problems(problems_folder(given), extra_problems_folder() if given is None else None)


def folder_of(problem_id: str, given: Path | None) -> Path:
    """Return the folder of one of ``known_problems(given)``."""
    own = problems_folder(given) / problem_id
    return own if given is not None or own.is_dir() else extra_problems_folder() / problem_id
