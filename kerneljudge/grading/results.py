"""Results of many candidates in a file: as lines of JSON, as CSV, or as Parquet."""

from __future__ import annotations

import contextlib
import csv
import fcntl
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from typing_extensions import Self

from kerneljudge.cli.output import BadUsage
from kerneljudge.grading import parquet
from kerneljudge.grading.sources import UnusableFile
from kerneljudge.records import RulesRecord
from kerneljudge.summaries.summary import GradedCandidate
from kerneljudge.terms.choices import TIERS
from kerneljudge.terms.outcomes import SpeedupStatus, Status, Verdict
from kerneljudge.terms.rules import Rules, rules_text

__all__ = ["SUFFIXES", "Result", "ResultFile", "graded_of", "is_unsettled"]

Result = dict[str, Any]

SUFFIXES: Final = (".jsonl", ".csv", parquet.SUFFIX)

_COLUMNS: Final = (
    "key", "digest", "sample", "problem", "status", "verdict", "gradients", "speedup", "speedup_low", "speedup_high",
    "speedup_status", "speedup_training", "speedup_training_status", "latency_ms", "baseline_ms", "device", "size",
    "precision", "tier", "rules", "message", "id",
)  # fmt: skip
_NUMBERS: Final = ("speedup", "speedup_low", "speedup_high", "speedup_training", "latency_ms", "baseline_ms")
_TYPES: Final[dict[str, type]] = {
    **{name: float if name in _NUMBERS else int if name == "sample" else str for name in _COLUMNS},
    "feedback": str,
    "record": str,
}
"""The columns of a Parquet file. ``record`` has the whole record, as JSON."""
_KEPT: Final = (
    "key", "digest", "sample", "problem", "status", "verdict", "speedup", "speedup_interval", "speedup_low",
    "speedup_status", "speedup_training_status", "latency_ms", "device", "tier", "rules", "message",
    "environment", "runtime_stats",
)  # fmt: skip
"""The fields for the summary and for KernelBench's file. Only these are held in memory of each result."""
_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")
_LINE_START: Final = b'{"key": '


