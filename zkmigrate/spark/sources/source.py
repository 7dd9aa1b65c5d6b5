"""The data source of the name zktxnlog: logs as they lie there (`txnlog`), or followed (`following`)."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from zkmigrate.errors import UsageError
from zkmigrate.spark.sources.following import FollowingReader, parse_stream_options
from zkmigrate.spark.sources.options import OptionReader
from zkmigrate.spark.sources.txnlog import (
    Options,
    PushedTxnLogReader,
    TxnLogReader,
    parse_options,
    take_options,
)


class TxnLogSource(DataSource):
    """The data source of the name zktxnlog."""

    @classmethod
    def name(cls) -> str:
        return "zktxnlog"

    def schema(self) -> StructType:
        return from_arrow_schema(self.arrow_schema())

    def arrow_schema(self) -> pa.Schema:
        """Of the batches that `reader` gives."""
        return take_options(OptionReader(self.options)).wanted.schema

    def reader(self, schema: StructType) -> TxnLogReader:
        options = parse_options(self.options)
        _refuse_other(schema, options)
        return PushedTxnLogReader(options) if options.pushdown else TxnLogReader(options)

    def streamReader(self, schema: StructType) -> FollowingReader:
        stream = parse_stream_options(self.options)
        _refuse_other(schema, stream.options)
        return FollowingReader(stream)


def _refuse_other(schema: StructType, options: Options) -> None:
    if schema.fieldNames() != options.wanted.schema.names:
        raise UsageError("zktxnlog has its own schema. Needed: no schema(...), but the option columns")
