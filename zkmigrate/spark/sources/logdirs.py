"""Kafka's log directories as a Spark table, ``spark.read.format("kafkalogdir").load(DIR)``; its columns are
SEGMENTS.

DIR is one of a broker's ``log.dirs`` or a copy of it, live ones too. Option: ``broker`` a name for all rows;
else the id in meta.properties, else the directory's name. The driver lists DIR, tasks list the partitions'
folders. What cannot be read is a row with `corrupt`: the sizes of all else still count."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from zkmigrate.errors import UsageError
from zkmigrate.hosts.facts.properties import parse_properties
from zkmigrate.spark.sources.files import Entry, entries
from zkmigrate.spark.sources.options import OptionReader, OwnSchemaSource
from zkmigrate.spark.sources.segments import LATEST_MS, Folder, Segment, folder, read_segment, segment

_TIME = pa.timestamp("us", tz="UTC")
SEGMENTS = pa.schema([
    ("broker", pa.string()), ("dir", pa.string()), ("folder", pa.string()), ("file", pa.string()),
    ("topic", pa.string()), ("partition", pa.int32()), ("state", pa.string()), ("base_offset", pa.int64()),
    ("bytes", pa.int64()), ("record_bytes", pa.int64()), ("rest", pa.string()), ("first_timestamp", _TIME),
    ("last_timestamp", _TIME), ("evidence", pa.string()), ("modified", _TIME), ("next_offset", pa.int64()),
    ("high_watermark", pa.int64()), ("log_start_offset", pa.int64()), ("corrupt", pa.string()),
])  # fmt: skip
"""Columns of a log directory: a row is a segment. What is not known is null.

state: current, deleted, future or stray, by the folder's name; deleted also for a segment that retention is
about to remove. bytes: of the file; record_bytes: up to the end of its last whole batch; rest: what follows:
zeros (preallocated) or torn (cut off, or being written now). first_timestamp: of the first batch;
last_timestamp: the newest of all; evidence: its source: batches (headers up to the end), timeindex (its last
entry: the offset index leads too far from the end) or modified (no header tells; the file's last change).
next_offset: after the last whole batch. high_watermark, log_start_offset: from the directory's checkpoints.
corrupt: what could not be read, or the name of a foreign file or folder."""

META = "meta.properties"
_HIGH_WATERMARK, _LOG_START = "replication-offset-checkpoint", "log-start-offset-checkpoint"
_FOLDERS = 64
"""Partitions' folders that one task reads."""
_IDS = ("node.id", "broker.id")
_OWN = re.compile(
    r"\d{20}\.(index|timeindex|txnindex|snapshot)(\.\w+)?|\d{20}\.log\.(cleaned|swap)"
    r"|\d{20}-\d{10}\.checkpoint(\.\w+)?|leader-epoch-checkpoint(\.tmp)?|partition\.metadata(\.tmp)?"
    r"|quorum-state(\.tmp)?|\.kafka_cleanshutdown"
)
"""Kafka's other files in a partition's folder."""
_NOT_KAFKAS = ("lost+found",)


@dataclass(frozen=True)
class Part:
    """Folders of one directory that one task reads."""

    broker: str
    dir: str
    folders: tuple[str, ...]


class LogDirSource(OwnSchemaSource):
    """The data source kafkalogdir."""

    format = "kafkalogdir"
    choice_of_columns = "and select what you want"

    def arrow_schema(self) -> pa.Schema:
        return SEGMENTS

    def reader(self, schema: StructType) -> LogDirReader:
        self.refuse_other(schema)
        given = OptionReader(self.options)
        paths, broker = given.paths(), given.text("broker")
        given.end()
        return LogDirReader(paths, broker)


class LogDirReader(DataSourceReader):
    """Lists the directories on the driver, the folders in tasks."""

    def __init__(self, paths: Sequence[str], broker: str) -> None:
        self.paths, self.broker = paths, broker

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(part) for path in self.paths for part in parts(path, self.broker)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        part = partition.value
        assert isinstance(part, Part)
        watermarks = checkpoint(part.dir, _HIGH_WATERMARK)
        starts = checkpoint(part.dir, _LOG_START)
        for name in part.folders:
            found = _rows(part, name, watermarks, starts)
            rows = [{key: _fit(value) for key, value in row.items()} for row in found]
            yield pa.RecordBatch.from_pylist(rows, schema=SEGMENTS)


def parts(path: str, broker: str) -> list[Part]:
    """A directory cut into tasks' shares. broker: its name, empty for what the directory says. Raises
    UsageError for another directory."""
    needed = "Needed: one of a broker's log.dirs, or a copy of it"
    try:
        found = entries(path)
        meta = next((one for one in found if one.name == META), None)
        known = _id(meta) if meta and not broker else ""
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}. {needed}") from error
    folders = [one.name for one in found if one.folder and one.name not in _NOT_KAFKAS]
    if meta is None and not any(map(folder, folders)):
        raise UsageError(f"{path} holds neither {META} nor a folder TOPIC-N. {needed}")
    name = broker or known or posixpath.basename(path.rstrip("/")) or path
    shares = range(0, max(1, len(folders)), _FOLDERS)
    return [Part(name, path, tuple(folders[at : at + _FOLDERS])) for at in shares]


