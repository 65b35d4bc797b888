"""Tables as files: CSV always, Parquet where pyarrow is installed (the extra ``parquet``)."""

from __future__ import annotations

import csv
import importlib.util
import io
import itertools
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, Literal

from api.http.errors import InvalidRequest

__all__ = ["CSV", "PARQUET", "Format", "csv_lines", "parquet", "parquet_is_there"]

Format = Literal["json", "csv", "parquet"]

CSV: Final = "text/csv"
PARQUET: Final = "application/vnd.apache.parquet"

_ROWS_AT_ONCE: Final = 5000
_CHARACTERS_AT_ONCE: Final = 2**16
_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")


def csv_lines(columns: Mapping[str, type], rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a header line, then a line of CSV for each row, some lines at a time.

    Texts that a spreadsheet would run as formulas are quoted.
    """
    out = io.StringIO()
    writer = csv.DictWriter(out, list(columns))
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _as_text(row[name]) for name in columns})
        if out.tell() >= _CHARACTERS_AT_ONCE:
            yield out.getvalue()
            out.seek(0)
            out.truncate()
    yield out.getvalue()


def parquet(columns: Mapping[str, type], rows: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    """Yield the table as one Parquet file, in parts. Its columns have the same types, whatever the rows contain.

    Raises ``InvalidRequest``, at once, where this service has no Parquet.
    """
    if not parquet_is_there():
        raise InvalidRequest.on("format", "this service makes no Parquet: pyarrow is not installed (extra parquet)")
    return _parquet(columns, rows)


def parquet_is_there() -> bool:
    """Whether this service can make Parquet files."""
    return importlib.util.find_spec("pyarrow") is not None


class _Parts(io.RawIOBase):
    """A write-only file whose content is taken away part by part."""

    def __init__(self) -> None:
        self._written = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._written += data
        return len(data)

    def take(self) -> bytes:
        """Return the content that was written since the last call."""
        part = bytes(self._written)
        self._written.clear()
        return part


def _parquet(columns: Mapping[str, type], rows: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    import pyarrow  # noqa: PLC0415 - an extra, and slow to import
    import pyarrow.parquet  # noqa: PLC0415

    types = {
        str: pyarrow.string(),
        int: pyarrow.int64(),
        float: pyarrow.float64(),
        bool: pyarrow.bool_(),
        datetime: pyarrow.timestamp("us", tz="UTC"),
    }
    schema = pyarrow.schema([(name, types[kind]) for name, kind in columns.items()])
    out = _Parts()
    remaining = iter(rows)
    with pyarrow.parquet.ParquetWriter(out, schema, compression="zstd") as writer:
        while part := list(itertools.islice(remaining, _ROWS_AT_ONCE)):
            writer.write_table(pyarrow.Table.from_pylist(part, schema))
            yield out.take()
    # The footer is written at the end.
    yield out.take()


def _as_text(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA_STARTS) else value
