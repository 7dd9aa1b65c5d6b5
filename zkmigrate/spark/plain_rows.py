"""Rows of Spark as plain values."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from zkmigrate.zookeeper.data.session import format_session
from zkmigrate.zookeeper.data.zxid import format_zxid

if TYPE_CHECKING:
    from pyspark.sql import Row

_ZXIDS = ("zxid", "czxid", "mzxid", "pzxid")
_SESSIONS = ("session", "ephemeral_owner")


def plain(row: Row) -> dict[str, Any]:
    """For JSON: zxids and sessions in hexadecimal, as everywhere, times as ISO 8601 in UTC."""
    return {name: _value(name, value) for name, value in row.asDict(recursive=True).items()}


def moment(at: datetime | None) -> str:
    """A time for people, in UTC; Spark's own have no zone and are in that of this process."""
    return "" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def _value(name: str, value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    if isinstance(value, int) and name in _ZXIDS:
        return format_zxid(value)
    if isinstance(value, int) and name in _SESSIONS:
        return format_session(value)
    return value
