"""Log cursors that SURVEY recorded: from there on a disk is read inside the window, not from its start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zkmigrate.model.step import Context
from zkmigrate.zkdata.txnlog import Cursor


def to_json(cursor: Cursor | None) -> dict[str, Any] | None:
    """A cursor as a journal record."""
    return (
        None if cursor is None else {"file": cursor.file, "offset": cursor.offset, "zxid": hex(cursor.zxid)}
    )


def from_json(body: Mapping[str, Any] | None) -> Cursor | None:
    """Inverse of :func:`to_json`."""
    return None if body is None else Cursor(body["file"], body["offset"], int(body["zxid"], 16))


def cursor_of(c: Context, host: str) -> Cursor | None:
    """The cursor SURVEY recorded for a host; None when it had no log record yet."""
    return from_json(c.records.get("survey", {}).get("cursors", {}).get(host))