class ResultFile:
    """Results by key, in a file that only grows. The last result of a key counts. A context manager.

    A Parquet file cannot grow. So new results go to a file beside it as lines of JSON, until the end. Raises
    ``BadUsage`` for a file that has no results, or cannot be written, and ``UnusableFile``.
    """

    def __init__(self, path: Path) -> None:
        if path.suffix not in SUFFIXES:
            raise BadUsage(f"--out must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}, not {path.name!r}")
        self._path = path
        self._csv = path.suffix == ".csv"
        self._parquet = path.suffix == parquet.SUFFIX
        self._grows = path.with_name(f"{path.name}.unfinished.jsonl") if self._parquet else path
        self.results: dict[str, Result] = {}
        if self._parquet:
            parquet.require()
            for result in self._finished():
                self._keep(result)
        with self._written():
            self._stream = self._grows.open("ab+")
            try:
                self._begin()
            except BaseException:
                self._stream.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._stream, self._written():
            if self._parquet:
                parquet.write_rows(self._path, map(_parquet_row, self._everything()), _TYPES)
                self._grows.unlink()

    def has(self, key: str, digest: str, tier: str, rules: RulesRecord) -> bool:
        """Whether this candidate was graded already, in ``tier`` or a deeper one, under these requested ``rules``.

        An unsettled result does not count, since another try is worth it.
        """
        result = self.results.get(key)
        if result is None or result["digest"] != digest or result["status"] != Status.DONE or is_unsettled(result):
            return False
        if (result.get("rules") or "") != _text_of(rules):
            return False
        return TIERS.index(result.get("tier") or "full") >= TIERS.index(tier)

    def add(self, result: Result) -> None:
        """Write one result, so that it survives an interruption. Raises ``BadUsage`` where it cannot be written."""
        self._keep(result)
        with self._written():
            self._stream.write(_csv_line(_row(result)) if self._csv else json.dumps(result).encode() + b"\n")
            self._stream.flush()

    def _keep(self, result: Result) -> None:
        kept: Result = {name: result[name] for name in _KEPT if name in result}
        kept["rules"] = _text_of(result.get("rules"))
        self.results[result["key"]] = kept

    def _begin(self) -> None:
        """Read the results that are there, and cut off an unfinished last one."""
        try:
            fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BadUsage(f"another command is writing to {self._path} at the moment") from error
        except OSError:
            """A file system without locks, on which a second writer cannot be noticed."""
        whole = self._read_rows() if self._csv else self._read_lines()
        self._stream.truncate(whole)
        if self._csv and not whole:
            self._stream.write(_csv_line(list(_COLUMNS)))
            self._stream.flush()

    def _read_lines(self) -> int:
        """Read lines of JSON. Return the number of bytes with whole results.

        The last line may be a part of a result after an interruption. Other content is not ours to cut off. Raises
        ``BadUsage`` for it.
        """
        whole = 0
        self._stream.seek(0)
        for line in self._stream:
            if not line.endswith(b"\n"):
                if not line.startswith(_LINE_START[: len(line)]):
                    raise self._foreign(f"it ends with {line[:40]!r}")
                break
            try:
                self._keep(_checked(json.loads(line)))
            except (ValueError, KeyError, TypeError) as error:
                raise self._foreign(str(error) or type(error).__name__) from error
            whole += len(line)
        return whole

    def _read_rows(self) -> int:
        """Read rows of CSV, like ``_read_lines``. A row ends at a line's end outside of quotes."""
        header = _csv_line(list(_COLUMNS))
        self._stream.seek(0)
        content = self._stream.read()
        if header.startswith(content):
            return len(header) if content == header else 0
        if not content.startswith(header):
            raise self._foreign("its first line is another")
        whole = position = quotes = 0
        for line in content.splitlines(keepends=True):
            position += len(line)
            quotes += line.count(b'"')
            if line.endswith(b"\n") and quotes % 2 == 0:
                whole = position
        try:
            for result in _csv_results(content[:whole].decode()):
                self._keep(_checked(result))
        except (ValueError, KeyError, TypeError, csv.Error) as error:
            raise self._foreign(str(error)) from error
        return whole

    def _finished(self) -> Iterator[Result]:
        """Yield the results in the Parquet file."""
        if not self._path.exists():
            return
        try:
            for row in parquet.rows_of(self._path, ["record"]):
                yield _checked(json.loads(row["record"]))
        except UnusableFile as error:
            raise self._foreign(str(error)) from error
        except (ValueError, KeyError, TypeError) as error:
            raise self._foreign(f"it has no column of records ({error})") from error

    def _everything(self) -> Iterator[Result]:
        """Yield every result once, the last of its key, in the order of arrival."""
        self._stream.seek(0)
        last = {json.loads(line)["key"]: number for number, line in enumerate(self._stream)}
        yield from (result for result in self._finished() if result["key"] not in last)
        self._stream.seek(0)
        for number, line in enumerate(self._stream):
            result: Result = json.loads(line)
            if last[result["key"]] == number:
                yield result

    @contextlib.contextmanager
    def _written(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BadUsage(f"cannot write {self._path}: {error.strerror or error}") from error

    def _foreign(self, why: str) -> BadUsage:
        return BadUsage(
            f"{self._grows} does not hold results of this command, and was left as it is: {why}. Name another --out"
        )


def graded_of(result: Result) -> GradedCandidate:
    """Return ``result`` in the form for a summary."""
    verdict = Verdict(result["verdict"]) if result["status"] == Status.DONE else None
    status = result.get("speedup_status") or None
    return GradedCandidate(
        result["problem"],
        verdict,
        result["speedup"],
        result["key"],
        # In a table, it is a column of its own.
        result["speedup_low"] if "speedup_low" in result else (result.get("speedup_interval") or {}).get("low"),
        None if status is None else SpeedupStatus(status),
    )


def is_unsettled(result: Mapping[str, Any]) -> bool:
    """Whether the machine was too noisy for one of its figures."""
    return SpeedupStatus.UNSETTLED in (result.get("speedup_status"), result.get("speedup_training_status"))


def _checked(result: Any) -> Result:
    """Return ``result`` if it is valid. Raises ``KeyError``, ``TypeError``, ``ValueError`` otherwise."""
    if not isinstance(result, dict):
        raise TypeError("it is not an object")
    missing = {"key", "digest", "sample", "problem", "status"}.difference(result)
    if missing:
        raise ValueError(f"it has no {', '.join(sorted(missing))}")
    graded_of(result)
    return result


def _figures(result: Result) -> Result:
    interval, latency = result["speedup_interval"] or {}, result["latency_ms"] or {}
    return {
        **result,
        "rules": _text_of(result.get("rules")),
        "speedup_low": interval.get("low"),
        "speedup_high": interval.get("high"),
        "latency_ms": latency.get("candidate"),
        "baseline_ms": latency.get("baseline"),
    }


def _text_of(rules: RulesRecord | str | None) -> str:
    """Return requested rules as a table has them: as text."""
    return rules if isinstance(rules, str) else rules_text(Rules.from_dict(rules or {}))


def _parquet_row(result: Result) -> Result:
    figures = _figures(result)
    return {
        **{name: figures[name] for name in _COLUMNS},
        "feedback": result.get("feedback"),
        "record": json.dumps(result),
    }


def _row(result: Result) -> list[Any]:
    figures = _figures(result)
    return [_inert(figures[name]) for name in _COLUMNS]


def _inert(value: Any) -> Any:
    """Quote a text that a spreadsheet would run as a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA_STARTS) else value


def _csv_line(values: list[Any]) -> bytes:
    line = io.StringIO(newline="")
    csv.writer(line).writerow(values)
    # Output of a candidate may contain lone surrogates.
    return line.getvalue().encode(errors="replace")


def _csv_results(text: str) -> Iterator[Result]:
    for row in csv.DictReader(io.StringIO(text, newline="")):
        result: Result = {**row, "key": row["key"].removeprefix("'"), "verdict": row["verdict"] or None}
        for name in _NUMBERS:
            result[name] = float(row[name]) if row[name] else None
        yield result
