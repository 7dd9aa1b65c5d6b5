"""List the partition directories on a broker's disks, including those that Kafka has set aside."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.look import Look

_DIRECTORY = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]+)-(?P<number>\d+)(\.[0-9a-f]{32}-(?P<mark>delete|future|stray))?"
)


@dataclass(frozen=True)
class Directory:
    """One partition's directory on a disk.

    path: absolute path. number: number of the partition. mark: ``delete``, ``future`` or ``stray``, else
    empty. size: bytes. changed_s: seconds since the epoch; None if only the broker reported the directory.
    """

    path: str
    topic: str
    number: int
    mark: str
    size: int
    changed_s: float | None


def directories(look: Look, host: str, folders: Iterable[str]) -> Reading[tuple[Directory, ...]]:
    """Return the partition directories in a broker's log directories, without their sizes.

    folders: the log directories.
    """
    found = []
    for folder in folders:
        listed = look.listing(host, folder)
        if not isinstance(listed, Seen):
            return listed
        for entry in listed.value:
            parsed = _DIRECTORY.fullmatch(entry.name)
            if entry.kind == "d" and parsed is not None:
                changed_s = None if entry.changed_ns is None else entry.changed_ns / 1e9
                name, mark = (parsed["topic"], int(parsed["number"])), parsed["mark"] or ""
                found.append(Directory(f"{folder}/{entry.name}", *name, mark, 0, changed_s))
    return Seen(tuple(found))
