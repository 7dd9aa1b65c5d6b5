"""The log's rows as tuples: what a Spark data source gives that knows nothing of Arrow. They are read as
`zktxnlog` reads them; only how they are handed to Spark differs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from zkmigrate.spark.sources.source import TxnLogSource
from zkmigrate.spark.sources.txnlog import TxnLogReader, parse_options


class TupleReader(TxnLogReader):
    """Each batch is taken apart."""

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        for batch in super().read(partition):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


class TupleSource(TxnLogSource):
    """The data source zktuples."""

    format = "zktuples"

    def reader(self, schema: StructType) -> TupleReader:
        del schema  # it is that of zktxnlog
        return TupleReader(parse_options(self.options))
