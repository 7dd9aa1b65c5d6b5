"""Read Kafka's log directories as a Spark table, ``spark.read.format("kafkalogdir").load(DIR)``.

The columns are `SEGMENTS` of `zkmigrate.kafka.disks.logdir`. DIR is one of a broker's ``log.dirs``, also of a
running broker, or a copy of such a directory. The option ``broker`` is the broker's name in all rows; by
default it is the id in meta.properties, or without an id the directory's name. The driver lists DIR, and
tasks list the partitions' folders. A file or folder that cannot be read gives a row with the column
`corrupt`, so that the sizes of all other files are still counted.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from zkmigrate.errors import UsageError
from zkmigrate.kafka.disks.logdir import (
    HIGH_WATERMARK,
    LOG_START,
    META,
    NEEDED,
    SEGMENTS,
    LogDir,
    Offsets,
    broker_id,
    checkpoint,
    folders,
    is_logdir,
    segment_files,
    unreadable,
)
from zkmigrate.kafka.disks.segments import Segment, folder, read_segment
from zkmigrate.spark.sources.files import Entry, entries
from zkmigrate.spark.sources.options import OptionReader, OwnSchemaSource

_FOLDERS = 64
"""The number of partition folders that one task reads."""


@dataclass(frozen=True)
class Part:
    """The partition folders of one log directory that one task reads."""

    broker: str
    dir: str
    folders: tuple[str, ...]


class LogDirSource(OwnSchemaSource):
    """The data source kafkalogdir."""

    format = "kafkalogdir"
    choice_of_columns = "select columns afterwards"

    def arrow_schema(self) -> pa.Schema:
        return SEGMENTS

    def reader(self, schema: StructType) -> LogDirReader:
        self.refuse_other(schema)
        given = OptionReader(self.options)
        paths, broker = given.paths(), given.text("broker")
        given.end()
        return LogDirReader(paths, broker)


class LogDirReader(DataSourceReader):
    """A reader that lists directories on the driver and reads partition folders in tasks."""

    def __init__(self, paths: Sequence[str], broker: str) -> None:
        self.paths, self.broker = paths, broker

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(part) for path in self.paths for part in parts(path, self.broker)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        part = partition.value
        assert isinstance(part, Part)
        here = LogDir(
            part.broker, part.dir, _offsets(part.dir, HIGH_WATERMARK), _offsets(part.dir, LOG_START)
        )
        for name in part.folders:
            yield pa.RecordBatch.from_pylist(_rows(here, name), schema=SEGMENTS)


def parts(path: str, broker: str) -> list[Part]:
    """Divide a log directory into parts for the tasks.

    broker: the broker's name; "" to take the name from the directory. Raises UsageError if `path` is not a
    log directory.
    """
    try:
        found = entries(path)
        meta = next((one for one in found if one.name == META), None)
        known = broker_id(_text(meta)) if meta and not broker else ""
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}. {NEEDED}") from error
    if not is_logdir(found):
        raise UsageError(f"{path} has neither {META} nor a folder TOPIC-N. {NEEDED}")
    names = folders(found)
    name = broker or known or posixpath.basename(path.rstrip("/")) or path
    shares = range(0, max(1, len(names)), _FOLDERS)
    return [Part(name, path, tuple(names[at : at + _FOLDERS])) for at in shares]


def _offsets(path: str, name: str) -> Offsets:
    """Return the offsets in a checkpoint file of the directory; empty if the file is missing."""
    try:
        return checkpoint(_text(Entry(name, f"{path.rstrip('/')}/{name}", 0, False, None)))
    except OSError:
        return {}


def _text(file: Entry) -> str:
    reader = file.reader()
    return reader.read(0, reader.size()).decode("utf-8", "replace")


def _rows(here: LogDir, name: str) -> list[dict[str, object]]:
    """Return the rows of one folder. Files that a live broker removes meanwhile are left out."""
    try:
        inside = entries(f"{here.path.rstrip('/')}/{name}") if folder(name) else []
    except FileNotFoundError:
        return []
    except OSError as error:
        return [here.unlisted(name, error)]
    listed = {one.name: one for one in inside}
    found: dict[str, Segment] = {}
    for one in segment_files(inside):
        index, times = (
            listed[one.file(kind)].reader() if kind in one.indexes else None
            for kind in ("index", "timeindex")
        )
        try:
            found[one.name] = read_segment(listed[one.name].reader(), one.base_offset, index, times)
        except FileNotFoundError:
            continue
        except OSError as error:
            found[one.name] = Segment(corrupt=unreadable(error))
    return here.rows(name, inside, found)
