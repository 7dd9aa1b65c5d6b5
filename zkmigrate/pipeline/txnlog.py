"""Transaction logs as a Spark table, ``spark.read.format("zktxnlog").load(PATH)``; its columns are
`columns.SCHEMA`.

``spark.readStream`` follows live logs; see `following`.

Options: ``mode`` failfast (default) or permissive; ``data`` true to have the data; ``server`` a name for
all rows; ``splitMB`` megabytes of a log to one task, 256, 0 for whole logs; ``maxRecord`` bytes. Which rows:
``fromZxid``, ``toZxid``, ``since``, ``until``, ``types``, ``pathPrefix``; logs and parts of logs are left out
by zxid, rows by all of them before they become Arrow.

With ``pushdown`` true Spark's own filters on these columns do the same. It is off because Spark 4.3.0 keeps
what the last query of a DataFrame pushed down: a second query of the same DataFrame without a filter, or a
join of two filters of it, then lacks rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from zkmigrate.errors import UsageError
from zkmigrate.pipeline.columns import ALL, SCHEMA, Stretch, Wanted, one_row, table
from zkmigrate.pipeline.files import File, files
from zkmigrate.pipeline.filters import narrowed
from zkmigrate.pipeline.options import Given
from zkmigrate.pipeline.stretches import Part, Stretches, find, from_zxid, parts
from zkmigrate.zkdata.errors import MalformedError, ZkDataError
from zkmigrate.zkdata.tail import data_end
from zkmigrate.zkdata.txn import TxnType
from zkmigrate.zkdata.txnlog import FILE_HEADER_SIZE, MAX_RECORD, log_zxid

if TYPE_CHECKING:
    from zkmigrate.pipeline.following import FollowingReader

_SPLIT_MB = 256
_WORTH_SEARCHING = 32 << 20
"""A log shorter than this is read whole sooner than its place is searched for."""


@dataclass(frozen=True)
class Options:
    """As the module says."""

    paths: tuple[str, ...]
    server: str = ""
    permissive: bool = False
    split: int = _SPLIT_MB << 20
    max_record: int = MAX_RECORD
    wanted: Wanted = ALL
    pushdown: bool = False


def parse_options(given: Mapping[str, str]) -> Options:
    """Raises UsageError."""
    from_spark = Given(given)
    found = take_options(from_spark)
    found = replace(found, pushdown=from_spark.flag("pushdown"))
    from_spark.end()
    return found


def take_options(given: Given) -> Options:
    """Those that following a log has as well. Raises UsageError."""
    return Options(
        given.paths(),
        given.text("server", ""),
        given.choice("mode", ("failfast", "permissive")) == "permissive",
        given.number("splitMB", _SPLIT_MB) << 20,
        given.number("maxRecord", MAX_RECORD),
        Wanted(
            given.flag("data"),
            (given.zxid("fromZxid", ALL.zxids[0]), given.zxid("toZxid", ALL.zxids[1])),
            (given.millis("since", ALL.times_ms[0]), given.millis("until", ALL.times_ms[1])),
            _kinds(given.text("types", "")),
            given.prefix("pathPrefix"),
        ),
    )


def _kinds(text: str) -> frozenset[int] | None:
    """Types by their names with commas between; None for none given."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in TxnType.__members__]
    if unknown:
        possible = ", ".join(TxnType.__members__)
        raise UsageError(f"types {', '.join(unknown)}. Possible: {possible}")
    return frozenset(int(TxnType[name]) for name in names) or None


@dataclass
class Portion(InputPartition):
    """What one task reads."""

    file: File
    part: Part

    def __init__(self, file: File, part: Part) -> None:
        super().__init__((file, part))
        self.file, self.part = file, part


class TxnLogSource(DataSource):
    """The data source of the name zktxnlog."""

    @classmethod
    def name(cls) -> str:
        return "zktxnlog"

    def schema(self) -> StructType:
        return from_arrow_schema(SCHEMA)

    def reader(self, schema: StructType) -> TxnLogReader:
        _refuse_other(schema)
        options = parse_options(self.options)
        return PushedTxnLogReader(options) if options.pushdown else TxnLogReader(options)

    def streamReader(self, schema: StructType) -> FollowingReader:
        from zkmigrate.pipeline.following import FollowingReader, parse_asked  # it imports this module

        _refuse_other(schema)
        return FollowingReader(parse_asked(self.options))


def _refuse_other(schema: StructType) -> None:
    if schema.fieldNames() != SCHEMA.names:
        raise UsageError("zktxnlog has its own schema. Needed: no schema(...); select what you want")


class TxnLogReader(DataSourceReader):
    """Plans on the driver, reads in tasks."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.wanted = options.wanted

    def partitions(self) -> Sequence[Portion]:
        found = files(self.options.paths, self.options.server, lambda name: log_zxid(name) is not None)
        return [
            Portion(file, part)
            for file, following in _followed(found)
            for part in self._parts(file, following)
        ]

    def _parts(self, file: File, following: int | None) -> list[Part]:
        """What there is to read of a log. following: the zxid with which the next log begins."""
        low, high = self.wanted.zxids
        first = log_zxid(file.name) or 0
        if first > high or (following is not None and following <= low) or file.size <= FILE_HEADER_SIZE:
            return []
        reader = file.reader()
        if low > first and file.size > _WORTH_SEARCHING:
            return [Part(file.name, from_zxid(reader, low))]
        return parts(reader, file.name, self.options.split)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Portion)
        yield from rows(partition.file, partition.part, self.wanted, self.options)


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


def rows(file: File, part: Part, wanted: Wanted, options: Options) -> Iterator[pa.RecordBatch]:
    """The wanted rows of a part. Raises ZkDataError; permissive: a row with `corrupt` instead, and on
    behind it."""
    reader = file.reader()
    while True:
        stretches = Stretches(reader, file.server, part, max_record=options.max_record)
        try:
            for stretch in stretches:
                if stretch.zxids[0] > wanted.zxids[1]:
                    return
                yield from _tables(stretch, wanted, options.permissive)
            return
        except ZkDataError as error:
            if not options.permissive:
                raise
            yield _corrupt(file, error, stretches.offset)
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
            yield _corrupt_in(stretch, error)
            return
        for starts in (stretch.starts[:half], stretch.starts[half:]):
            yield from _tables(replace(stretch, starts=starts), wanted, permissive)
        return
    if batch.num_rows:
        yield batch


def _corrupt(file: File, error: ZkDataError, offset: int) -> pa.RecordBatch:
    at = offset if error.offset is None else error.offset
    return one_row(SCHEMA, server=file.server, file=file.name, offset=at, corrupt=str(error))


def _corrupt_in(stretch: Stretch, error: MalformedError) -> pa.RecordBatch:
    at = stretch.base + stretch.starts[0]
    return one_row(SCHEMA, server=stretch.server, file=stretch.file, offset=at, corrupt=str(error))
