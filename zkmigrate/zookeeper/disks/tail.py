"""The command ``zxid tail``: print the newest durable transaction of a directory."""

from __future__ import annotations

import json
from collections.abc import Callable

from zkmigrate.json_stamp import stamped
from zkmigrate.zookeeper.data.tail import Tail, newest
from zkmigrate.zookeeper.data.txnlog import MAX_RECORD
from zkmigrate.zookeeper.data.zxid import format_zxid
from zkmigrate.zookeeper.disks.location import Disks, Place, open_disk


def tail(
    disks: Disks,
    data: Place,
    log: Place | None,
    say: Callable[[str], None],
    *,
    jute_maxbuffer: int,
    quick: bool,
    as_json: bool,
) -> int:
    """Print the newest durable zxid, and return 0.

    jute_maxbuffer: the servers' limit in bytes. quick: do not verify the snapshot's seals (see ``newest``).
    Raises the errors of `open_disk`.
    """
    with open_disk(disks, data, log) as side:
        found = newest(
            side.data,
            side.logs if log else None,
            jute_maxbuffer=jute_maxbuffer,
            max_record=max(2 * (jute_maxbuffer + 1), MAX_RECORD),
            check=not quick,
        )
    say(json.dumps(stamped(body(found)), ensure_ascii=False) if as_json else text(found))
    return 0


def body(found: Tail) -> dict[str, object]:
    """Return the result as JSON values."""
    return {
        "zxid": format_zxid(found.zxid),
        "source": found.source,
        "file": found.file,
        "offset": found.offset,
        "torn": found.torn,
        "bytes_read": found.bytes_read,
        "reads": found.reads,
        "skipped": list(found.skipped),
        "strays": list(found.strays),
    }


def text(found: Tail) -> str:
    """Return the result as text for the operator: one line, and one more for each unusual finding."""
    where = f"{found.file} at offset {found.offset}" if found.source == "log" else found.file
    lines = [f"{format_zxid(found.zxid)} {where} ({found.bytes_read} bytes in {found.reads} reads)"]
    if found.torn:
        lines.append(
            "torn: the newest log ends in an incomplete write, as after a crash; that write is ignored"
        )
    if found.source == "snapshot":
        lines.append("no log contains this zxid, which is the one in the snapshot's name")
    if found.skipped:
        lines.append(f"skipped files without a usable record or content: {', '.join(found.skipped)}")
    if found.strays:
        lines.append(f"files that are not ZooKeeper's, or that it does not use: {', '.join(found.strays)}")
    return "\n".join(lines)
