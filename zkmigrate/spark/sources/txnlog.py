"""Read transaction logs as a Spark table, ``spark.read.format("zktxnlog").load(PATH)``.

The columns are `columns.SCHEMA`. Options: ``mode`` is failfast (default) or permissive. ``columns`` names the
columns to read, with commas between. ``data`` true reads the znodes' data, also if ``columns`` does not name
it. ``server`` is the server's name in all rows. ``maxRecord`` is the largest accepted record in bytes.
``splitMB`` is how many megabytes one task reads, of a long log or of several short ones. The default is 256;
0 gives a task to each log.

Options that choose rows: ``fromZxid``, ``toZxid``, ``since``, ``until``, ``types``, ``pathPrefix``. The zxid
bounds leave out whole logs and parts of logs. All these options leave out rows before they are converted to
Arrow.

Spark's own filters do not reach the reader. PySpark 4.3.0 keeps the filters that a DataFrame's last query
pushed down, and later queries lose rows: `findings/spark_pushed_filters_stay.sh` shows that without our code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from zkmigrate.errors import UsageError
from zkmigrate.spark.sources.arrays import one_row
from zkmigrate.spark.sources.columns import table
from zkmigrate.spark.sources.files import File, files
from zkmigrate.spark.sources.operations import ALL, SCHEMA, Stretch, Wanted
from zkmigrate.spark.sources.options import OptionReader
from zkmigrate.spark.sources.stretches import Part, Stretches, find, parts, span
from zkmigrate.zookeeper.data.errors import MalformedError, ZkDataError
from zkmigrate.zookeeper.data.tail import data_end
from zkmigrate.zookeeper.data.txn import TxnType
from zkmigrate.zookeeper.data.txnlog import FILE_HEADER_SIZE, MAX_RECORD, log_zxid

SPLIT_MB = 256
"""The default size of a task in megabytes.

Each task costs Spark some 0.06 s, in which 10 MB of small writes can be read.
"""
_WORTH_SEARCHING = 32 << 20
"""The size in bytes up to which reading a whole log is faster than searching for a place in the log."""


@dataclass(frozen=True)
class Options:
    """The options of the data source; the module's docstring describes them. split: in bytes."""

    paths: tuple[str, ...]
    server: str = ""
    permissive: bool = False
    split: int = SPLIT_MB << 20
    max_record: int = MAX_RECORD
    wanted: Wanted = ALL


def parse_options(text: Mapping[str, str]) -> Options:
    """Parse the options of the data source. Raises UsageError."""
    given = OptionReader(text)
    found = take_options(given)
    given.end()
    return found


def take_options(given: OptionReader) -> Options:
    """Read the options without checking for unknown ones. Raises UsageError for a wrong value."""
    permissive = given.choice("mode", ("failfast", "permissive")) == "permissive"
    return Options(
        given.paths(),
        given.text("server"),
        permissive,
        given.number("splitMB", SPLIT_MB) << 20,
        given.number("maxRecord", MAX_RECORD),
        Wanted(
            given.data(),
            (given.zxid("fromZxid", ALL.zxids[0]), given.zxid("toZxid", ALL.zxids[1])),
            (given.millis("since", ALL.times_ms[0]), given.millis("until", ALL.times_ms[1])),
            _kinds(given.words("types")),
            given.prefix("pathPrefix"),
            given.columns(SCHEMA, permissive),
        ),
    )


def _kinds(names: Sequence[str]) -> frozenset[int] | None:
    """Return the codes of transaction types given by name; None if no name is given."""
    unknown = [name for name in names if name not in TxnType.__members__]
    if unknown:
        raise UsageError(
            f"there are no types {', '.join(unknown)}. Possible: {', '.join(TxnType.__members__)}"
        )
    return frozenset(int(TxnType[name]) for name in names) or None


@dataclass(frozen=True)
class Portion:
    """A part of a log, with the log's file."""

    file: File
    part: Part

    @property
    def size(self) -> int:
        """The size of the part in bytes, including the zeros that the server allocates ahead."""
        return (self.file.size if self.part.stop is None else self.part.stop) - self.part.start


class Portions(InputPartition):
    """The parts that one task reads, in this order."""

    def __init__(self, portions: Sequence[Portion]) -> None:
        super().__init__(tuple(portions))
        self.portions = tuple(portions)


