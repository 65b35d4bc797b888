"""The inputs of grading: lines of a file, files of a folder, or the output of a KernelBench run.

An input is read as often as needed, and never held. Of ten thousand candidates, only keys and digests are in memory.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kerneljudge.cli.output import BadUsage
from kerneljudge.completions import text_of
from kerneljudge.grading import parquet
from kerneljudge.grading.references import reference_in, reference_key
from kerneljudge.grading.sources import UnusableFile, read_given
from kerneljudge.records import ProblemSummary
from kerneljudge.requests import Reference

__all__ = ["Entry", "Fields", "Input", "KnownProblems", "Refused", "Survey", "Work"]

_RUN_FILE: Final = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel\.py")
_NUMBERED: Final = re.compile(r"level_?(\d+)[^0-9a-z]*(?:problem_?)?(\d+)(?:[^0-9].*)?", re.IGNORECASE)
_NAMES_SAID: Final = 20
_MISSING: Final = object()


@dataclass(frozen=True)
class Fields:
    """The names of a line's fields. With a ``key`` of ``None``, lines are identified by their numbers.
    Without ``metadata`` or ``parent``, lines have none. Where a line has a ``reference``, its problem is not read.

    A name may be a path, such as ``choices.0.message.content``. A field with that whole name takes precedence.
    """

    code: str = "code"
    response: str = "response"
    problem: str = "problem"
    key: str | None = None
    metadata: str | None = None
    parent: str | None = None
    reference: str | None = None

    @property
    def columns(self) -> frozenset[str]:
        """The columns of a table that hold these fields."""
        names = {*vars(self).values()} - {None}
        return frozenset(part for name in names if name for part in (name, name.partition(".")[0]))


@dataclass(frozen=True)
class Entry:
    """A candidate without its text. ``key`` is unique; ``sample`` counts the candidates of its problem from 0.

    ``digest`` is a SHA-256 of the graded content, since the same key may come with other content.
    """

    key: str
    problem: str
    sample: int
    digest: str


@dataclass(frozen=True)
class Work:
    """A candidate with its text. With a ``reference``, ``problem`` is its ``reference_key``."""

    key: str
    problem: str
    text: str
    is_response: bool
    sample: int
    metadata: dict[str, Any] | None = None
    parent: str | None = None
    reference: Reference | None = None

    @property
    def entry(self) -> Entry:
        """The candidate without its text."""
        digest = hashlib.sha256(json.dumps([self.problem, self.text, self.is_response]).encode()).hexdigest()
        return Entry(self.key, self.problem, self.sample, digest)


@dataclass(frozen=True)
class Refused:
    """A line or a file that is not a candidate for a known problem."""

    where: str
    message: str


@dataclass(frozen=True)
class Survey:
    """All candidates and refused lines of an input."""

    entries: Sequence[Entry]
    refused: Sequence[Refused]


class KnownProblems:
    """The known problems, by id, or by level and number of KernelBench."""

    def __init__(self, records: Sequence[ProblemSummary]) -> None:
        self.by_id: Mapping[str, ProblemSummary] = {record["id"]: record for record in records}
        self._by_number: dict[tuple[int, int], str] = {}
        for record in records:
            identity = record.get("kernelbench")
            if identity:
                self._by_number[identity["level"], identity["problem_id"]] = record["id"]
        for record in records:
            # A problem without these fields may have level and number in its id or in a tag.
            for name in (record["id"], *record["tags"]):
                number = _number_in(name)
                if number is not None:
                    self._by_number.setdefault(number, record["id"])
        self._numbers = {problem: number for number, problem in reversed(self._by_number.items())}

    def find(self, name: str) -> str:
        """Return the id of the problem called ``name``, such as ``relu`` or ``level1/19_ReLU.py``.

        Raises ``BadUsage``.
        """
        if name in self.by_id:
            return name
        number = _number_in(name)
        if number is not None:
            return self.numbered(*number)
        raise BadUsage(f"no problem {name!r}; there are {', '.join(self.by_id)}")

    def number_of(self, problem: str) -> tuple[int, int] | None:
        """Return the level and number of ``problem`` in KernelBench; ``None`` where it is not one of KernelBench's."""
        return self._numbers.get(problem)

    def numbered(self, level: int, number: int) -> str:
        """Return the id of a KernelBench problem. Raises ``BadUsage``."""
        found = self._by_number.get((level, number))
        if found is None:
            known = ", ".join(f"level {each[0]} problem {each[1]}" for each in sorted(self._by_number)) or "none"
            raise BadUsage(f"no problem here is KernelBench's level {level} problem {number}; there are: {known}")
        return found


