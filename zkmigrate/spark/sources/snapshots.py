"""Read snapshots as a Spark table, ``spark.read.format("zksnapshot").load(PATH)``.

The columns are `nodes.NODES`. The option ``table`` is nodes (default), or sessions with the columns
`nodes.SESSIONS`. ``mode`` is failfast (default), or permissive, which gives a row with the column `corrupt`
for a file that cannot be read. ``data`` true adds the znodes' data. ``columns`` names the columns, with
commas between. ``server`` is the server's name in all rows. ``maxRecord`` is the largest accepted record in
bytes. ``pathPrefix`` leaves out znodes with other paths early. One file is one task, because a snapshot can
only be read from its beginning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from zkmigrate.spark.sources.arrays import one_row
from zkmigrate.spark.sources.files import File, files
from zkmigrate.spark.sources.nodes import NODES, SESSIONS, SnapshotTable, Sought
from zkmigrate.spark.sources.options import OptionReader, OwnSchemaSource
from zkmigrate.zookeeper.data.errors import ZkDataError
from zkmigrate.zookeeper.data.snapname import snapshot_zxid
from zkmigrate.zookeeper.data.txnlog import MAX_RECORD


@dataclass(frozen=True)
class Options:
    """The options of the data source; the module's docstring describes them."""

    paths: tuple[str, ...]
    server: str = ""
    permissive: bool = False
    data: bool = False
    sessions: bool = False
    schema: pa.Schema = NODES
    max_record: int = MAX_RECORD
    prefix: str = ""


def parse_options(text: Mapping[str, str]) -> Options:
    """Parse the options of the data source. Raises UsageError."""
    given = OptionReader(text)
    permissive = given.choice("mode", ("failfast", "permissive")) == "permissive"
    sessions = given.choice("table", ("nodes", "sessions")) == "sessions"
    found = Options(
        given.paths(),
        given.text("server"),
        permissive,
        given.data(),
        sessions,
        given.columns(SESSIONS if sessions else NODES, permissive),
        given.number("maxRecord", MAX_RECORD),
        given.prefix("pathPrefix"),
    )
    given.end()
    return found


class SnapshotSource(OwnSchemaSource):
    """The data source zksnapshot."""

    format = "zksnapshot"

    def arrow_schema(self) -> pa.Schema:
        return parse_options(self.options).schema

    def reader(self, schema: StructType) -> SnapshotReader:
        options = parse_options(self.options)
        self.refuse_other(schema)
        return SnapshotReader(options)


class SnapshotReader(DataSourceReader):
    """A reader that lists files on the driver and reads them in tasks."""

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
            known = {"server": file.server, "file": file.name, "zxid": zxid, "corrupt": str(error)}
            yield one_row(self.options.schema, **known)
