"""The log's rows as tuples, as a Spark data source without Arrow yields them; read as `zktxnlog` reads
them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from zkmigrate.spark.sources.source import TxnLogSource
from zkmigrate.spark.sources.txnlog import TxnLogReader, parse_options


class TupleReader(TxnLogReader):
    """Yields the rows of each batch."""

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        for batch in super().read(partition):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


class TupleSource(TxnLogSource):
    """The data source zktuples."""

    format = "zktuples"

    def reader(self, schema: StructType) -> TupleReader:
        del schema  # that of zktxnlog
        return TupleReader(parse_options(self.options))
