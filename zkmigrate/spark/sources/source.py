"""Define the data source zktxnlog. The module `txnlog` reads the logs."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import StructType

from zkmigrate.spark.sources.options import OptionReader, OwnSchemaSource
from zkmigrate.spark.sources.txnlog import TxnLogReader, parse_options, take_options


class TxnLogSource(OwnSchemaSource):
    """The data source zktxnlog."""

    format = "zktxnlog"

    def arrow_schema(self) -> pa.Schema:
        return take_options(OptionReader(self.options)).wanted.schema

    def reader(self, schema: StructType) -> TxnLogReader:
        options = parse_options(self.options)
        self.refuse_other(schema)
        return TxnLogReader(options)
