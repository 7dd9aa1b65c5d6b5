"""Describe a broker's log directory as rows, one per segment, from its names, checkpoints and segments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from zkmigrate import java_properties
from zkmigrate.java_properties import PropertiesError
from zkmigrate.kafka.disks.segments import LATEST_MS, File, Folder, Segment, folder, segment

_TIME = pa.timestamp("us", tz="UTC")
SEGMENTS = pa.schema([
    ("broker", pa.string()), ("dir", pa.string()), ("folder", pa.string()), ("file", pa.string()),
    ("topic", pa.string()), ("partition", pa.int32()), ("state", pa.string()), ("base_offset", pa.int64()),
    ("bytes", pa.int64()), ("record_bytes", pa.int64()), ("rest", pa.string()), ("first_timestamp", _TIME),
    ("last_timestamp", _TIME), ("evidence", pa.string()), ("modified", _TIME), ("next_offset", pa.int64()),
    ("high_watermark", pa.int64()), ("log_start_offset", pa.int64()), ("corrupt", pa.string()),
])  # fmt: skip
"""The columns of a log directory's rows, one row per segment. An unknown value is null.

state: current, deleted, future or stray, by the folder's name; a segment that retention is about to remove is
also deleted. bytes: size of the file. record_bytes: size up to the end of its last whole batch. rest: what
follows: zeros (preallocated) or torn (cut off, or being written now). first_timestamp: of the first batch.
last_timestamp: the newest time of all batches. next_offset: the offset after the last whole batch.
high_watermark, log_start_offset: from the directory's checkpoints. corrupt: what could not be read, or the
name of a file or folder that is not Kafka's.

evidence: the source of last_timestamp: batches (headers up to the end), timeindex or modified. The time
index's last entry is used if the offset index ends too far from the end. The file's last change, modified,
is used if no header has a time.
"""

META = "meta.properties"
HIGH_WATERMARK, LOG_START = "replication-offset-checkpoint", "log-start-offset-checkpoint"
NEEDED = "Needed: one of a broker's log.dirs, or a copy of one"
_IDS = ("node.id", "broker.id")
_OWN = re.compile(
    r"\d{20}\.(index|timeindex|txnindex|snapshot)(\.\w+)?|\d{20}\.log\.(cleaned|swap)"
    r"|\d{20}-\d{10}\.checkpoint(\.\w+)?|leader-epoch-checkpoint(\.tmp)?|partition\.metadata(\.tmp)?"
    r"|quorum-state(\.tmp)?|\.kafka_cleanshutdown"
)
"""Kafka's other files in a partition's folder."""
_NOT_KAFKAS = ("lost+found",)

Offsets = Mapping[tuple[str, int], int]
"""Offsets by topic and partition."""


class Listed(Protocol):
    """One entry of a directory.

    size: bytes, for a file. modified: seconds since the epoch; None if the file system does not report it.
    """

    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def folder(self) -> bool: ...
    @property
    def modified(self) -> float | None: ...


def folders(entries: Iterable[Listed]) -> list[str]:
    """Return the names of the folders in a log directory that may belong to partitions."""
    return [one.name for one in entries if one.folder and one.name not in _NOT_KAFKAS]


def is_logdir(entries: Iterable[Listed]) -> bool:
    """Return whether a directory's entries look like those of a Kafka log directory."""
    found = list(entries)
    return any(one.name == META for one in found) or any(map(folder, folders(found)))


def broker_id(meta: str) -> str:
    """Return the broker id in the text of a ``meta.properties`` file; empty if it has none."""
    try:
        known = java_properties.parse(meta)
    except PropertiesError:
        return ""
    return next((known[key].strip() for key in _IDS if known.get(key, "").strip()), "")


def checkpoint(text: str) -> dict[tuple[str, int], int]:
    """Return the offsets in the text of a checkpoint file; malformed lines are skipped."""
    found: dict[tuple[str, int], int] = {}
    for line in text.splitlines()[2:]:  # after the format's version and the number of lines
        words = line.split(" ")
        if len(words) == 3 and words[1].isdecimal() and words[2].isdecimal():
            found[(words[0], int(words[1]))] = int(words[2])
    return found