def packed(portions: Iterable[Portion], size: int) -> list[Portions]:
    """Pack portions in order into tasks of up to `size` bytes each.

    A larger portion gets a task for itself. With a size of 0 each portion gets a task for itself.
    """
    found: list[list[Portion]] = []
    room = 0
    for portion in portions:
        if not found or portion.size > room:
            found.append([])
            room = size
        found[-1].append(portion)
        room -= portion.size
    return [Portions(one) for one in found]


Cache: TypeAlias = Callable[[File, Part, Stretches], Iterable[Stretch]]


class TxnLogReader(DataSourceReader):
    """A reader that plans the tasks on the driver and reads logs in the tasks."""

    cache: Cache | None = None
    """The cache, set by a process that reads the same logs several times; None for no cache."""

    def __init__(self, options: Options) -> None:
        self.options, self.wanted = options, options.wanted

    def partitions(self) -> Sequence[Portions]:
        found = files(self.options.paths, self.options.server, lambda name: log_zxid(name) is not None)
        portions = (
            Portion(file, part)
            for file, following in _followed(found)
            for part in self._parts(file, following)
        )
        return packed(portions, self.options.split)

    def _parts(self, file: File, following: int | None) -> list[Part]:
        """Return the parts of a log to read; none if the wanted zxids are not in this log.

        following: the first zxid of the next log, None for the last log.
        """
        low, high = self.wanted.zxids
        first = log_zxid(file.name) or 0
        if first > high or (following is not None and following <= low) or file.size <= FILE_HEADER_SIZE:
            return []
        reader, start, stop = file.reader(), FILE_HEADER_SIZE, None
        last = ALL.zxids[1] if following is None else following - 1
        if (low > first or high < last) and file.size > _WORTH_SEARCHING:
            start, stop = span(reader, (low, high), first)
        return parts(reader, file.name, self.options.split, start, stop)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Portions):
            return  # Spark 4.3.0 sends InputPartition(None) where `partitions` found nothing to read
        for portion in partition.portions:
            yield from rows(portion, self.wanted, self.options, self.cache)


def _followed(found: Sequence[File]) -> Iterator[tuple[File, int | None]]:
    """Yield each log with the first zxid of the next one in its directory."""
    by_folder: dict[str, list[File]] = {}
    for file in found:
        by_folder.setdefault(file.path[: -len(file.name)], []).append(file)
    for logs in by_folder.values():
        logs.sort(key=lambda file: log_zxid(file.name) or 0)
        yield from zip(logs, [*(log_zxid(file.name) for file in logs[1:]), None], strict=True)


def rows(
    portion: Portion, wanted: Wanted, options: Options, cache: Cache | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the wanted rows of a part of a log.

    Raises ZkDataError; in permissive mode a row with the column `corrupt` is yielded instead, and reading
    continues after the damage. cache: returns the stretches of logs that it holds, and stores those of other
    logs.
    """
    file, part = portion.file, portion.part
    reader = file.reader()
    while True:
        stretches = Stretches(reader, file.server, part, max_record=options.max_record)
        try:
            for stretch in stretches if cache is None else cache(file, part, stretches):
                if stretch.zxids[0] > wanted.zxids[1]:
                    return
                yield from _tables(stretch, wanted, options.permissive)
            return
        except ZkDataError as error:
            if not options.permissive:
                raise
            at = stretches.offset if error.offset is None else error.offset
            yield _corrupt(wanted.schema, file.server, file.name, at, error)
            stop = data_end(reader) if part.stop is None else part.stop
            found = find(reader, max(stretches.offset, FILE_HEADER_SIZE) + 1, stop)
            if found is None:
                return
            part = replace(part, start=found[0])


def _tables(stretch: Stretch, wanted: Wanted, permissive: bool) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a stretch.

    In permissive mode, a stretch that cannot be decoded is halved repeatedly, to isolate the bad record.
    """
    try:
        batch = table(stretch, wanted)
    except MalformedError as error:
        if not permissive:
            raise
        half = len(stretch.starts) // 2
        if not half:
            at = stretch.base + stretch.starts[0]
            yield _corrupt(wanted.schema, stretch.server, stretch.file, at, error)
            return
        for starts in (stretch.starts[:half], stretch.starts[half:]):
            yield from _tables(replace(stretch, starts=starts), wanted, permissive)
        return
    if batch.num_rows:
        yield batch


def _corrupt(schema: pa.Schema, server: str, file: str, offset: int, error: ZkDataError) -> pa.RecordBatch:
    return one_row(schema, server=server, file=file, offset=offset, corrupt=str(error))
