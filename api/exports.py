"""Tables as files: CSV always, Parquet where pyarrow is installed (the extra ``parquet``)."""

from __future__ import annotations

import csv
import importlib.util
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from api.errors import InvalidRequest

__all__ = ["CSV", "PARQUET", "Format", "csv_lines", "parquet", "parquet_is_there"]

Format = Literal["json", "csv", "parquet"]

CSV: Final = "text/csv"
PARQUET: Final = "application/vnd.apache.parquet"

_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")


def csv_lines(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A header line, then a line of CSV for each row; texts that a spreadsheet would run as formulas are quoted."""
    out = io.StringIO()
    writer = csv.DictWriter(out, columns)
    writer.writeheader()
    for row in rows:
        yield out.getvalue()
        out.seek(0)
        out.truncate()
        writer.writerow({name: _inert(row[name]) for name in columns})
    yield out.getvalue()


def parquet(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> bytes:
    """The table as one Parquet file. Raises ``InvalidRequest`` where this service cannot make one."""
    if not parquet_is_there():
        raise InvalidRequest.on("format", "this service makes no Parquet: pyarrow is not installed (extra parquet)")
    import pyarrow  # noqa: PLC0415 - an extra, and slow to import
    import pyarrow.parquet  # noqa: PLC0415

    listed = list(rows)
    table = pyarrow.table({name: [row[name] for row in listed] for name in columns})
    out = io.BytesIO()
    pyarrow.parquet.write_table(table, out, compression="zstd")
    return out.getvalue()


def parquet_is_there() -> bool:
    """Whether Parquet can be made here."""
    return importlib.util.find_spec("pyarrow") is not None


def _inert(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA_STARTS) else value