class Input:
    """A file of lines or rows, or a folder. Each iteration reads it anew.

    ``problem`` is the problem of candidates that name none. ``precision`` is that of references. Raises ``BadUsage``.
    Iterating raises ``BadUsage`` and ``UnusableFile`` where the input cannot be read as one.
    """

    def __init__(
        self, given: Path, fields: Fields, problem: str | None, known: KnownProblems, precision: str | None = None
    ) -> None:
        self._given = given
        self._fields = fields
        self._problem = None if problem is None else known.find(problem)
        self._known = known
        self._precision = precision

    def __iter__(self) -> Iterator[Work | Refused]:
        if not self._given.is_dir():
            return self._rows()
        run = _run_files(self._given)
        return self._run(run) if run else self._files()

    def survey(self) -> Survey:
        """Read the whole input.

        Raises ``BadUsage`` where it has nothing to grade, or where a key occurs more than once.
        """
        entries: list[Entry] = []
        refused: list[Refused] = []
        for each in self:
            if isinstance(each, Work):
                entries.append(each.entry)
            else:
                refused.append(each)
        if not entries:
            if refused:
                more = f" (and {len(refused) - 1} more like it)" if len(refused) > 1 else ""
                raise BadUsage(f"{self._given}, {refused[0].where}: {refused[0].message}{more}")
            raise BadUsage(f"nothing to grade in {self._given}: no line, and no .py file")
        repeated = [key for key, count in Counter(entry.key for entry in entries).items() if count > 1]
        if repeated:
            raise BadUsage(
                f"keys must differ, and {repeated[0]!r} is there more than once ({len(repeated)} such keys); "
                "without --key-field, lines are told apart by their numbers"
            )
        return Survey(entries, refused)

    def _rows(self) -> Iterator[Work | Refused]:
        """Read lines of JSON, or rows of a Parquet file."""
        samples: Counter[str] = Counter()
        names: set[str] = set()
        usable = False
        for number, row in self._numbered():
            where = f"line {number}"
            if isinstance(row, str):
                yield Refused(where, row)
                continue
            if len(names) <= _NAMES_SAID:
                names |= set(row)
            usable = usable or any(
                _field(row, name) is not _MISSING for name in (self._fields.code, self._fields.response)
            )
            try:
                reference = self._reference_of(row)
                found = self._problem_of(row) if reference is None else reference_key(reference, self._precision)
                key = self._key_of(row, number)
                text, is_response = self._text_of(row)
                metadata, parent = self._metadata_of(row), self._parent_of(row)
            except BadUsage as error:
                yield Refused(where, str(error))
                continue
            sample, samples[found] = samples[found], samples[found] + 1
            yield Work(key, found, text, is_response, sample, metadata, parent, reference)
        if names and not usable:
            raise self._without_text(names)

    def _numbered(self) -> Iterator[tuple[int, dict[str, Any] | str]]:
        """Yield each line's number, from 1, and its object, or an error message."""
        if self._given.suffix == parquet.SUFFIX:
            names = parquet.columns_of(self._given)
            columns = self._fields.columns
            if not columns.intersection(names):
                raise self._without_text(set(names))
            yield from enumerate(parquet.rows_of(self._given, columns), start=1)
            return
        try:
            with self._given.open("rb") as stream:
                for number, line in enumerate(stream, start=1):
                    # A file that was saved by an editor of Windows begins with a byte order mark.
                    if line.removeprefix(b"\xef\xbb\xbf").strip():
                        yield number, _object(line)
        except OSError as error:
            raise UnusableFile(f"cannot read {self._given}: {error.strerror}") from error

    def _without_text(self, names: set[str]) -> BadUsage:
        fields, shown = self._fields, ", ".join(sorted(names)[:_NAMES_SAID])
        return BadUsage(
            f"no line of {self._given} has the field {fields.code!r} or {fields.response!r}; they have {shown}. "
            "See --code-field and --response-field"
        )

    def _problem_of(self, row: Mapping[str, Any]) -> str:
        name = _field(row, self._fields.problem)
        if isinstance(name, str) and name:
            return self._known.find(name)
        if self._problem is None:
            raise BadUsage(f"no problem in the field {self._fields.problem!r}; see --problem")
        return self._problem

    def _reference_of(self, row: Mapping[str, Any]) -> Reference | None:
        value = None if self._fields.reference is None else _field(row, self._fields.reference)
        return None if value is None or value is _MISSING else reference_in(value)

    def _key_of(self, row: Mapping[str, Any], number: int) -> str:
        key = number if self._fields.key is None else _field(row, self._fields.key)
        if not isinstance(key, str | int):
            raise BadUsage(f"no key in the field {self._fields.key!r}")
        return str(key)

    def _metadata_of(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        value = None if self._fields.metadata is None else _field(row, self._fields.metadata)
        if value is None or value is _MISSING:
            return None
        if not isinstance(value, dict):
            raise BadUsage(f"the field {self._fields.metadata!r} holds no object")
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:  # Parquet has dates and the like
            raise BadUsage(f"the field {self._fields.metadata!r} is no JSON: {error}") from error
        return value

    def _parent_of(self, row: Mapping[str, Any]) -> str | None:
        value = None if self._fields.parent is None else _field(row, self._fields.parent)
        if value is None or value is _MISSING:
            return None
        if not isinstance(value, str):
            raise BadUsage(f"the field {self._fields.parent!r} holds no id")
        return value

    def _text_of(self, row: Mapping[str, Any]) -> tuple[str, bool]:
        """Return the text, and whether it is an answer.

        An empty answer of a model is a failure, and is graded as such.
        """
        for name, is_response in ((self._fields.code, False), (self._fields.response, True)):
            value = _field(row, name)
            if value is not _MISSING and value is not None:
                text = _as_text(value)
                if text is None:
                    raise BadUsage(f"the field {name!r} holds neither text nor a conversation")
                return text, is_response
        return "", True

    def _run(self, files: Sequence[tuple[tuple[int, ...], Path]]) -> Iterator[Work | Refused]:
        for (level, number, sample), path in files:
            try:
                yield Work(path.name, self._known.numbered(level, number), _text(path), False, sample)
            except (BadUsage, UnusableFile) as error:
                yield Refused(path.name, str(error))

    def _files(self) -> Iterator[Work | Refused]:
        samples: Counter[str] = Counter()
        for path in sorted(self._given.rglob("*.py")):
            name = str(path.relative_to(self._given))
            try:
                found = self._problem or self._known.find(path.parent.resolve().name)
                text = _text(path)
            except (BadUsage, UnusableFile) as error:
                yield Refused(name, str(error))
                continue
            sample, samples[found] = samples[found], samples[found] + 1
            yield Work(name, found, text, False, sample)


def _run_files(folder: Path) -> Sequence[tuple[tuple[int, ...], Path]]:
    matches = [(path, _RUN_FILE.fullmatch(path.name)) for path in folder.iterdir()]
    return sorted((tuple(map(int, match.groups())), path) for path, match in matches if match is not None)


def _object(line: bytes) -> dict[str, Any] | str:
    try:
        found = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        return f"not UTF-8 text: {error.reason}"
    except (ValueError, RecursionError) as error:
        return f"not JSON: {error}"
    return found if isinstance(found, dict) else "not an object"


def _field(row: Mapping[str, Any], name: str) -> Any:
    """Return the value of ``row`` with this name, or at this path; ``_MISSING`` where there is none."""
    if name in row:
        return row[name]
    found: Any = row
    for part in name.split("."):
        if isinstance(found, Mapping) and part in found:
            found = found[part]
        elif isinstance(found, list) and part.removeprefix("-").isdecimal() and -len(found) <= int(part) < len(found):
            found = found[int(part)]
        else:
            return _MISSING
    return found


def _as_text(value: Any) -> str | None:
    """Return the text of a text, of bytes, or of a conversation's last answer."""
    if isinstance(value, str):
        return value
    try:
        return value.decode() if isinstance(value, bytes) else text_of(value)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _text(path: Path) -> str:
    return read_given(str(path), is_response=False).text


def _number_in(name: str) -> tuple[int, int] | None:
    match = _NUMBERED.search(name)
    return (int(match[1]), int(match[2])) if match else None
