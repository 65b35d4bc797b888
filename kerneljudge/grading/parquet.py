"""Parquet files: reading and writing rows, a few at a time.

It uses pyarrow, which is an extra and which no other module loads. Without pyarrow, all functions raise ``BadUsage``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from kerneljudge.cli.output import BadUsage
from kerneljudge.grading.sources import UnusableFile

__all__ = ["SUFFIX", "columns_of", "require", "rows_of", "write_rows"]

SUFFIX: Final = ".parquet"

_ROWS_READ: Final = 64
_ROWS_WRITTEN: Final = 500


def require() -> None:
    """Raise ``BadUsage`` where pyarrow is not installed."""
    _pyarrow()


def columns_of(path: Path) -> Sequence[str]:
    """Return the names of the columns. Raises ``UnusableFile`` for a file that cannot be read as Parquet."""
    arrow, parquet = _pyarrow()
    try:
        names: Sequence[str] = parquet.read_schema(path).names
    except (OSError, arrow.ArrowException) as error:
        raise _unusable(path, error) from error
    return names


def rows_of(path: Path, columns: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield each row, as far as it has ``columns``. Raises ``UnusableFile``."""
    arrow, parquet = _pyarrow()
    try:
        with parquet.ParquetFile(path) as file:
            wanted = [name for name in file.schema_arrow.names if name in columns]
            # It reads each row group by itself, because a batch that spans two would hold both in memory.
            for group in range(file.num_row_groups):
                for batch in file.iter_batches(_ROWS_READ, row_groups=[group], columns=wanted):
                    yield from batch.to_pylist()
    except (OSError, arrow.ArrowException) as error:
        raise _unusable(path, error) from error


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]], columns: Mapping[str, type]) -> None:
    """Write ``rows`` to ``path``, which readers see only once it is complete.

    ``columns`` has the type of each column: ``str``, ``int`` or ``float``. Any value may be missing. Raises
    ``OSError``.
    """
    arrow, parquet = _pyarrow()
    types = {str: arrow.string(), int: arrow.int64(), float: arrow.float64()}
    schema = arrow.schema([(name, types[kind]) for name, kind in columns.items()])
    remaining = iter(rows)
    unfinished = path.with_name(f"{path.name}.tmp")
    with parquet.ParquetWriter(unfinished, schema, compression="zstd") as writer:
        while some := [_storable(row) for row in islice(remaining, _ROWS_WRITTEN)]:
            writer.write_table(arrow.Table.from_pylist(some, schema))
    unfinished.replace(path)


def _storable(row: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the characters that UTF-8 cannot hold. Output of a candidate may contain lone surrogates."""
    return {
        name: value.encode(errors="replace").decode() if isinstance(value, str) else value
        for name, value in row.items()
    }


def _pyarrow() -> tuple[Any, Any]:
    try:
        # It is imported here, because the package is an extra, and as large as everything else together.
        import pyarrow  # noqa: PLC0415
        import pyarrow.parquet  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise BadUsage(f"Parquet needs the package pyarrow ({error}): pip install 'kerneljudge[parquet]'") from error
    return pyarrow, pyarrow.parquet


def _unusable(path: Path, error: Exception) -> UnusableFile:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return UnusableFile(f"cannot read {path} as Parquet: {reason}")