@dataclass(frozen=True)
class SegmentFile:
    """A segment in a listed folder.

    deleted: whether it waits for its removal. indexes: the directory entries of its index files that exist.
    """

    name: str
    size: int
    modified_ms: int | None
    base_offset: int
    deleted: bool
    indexes: Mapping[File, Listed]

    @property
    def sizes(self) -> dict[File, int]:
        """The bytes of the log and of each index, by kind."""
        return {"log": self.size, **{kind: one.size for kind, one in self.indexes.items()}}

    def file(self, kind: File) -> str:
        """Return the file name of the log or of one index."""
        return self.name if kind == "log" else self.indexes[kind].name


def segment_files(entries: Iterable[Listed]) -> Iterator[SegmentFile]:
    """Yield the segments in the listing of a partition's folder."""
    beside = {one.name: one for one in entries}
    kinds: tuple[File, ...] = ("index", "timeindex")
    for one in beside.values():
        named = None if one.folder else segment(one.name)
        if named is not None:
            base_offset, deleted = named
            names = {kind: f"{base_offset:020}.{kind}{'.deleted' * deleted}" for kind in kinds}
            indexes = {kind: beside[name] for kind, name in names.items() if name in beside}
            yield SegmentFile(one.name, one.size, _milliseconds(one), base_offset, deleted, indexes)


def unreadable(error: OSError) -> str:
    """Return the text that says why something could not be read."""
    return f"cannot be read: {error.strerror or error}"


@dataclass(frozen=True)
class LogDir:
    """One log directory of a broker.

    watermarks, starts: the high watermarks and log start offsets from its checkpoints.
    """

    broker: str
    path: str
    watermarks: Offsets
    starts: Offsets

    def unlisted(self, name: str, error: OSError) -> dict[str, object]:
        """Return the row for a folder that cannot be listed."""
        return self._row(name, corrupt=f"folder {name} cannot be listed: {error.strerror or error}")

    def rows(
        self, name: str, entries: Iterable[Listed], found: Mapping[str, Segment]
    ) -> list[dict[str, object]]:
        """Return the rows of one folder.

        found: segments by file name, without those that a live broker has removed meanwhile.
        """
        known = folder(name)
        if known is None:
            return [self._row(name, corrupt=f"folder {name} does not belong to a partition")]
        entries = list(entries)
        segments = {one.name: one for one in segment_files(entries)}
        rows = []
        for one in entries:
            if one.name in found:
                rows.append(self._row(name, **_columns(segments[one.name], known, found[one.name])))
            elif one.name not in segments and not _OWN.fullmatch(one.name):
                why = f"{one.name}: not a file of a partition"
                rows.append(self._row(name, file=one.name, state=None, bytes=one.size, corrupt=why))
        if not any(row.get("base_offset") is not None for row in rows):
            rows.append(self._row(name, corrupt=f"folder {name} holds no segment"))
        return rows

    def _row(self, name: str, **own: object) -> dict[str, object]:
        row: dict[str, object] = {"broker": self.broker, "dir": self.path, "folder": name}
        if known := folder(name):
            row |= {"topic": known.topic, "partition": known.partition, "state": known.state}
            if known.state == "current":
                key = (known.topic, known.partition)
                row |= {"high_watermark": self.watermarks.get(key), "log_start_offset": self.starts.get(key)}
        return {key: _fit(value) for key, value in (row | own).items()}


def _columns(one: SegmentFile, known: Folder, found: Segment) -> dict[str, object]:
    written = found.last_ms if found.last_ms is not None else one.modified_ms if one.size else None
    return {
        "file": one.name,
        "state": "deleted" if one.deleted else known.state,
        "base_offset": one.base_offset,
        "bytes": max(one.size, found.end or 0),  # it may have grown since it was listed
        "record_bytes": found.end,
        "rest": found.rest or None,
        "first_timestamp": _micros(found.first_ms),
        "last_timestamp": _micros(written),
        "evidence": found.evidence or ("modified" if written is not None else None),
        "modified": _micros(one.modified_ms),
        "next_offset": found.next_offset,
        "corrupt": f"{one.name}: {found.corrupt}" if found.corrupt else None,
    }


def _milliseconds(one: Listed) -> int | None:
    return None if one.modified is None else round(min(max(one.modified, 0) * 1000, LATEST_MS))


def _fit(value: object) -> object:
    """Replace the characters of a name that no Arrow string may contain, because they are not UTF-8."""
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else value


def _micros(ms: int | None) -> int | None:
    return None if ms is None else ms * 1000
