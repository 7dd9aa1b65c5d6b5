"""Log cursors that SURVEY recorded: from there on a disk is read inside the window, not from its start."""

from __future__ import annotations

from zkmigrate.model.step import Context
from zkmigrate.zkdata.txnlog import Cursor, cursor_from_json


def cursor_of(c: Context, host: str) -> Cursor | None:
    """The cursor SURVEY recorded for a host; None when it had no log record yet."""
    return cursor_from_json(c.records.get("survey", {}).get("cursors", {}).get(host))
