"""The table of ``analyze partitions`` as a Parquet file, or as the folder that Spark makes of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from zkmigrate.cluster.placement.measured import COLUMNS, Measured, Row, table
from zkmigrate.errors import UsageError

_NEEDED = "needed: partitions.parquet of analyze partitions --out"
_BATCH = 65_536
"""Rows that are held as Python values at once."""


def read(path: Path) -> Measured:
    """The table. Raises UsageError: no pyarrow, no such file, no Parquet, other columns, wrong values."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        needed = "pyarrow, of setup/requirements-spark.txt or zkmigrate[spark]"
        raise UsageError(f"--partitions {path}: {error}. Needed: {needed}") from error
    files = _files(path)

    def rows() -> Iterator[Row]:
        for file in files:
            try:
                with parquet.ParquetFile(file) as opened:
                    _check(file, opened.schema_arrow, pyarrow.types)
                    yield from _rows(file.name if path.is_dir() else "", opened, pyarrow)
            except (pyarrow.ArrowException, OSError) as error:
                raise UsageError(f"{file}: {str(error).splitlines()[0]}; {_NEEDED}") from error

    return table(rows(), str(path))


def _files(path: Path) -> Sequence[Path]:
    if not path.exists():
        raise UsageError(f"{path}: no such file; {_NEEDED}")
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UsageError(f"{path} is a pipe or a device; {_NEEDED}")
    found = sorted(one for one in path.glob("*.parquet") if one.is_file() and one.name[0] not in "._")
    if not found:
        raise UsageError(f"{path}: seen a folder without a Parquet file; {_NEEDED}")
    return found


def _check(file: Path, schema: Any, types: Any) -> None:
    """Raises UsageError for other columns than those of the table."""
    kinds = (
        ("text", types.is_string), ("text", types.is_string), ("a whole number", types.is_signed_integer),
        ("a whole number", types.is_signed_integer), ("a number", types.is_floating),
        ("a time", types.is_timestamp),
    )  # fmt: skip
    for name, (kind, fits) in zip(COLUMNS, kinds, strict=True):
        at = schema.get_field_index(name)
        if at < 0 or not fits(schema.field(at).type):
            seen = f"column {name} is {schema.field(at).type}" if at >= 0 else f"no column {name}"
            raise UsageError(f"{file}: seen {seen}; needed: {kind} as {name}. {_NEEDED.capitalize()}")


def _rows(name: str, opened: Any, pyarrow: Any) -> Iterator[Row]:
    """The rows of an open file. name: for errors, where there are several files."""
    number = 0
    for batch in opened.iter_batches(_BATCH, columns=list(COLUMNS)):
        columns = [batch.column(column) for column in COLUMNS[:-1]]
        at = batch.column(COLUMNS[-1]).cast(pyarrow.timestamp("ms", "UTC"), safe=False)
        columns.append(at.cast(pyarrow.int64()))
        for values in zip(*(column.to_pylist() for column in columns), strict=True):
            number += 1
            yield Row(f"{name} row {number}".lstrip(), *values)
