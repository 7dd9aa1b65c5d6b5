"""Convert rows of Spark to plain values and to tables for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from zkmigrate.runbook.model.report import Table
from zkmigrate.zookeeper.data.session import format_session
from zkmigrate.zookeeper.data.zxid import format_zxid

if TYPE_CHECKING:
    from pyspark.sql import Row

_FORMATS: dict[str, Callable[[int], str]] = {
    **dict.fromkeys(("zxid", "czxid", "mzxid", "pzxid"), format_zxid),
    **dict.fromkeys(("session", "ephemeral_owner"), format_session),
}
Cell: TypeAlias = str | Callable[[Any], object]
"""The name of a row's column, or a function that returns the cell for a row."""


def plain(row: Row) -> dict[str, Any]:
    """Return a row's values for JSON: zxids and sessions in hexadecimal, times as ISO 8601 in UTC."""
    return {name: _value(name, value) for name, value in row.asDict(recursive=True).items()}


def moment(at: datetime | None) -> str:
    """Return a time as text for people, in UTC; "" for None.

    Spark's own times have no zone: they are in the time zone of this process.
    """
    return "" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def table(
    id: str,
    title: str,
    rows: Iterable[Any],
    columns: Sequence[tuple[str, Cell]],
    intro: str = "",
    wide: tuple[int, ...] = (),
) -> Table:
    """Return a table with a line for each row.

    id: the table's name in the page. intro: a text above the table. wide: the numbers of the columns that may
    be wide. columns: the heading of each column, with the name of a row's field or a function of the row. A
    value of None gives an empty cell.
    """
    cells = tuple(tuple(_cell(row, cell) for _, cell in columns) for row in rows)
    return Table(id, title, tuple(head for head, _ in columns), cells, intro, wide=wide)


def _cell(row: Any, cell: Cell) -> str:
    value = _value(cell, row[cell], moment) if isinstance(cell, str) else cell(row)
    return "" if value is None else str(value)


def _value(name: str, value: Any, of_time: Callable[[datetime], str] | None = None) -> Any:
    if isinstance(value, datetime):
        return of_time(value) if of_time else value.astimezone(UTC).isoformat()
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    return _FORMATS[name](value) if isinstance(value, int) and name in _FORMATS else value