def _id(meta: Entry) -> str:
    """The broker's id; empty where the file does not say."""
    known = parse_properties(_text(meta))
    return next((known[key].strip() for key in _IDS if known.get(key, "").strip()), "")


def checkpoint(path: str, name: str) -> dict[tuple[str, int], int]:
    """Offsets by topic and partition of one of the directory's checkpoints; none where it is missing, and
    without the lines that are no offset."""
    file = Entry(name, f"{path.rstrip('/')}/{name}", 0, False, None)
    try:
        lines = _text(file).splitlines()
    except OSError:
        return {}
    found: dict[tuple[str, int], int] = {}
    for line in lines[2:]:  # after the format's version and the number of lines
        words = line.split(" ")
        if len(words) == 3 and words[1].isdecimal() and words[2].isdecimal():
            found[(words[0], int(words[1]))] = int(words[2])
    return found


def _text(file: Entry) -> str:
    reader = file.reader()
    return reader.read(0, reader.size()).decode("utf-8", "replace")


def _rows(
    part: Part, name: str, watermarks: Mapping[tuple[str, int], int], starts: Mapping[tuple[str, int], int]
) -> list[dict[str, object]]:
    """The rows of one folder. A live broker removes files meanwhile: they have none."""
    common: dict[str, object] = {"broker": part.broker, "dir": part.dir, "folder": name}
    known = folder(name)
    if known is None:
        return [{**common, "corrupt": f"folder {name}: no partition's"}]
    key = (known.topic, known.partition)
    common |= {"topic": known.topic, "partition": known.partition, "state": known.state}
    if known.state == "current":
        common |= {"high_watermark": watermarks.get(key), "log_start_offset": starts.get(key)}
    try:
        found = {one.name: one for one in entries(f"{part.dir.rstrip('/')}/{name}")}
    except FileNotFoundError:
        return []
    except OSError as error:
        return [{**common, "corrupt": f"folder {name} cannot be listed: {error.strerror or error}"}]
    rows = [common | row for one in found.values() if (row := _row(one, found, known)) is not None]
    if not any(row.get("base_offset") is not None for row in rows):
        rows.append({**common, "corrupt": f"folder {name} holds no segment"})
    return rows


def _row(one: Entry, beside: Mapping[str, Entry], known: Folder) -> dict[str, object] | None:
    """A file's own columns; None for Kafka's other files and for a vanished one."""
    named = None if one.folder else segment(one.name)
    if named is None:
        foreign = f"{one.name}: no file of a partition"
        row: dict[str, object] = {"file": one.name, "state": None, "bytes": one.size, "corrupt": foreign}
        return None if _OWN.fullmatch(one.name) else row
    base_offset, deleted = named
    tail = ".deleted" if deleted else ""
    stem = f"{base_offset:020}"
    index, times = (beside.get(f"{stem}.{kind}{tail}") for kind in ("index", "timeindex"))
    try:
        found = read_segment(
            one.reader(), base_offset, index.reader() if index else None, times.reader() if times else None
        )
    except FileNotFoundError:
        return None
    except OSError as error:
        found = Segment(corrupt=f"{one.name} cannot be read: {error.strerror or error}")
    modified = None if one.modified is None else round(min(max(one.modified, 0) * 1000, LATEST_MS))
    written = found.last_ms if found.last_ms is not None else modified if one.size else None
    return {
        "file": one.name,
        "state": "deleted" if deleted else known.state,
        "base_offset": base_offset,
        "bytes": max(one.size, found.end or 0),  # it may have grown since it was listed
        "record_bytes": found.end,
        "rest": found.rest or None,
        "first_timestamp": _micros(found.first_ms),
        "last_timestamp": _micros(written),
        "evidence": found.evidence or ("modified" if written is not None else None),
        "modified": _micros(modified),
        "next_offset": found.next_offset,
        "corrupt": f"{one.name}: {found.corrupt}" if found.corrupt else None,
    }


def _fit(value: object) -> object:
    """A name that is not UTF-8 with marks for what no Arrow string may hold."""
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else value


def _micros(ms: int | None) -> int | None:
    return None if ms is None else ms * 1000
