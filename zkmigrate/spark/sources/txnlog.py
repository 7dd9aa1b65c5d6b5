"""Transaction logs as a Spark table, ``spark.read.format("zktxnlog").load(PATH)``; its columns are
`columns.SCHEMA`.

``spark.readStream`` follows live logs; see `following`.

Options: ``mode`` failfast (default) or permissive; ``columns`` those that are wanted, with commas between;
``data`` true to have the data where they are not named; ``server`` a name for all rows; ``splitMB`` megabytes
that one task reads, 256, of a long log or of several short ones, 0 for a task to each log; ``maxRecord``
bytes. Which rows: ``fromZxid``, ``toZxid``, ``since``, ``until``, ``types``, ``pathPrefix``; logs and parts
of logs are left out by zxid, rows by all of them before they become Arrow.

With ``pushdown`` true Spark's own filters on these columns do the same. It is off because Spark 4.3.0 keeps
what the last query of a DataFrame pushed down: a second query of the same DataFrame without a filter, or a
join of two filters of it, then lacks rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from zkmigrate.errors import UsageError
from zkmigrate.spark.sources.arrays import one_row
from zkmigrate.spark.sources.columns import ALL, SCHEMA, Stretch, Wanted, table
from zkmigrate.spark.sources.files import File, files
from zkmigrate.spark.sources.filters import narrowed
from zkmigrate.spark.sources.options import OptionReader
from zkmigrate.spark.sources.stretches import Part, Stretches, find, parts, span
from zkmigrate.zookeeper.data.errors import MalformedError, ZkDataError
from zkmigrate.zookeeper.data.tail import data_end
from zkmigrate.zookeeper.data.txn import TxnType
from zkmigrate.zookeeper.data.txnlog import FILE_HEADER_SIZE, MAX_RECORD, log_zxid

SPLIT_MB = 256
"""Each task costs Spark some 0.06 s, in which 10 MB of small writes can be read."""
_WORTH_SEARCHING = 32 << 20
"""A log shorter than this is read whole sooner than its place is searched for."""


@dataclass(frozen=True)
class Options:
    """As the module says."""

    paths: tuple[str, ...]
    server: str = ""
    permissive: bool = False
    split: int = SPLIT_MB << 20
    max_record: int = MAX_RECORD
    wanted: Wanted = ALL
    pushdown: bool = False


def parse_options(given: Mapping[str, str]) -> Options:
    """Raises UsageError."""
    from_spark = OptionReader(given)
    found = take_options(from_spark)
    found = replace(found, pushdown=from_spark.flag("pushdown"))
    from_spark.end()
    return found


def take_options(given: OptionReader) -> Options:
    """Those that following a log has as well. Raises UsageError."""
    permissive = given.choice("mode", ("failfast", "permissive")) == "permissive"
    return Options(
        given.paths(),
        given.text("server", ""),
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
    """Types by their names; None for none given."""
    unknown = [name for name in names if name not in TxnType.__members__]
    if unknown:
        possible = ", ".join(TxnType.__members__)
        raise UsageError(f"types {', '.join(unknown)}. Possible: {possible}")
    return frozenset(int(TxnType[name]) for name in names) or None


@dataclass(frozen=True)
class Portion:
    """A part of a log."""

    file: File
    part: Part

    @property
    def size(self) -> int:
        """Bytes, with what the server keeps in advance behind the log's end."""
        return (self.file.size if self.part.stop is None else self.part.stop) - self.part.start


class Portions(InputPartition):
    """What one task reads, in this order."""

    def __init__(self, portions: Sequence[Portion]) -> None:
        super().__init__(tuple(portions))
        self.portions = tuple(portions)


def packed(portions: Iterable[Portion], size: int) -> list[Portions]:
    """In tasks of up to so many bytes each, in order; a portion that is larger has one of its own. 0: so has
    each."""
    found: list[list[Portion]] = []
    room = 0
    for portion in portions:
        if not found or portion.size > room:
            found.append([])
            room = size
        found[-1].append(portion)
        room -= portion.size
    return [Portions(one) for one in found]


