"""The directories of partitions on a broker's disks, and those that Kafka has set aside, by its host."""

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
    """A directory of a partition on a disk. path: whole. number: of the partition. mark: ``delete``,
    ``future`` or ``stray``, else empty. size: bytes. changed_s: seconds since the epoch; None where only the
    broker told of it."""

    path: str
    topic: str
    number: int
    mark: str
    size: int
    changed_s: float | None


def directories(look: Look, host: str, folders: Iterable[str]) -> Reading[tuple[Directory, ...]]:
    """Those in a broker's log directories, without their sizes."""
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
