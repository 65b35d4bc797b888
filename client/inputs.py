"""What is to be graded: lines of a file, files of a folder, or what a KernelBench run has generated."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from client.outcomes import BadUsage
from client.records import ProblemRecord
from client.sources import UnusableFile, read_given

__all__ = ["Fields", "KnownProblems", "Work", "read_work"]

_RUN_FILE: Final = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel\.py")
_NUMBERED: Final = re.compile(r"level_?(\d+)[^0-9a-z]*(?:problem_?)?(\d+)(?:[^0-9].*)?", re.IGNORECASE)
_SAID: Final = 5


@dataclass(frozen=True)
class Fields:
    """What the fields of a line are called. ``key`` of ``None``: lines are told apart by their numbers."""

    code: str = "code"
    response: str = "response"
    problem: str = "problem"
    key: str | None = None


@dataclass(frozen=True)
class Work:
    """One candidate. ``key`` tells it from all others; ``sample`` counts those of its problem from 0."""

    key: str
    problem: str
    text: str
    is_response: bool
    sample: int

    @property
    def digest(self) -> str:
        """SHA-256 over what is graded: under the same key, something else may have come."""
        return hashlib.sha256(json.dumps([self.problem, self.text, self.is_response]).encode()).hexdigest()

    @property
    def submission(self) -> dict[str, Any]:
        """What a service is asked."""
        return {"problem": self.problem, "response" if self.is_response else "code": self.text}


class KnownProblems:
    """The problems that there are, by id, or by level and number of KernelBench."""

    def __init__(self, records: Sequence[ProblemRecord]) -> None:
        self.by_id: Mapping[str, ProblemRecord] = {record["id"]: record for record in records}
        self._by_number: dict[tuple[int, int], str] = {}
        for record in records:
            identity = record.get("kernelbench")
            if identity:
                self._by_number[identity["level"], identity["problem_id"]] = record["id"]
        for record in records:
            # One that does not say which it is may be called by it, or be tagged with it.
            for name in (record["id"], *record["tags"]):
                number = _number_in(name)
                if number is not None:
                    self._by_number.setdefault(number, record["id"])

    def find(self, name: str) -> str:
        """The id of the problem called ``name``, such as ``relu`` or ``level1/19_ReLU.py``. Raises ``BadUsage``."""
        if name in self.by_id:
            return name
        number = _number_in(name)
        if number is not None:
            return self.numbered(*number)
        raise BadUsage(f"no problem {name!r}; there are {', '.join(self.by_id)}")

    def numbered(self, level: int, number: int) -> str:
        """The id of a problem of KernelBench's. Raises ``BadUsage``."""
        found = self._by_number.get((level, number))
        if found is None:
            known = ", ".join(f"level {each[0]} problem {each[1]}" for each in sorted(self._by_number)) or "none"
            raise BadUsage(f"no problem here is KernelBench's level {level} problem {number}; there are: {known}")
        return found


def read_work(given: Path, fields: Fields, problem: str | None, known: KnownProblems) -> list[Work]:
    """Everything in ``given``; ``problem`` is that of whatever names none. Raises ``BadUsage``, ``UnusableFile``."""
    if not given.is_dir():
        found = list(_lines(given, fields, problem, known))
    else:
        found = list(_run(given, known)) or list(_files(given, problem, known))
    if not found:
        raise BadUsage(f"nothing to grade in {given}: no line, and no .py file")
    repeated = [key for key, count in Counter(work.key for work in found).items() if count > 1]
    if repeated:
        raise BadUsage(f"keys must differ, and {repeated[0]!r} is there more than once")
    return found


def _lines(given: Path, fields: Fields, problem: str | None, known: KnownProblems) -> Iterator[Work]:
    samples: Counter[str] = Counter()
    names: set[str] = set()
    usable = False
    try:
        with given.open(encoding="utf-8") as stream:
            for number, text in enumerate(stream, start=1):
                if not text.strip():
                    continue
                line = _object(given, number, text)
                names |= set(line)
                usable = usable or fields.code in line or fields.response in line
                name = line.get(fields.problem) or problem
                if not isinstance(name, str):
                    raise BadUsage(f"{given}, line {number}: no problem in the field {fields.problem!r}; see --problem")
                found = known.find(name)
                key = str(number) if fields.key is None else line.get(fields.key)
                if not isinstance(key, str | int):
                    raise BadUsage(f"{given}, line {number}: no key in the field {fields.key!r}")
                code = line.get(fields.code)
                # A model that answered nothing has failed, and is graded as such.
                content = code if isinstance(code, str) else line.get(fields.response)
                is_response = not isinstance(code, str)
                sample, samples[found] = samples[found], samples[found] + 1
                yield Work(str(key), found, content if isinstance(content, str) else "", is_response, sample)
    except OSError as error:
        raise UnusableFile(f"cannot read {given}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UnusableFile(f"{given} is not UTF-8 text: {error.reason}") from error
    if names and not usable:
        shown = ", ".join(sorted(names)[: 4 * _SAID])
        raise BadUsage(
            f"no line of {given} has the field {fields.code!r} or {fields.response!r}; they have {shown}. "
            "See --code-field and --response-field"
        )


def _object(given: Path, number: int, text: str) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadUsage(f"{given}, line {number}: not JSON: {error}") from error
    if not isinstance(line, dict):
        raise BadUsage(f"{given}, line {number}: not an object")
    return line


def _run(folder: Path, known: KnownProblems) -> Iterator[Work]:
    matches = [(path, _RUN_FILE.fullmatch(path.name)) for path in folder.iterdir()]
    runs = sorted((tuple(map(int, match.groups())), path) for path, match in matches if match is not None)
    for (level, number, sample), path in runs:
        yield Work(path.name, known.numbered(level, number), _text(path), False, sample)


def _files(folder: Path, problem: str | None, known: KnownProblems) -> Iterator[Work]:
    samples: Counter[str] = Counter()
    for path in sorted(folder.rglob("*.py")):
        found = known.find(problem if problem is not None else path.parent.resolve().name)
        sample, samples[found] = samples[found], samples[found] + 1
        yield Work(str(path.relative_to(folder)), found, _text(path), False, sample)


def _text(path: Path) -> str:
    return read_given(str(path), is_response=False).text


def _number_in(name: str) -> tuple[int, int] | None:
    match = _NUMBERED.search(name)
    return (int(match[1]), int(match[2])) if match else None
