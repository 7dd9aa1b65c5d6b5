"""Snapshots as a Spark table, ``spark.read.format("zksnapshot").load(PATH)``; its columns are
`nodes.NODES`.

Options: ``table`` nodes (default) or sessions, with the columns `nodes.SESSIONS`; ``mode`` failfast
(default) or permissive: a file that cannot be read is a row with `corrupt`; ``data`` true to have the data;
``columns`` those that are wanted, with commas between; ``server`` a name for all rows; ``maxRecord`` bytes;
``pathPrefix`` leaves out other znodes before they become Arrow, and so does a filter of Spark's with
``pushdown`` true (see `txnlog` for what that costs).
One file is one task: only from its beginning can a snapshot be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from zkmigrate.errors import UsageError
from zkmigrate.spark.sources.arrays import one_row
from zkmigrate.spark.sources.files import File, files
from zkmigrate.spark.sources.filters import longer_prefix
from zkmigrate.spark.sources.nodes import NODES, SESSIONS, SnapshotTable, Sought
from zkmigrate.spark.sources.options import OptionReader
from zkmigrate.zookeeper.data.errors import ZkDataError
from zkmigrate.zookeeper.data.snapname import snapshot_zxid
from zkmigrate.zookeeper.data.txnlog import MAX_RECORD


@dataclass(frozen=True)
class Options:
    """As the module says."""

    paths: tuple[str, ...]
    server: str = ""
    permissive: bool = False
    data: bool = False
    sessions: bool = False
    schema: pa.Schema = NODES
    max_record: int = MAX_RECORD
    prefix: str = ""
    pushdown: bool = False


def parse_options(given: Mapping[str, str]) -> Options:
    """Raises UsageError."""
    from_spark = OptionReader(given)
    permissive = from_spark.choice("mode", ("failfast", "permissive")) == "permissive"
    sessions = from_spark.choice("table", ("nodes", "sessions")) == "sessions"
    found = Options(
        from_spark.paths(),
        from_spark.text("server", ""),
        permissive,
        from_spark.data(),
        sessions,
        from_spark.columns(SESSIONS if sessions else NODES, permissive),
        from_spark.number("maxRecord", MAX_RECORD),
        from_spark.prefix("pathPrefix"),
        from_spark.flag("pushdown"),
    )
    from_spark.end()
    return found


class SnapshotSource(DataSource):
    """The data source of the name zksnapshot."""

    @classmethod
    def name(cls) -> str:
        return "zksnapshot"

    def schema(self) -> StructType:
        return from_arrow_schema(self.arrow_schema())

    def arrow_schema(self) -> pa.Schema:
        """Of the batches that `reader` gives."""
        return parse_options(self.options).schema

    def reader(self, schema: StructType) -> SnapshotReader:
        options = parse_options(self.options)
        if schema.fieldNames() != options.schema.names:
            raise UsageError("zksnapshot has its own schema. Needed: no schema(...), but the option columns")
        return PushedSnapshotReader(options) if options.pushdown else SnapshotReader(options)


class SnapshotReader(DataSourceReader):
    """Lists on the driver, reads in tasks."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.sought = Sought(options.data, options.prefix, options.schema)

    def partitions(self) -> Sequence[InputPartition]:
        found = files(self.options.paths, self.options.server, lambda name: snapshot_zxid(name) is not None)
        return [InputPartition(file) for file in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        file = partition.value
        assert isinstance(file, File)
        table = SnapshotTable(file.reader(), file.server, file.name, self.options.max_record)
        try:
            if self.options.sessions:
                yield table.sessions().select(self.options.schema.names)
            else:
                yield from table.nodes(self.sought)
        except ZkDataError as error:
            if not self.options.permissive:
                raise
            zxid = snapshot_zxid(file.name)
            yield one_row(
                self.options.schema, server=file.server, file=file.name, zxid=zxid, corrupt=str(error)
            )


class PushedSnapshotReader(SnapshotReader):
    """One whose DataFrame is for a single query."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """All of them are given back: Spark looks at the rows again."""
        for one in filters:
            self.sought = replace(self.sought, prefix=longer_prefix(self.sought.prefix, one))
        return filters
