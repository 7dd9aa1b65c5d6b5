"""Names of snapshot files: `snapshot.<hex>`, with `.gz` or `.snappy` when compressed (3.6+)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from zkmigrate.zookeeper.data.reader import Directory

_NAME = re.compile(r"snapshot\.([0-9a-f]+)(?:\.(gz|snappy))?\Z")


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """A snapshot file.

    zxid: the zxid in the file's name, which is lastProcessedZxid when the dump began. size: in bytes.
    """

    name: str
    zxid: int
    size: int


def snapshot_zxid(name: str) -> int | None:
    """Return the zxid in a snapshot's name; None for any other name (`snapshot.5.tmp` included)."""
    match = _NAME.match(name)
    return int(match[1], 16) if match else None


def snapshot_codec(name: str) -> str:
    """Return the compression of a snapshot, by the end of its name: "", "gz" or "snappy"."""
    match = _NAME.match(name)
    return (match[2] or "") if match else ""


def snapshot_files(directory: Directory) -> tuple[SnapshotFile, ...]:
    """Return the snapshots of a directory, newest first."""
    found = [
        SnapshotFile(name, zxid, size)
        for name, size in directory.names_with_sizes().items()
        if size >= 0 and (zxid := snapshot_zxid(name)) is not None
    ]
    return tuple(sorted(found, key=lambda file: file.zxid, reverse=True))