Keep: TypeAlias = Callable[[File, Part, Stretches], Iterable[Stretch]]


class TxnLogReader(DataSourceReader):
    """Plans on the driver, reads in tasks."""

    kept: Keep | None = None
    """Set by a process that reads the same logs several times."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.wanted = options.wanted

    def partitions(self) -> Sequence[Portions]:
        found = files(self.options.paths, self.options.server, lambda name: log_zxid(name) is not None)
        portions = (
            Portion(file, part)
            for file, following in _followed(found)
            for part in self._parts(file, following)
        )
        return packed(portions, self.options.split)

    def _parts(self, file: File, following: int | None) -> list[Part]:
        """What there is to read of a log. following: the zxid with which the next log begins."""
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
        assert isinstance(partition, Portions)
        for portion in partition.portions:
            yield from rows(portion, self.wanted, self.options, self.kept)


class PushedTxnLogReader(TxnLogReader):
    """One whose DataFrame is for a single query, as the module says."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """All of them are given back: Spark looks at the rows again."""
        for one in filters:
            self.wanted = narrowed(self.wanted, one)
        return filters


def _followed(found: Sequence[File]) -> Iterator[tuple[File, int | None]]:
    """Each log with the first zxid of the next one of the same directory."""
    by_folder: dict[str, list[File]] = {}
    for file in found:
        by_folder.setdefault(file.path[: -len(file.name)], []).append(file)
    for logs in by_folder.values():
        logs.sort(key=lambda file: log_zxid(file.name) or 0)
        following = [log_zxid(file.name) for file in logs[1:]]
        yield from zip(logs, [*following, None], strict=True)


def rows(
    portion: Portion, wanted: Wanted, options: Options, kept: Keep | None = None
) -> Iterator[pa.RecordBatch]:
    """The wanted rows of a part. Raises ZkDataError; permissive: a row with `corrupt` instead, and on
    behind it. kept: gives the stretches of a log that it has, else keeps those that it is given."""
    file, part = portion.file, portion.part
    reader = file.reader()
    while True:
        stretches = Stretches(reader, file.server, part, max_record=options.max_record)
        try:
            for stretch in stretches if kept is None else kept(file, part, stretches):
                if stretch.zxids[0] > wanted.zxids[1]:
                    return
                yield from _tables(stretch, wanted, options.permissive)
            return
        except ZkDataError as error:
            if not options.permissive:
                raise
            yield _corrupt(wanted.schema, file, error, stretches.offset)
            stop = data_end(reader) if part.stop is None else part.stop
            found = find(reader, max(stretches.offset, FILE_HEADER_SIZE) + 1, stop)
            if found is None:
                return
            part = replace(part, start=found[0])


def _tables(stretch: Stretch, wanted: Wanted, permissive: bool) -> Iterator[pa.RecordBatch]:
    """A stretch as a table; permissive: in two, and two again, around what cannot be decoded."""
    try:
        batch = table(stretch, wanted)
    except MalformedError as error:
        if not permissive:
            raise
        half = len(stretch.starts) // 2
        if not half:
            yield _corrupt_in(wanted.schema, stretch, error)
            return
        for starts in (stretch.starts[:half], stretch.starts[half:]):
            yield from _tables(replace(stretch, starts=starts), wanted, permissive)
        return
    if batch.num_rows:
        yield batch


def _corrupt(schema: pa.Schema, file: File, error: ZkDataError, offset: int) -> pa.RecordBatch:
    at = offset if error.offset is None else error.offset
    return one_row(schema, server=file.server, file=file.name, offset=at, corrupt=str(error))


def _corrupt_in(schema: pa.Schema, stretch: Stretch, error: MalformedError) -> pa.RecordBatch:
    at = stretch.base + stretch.starts[0]
    return one_row(schema, server=stretch.server, file=stretch.file, offset=at, corrupt=str(error))
