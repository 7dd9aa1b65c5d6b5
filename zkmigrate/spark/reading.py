"""Read a table of logs or snapshots: a small table in this process, any other in Spark's tasks.

A Spark task that runs our code starts four Python processes, and each must import all modules. This process
has imported everything, and reads 100 MB in less time than those processes need to start. A table of one
partition also saves Spark every later shuffle.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from zkmigrate.errors import UsageError
from zkmigrate.spark.request import data_bytes
from zkmigrate.spark.session import READ_HERE
from zkmigrate.spark.sources import register
from zkmigrate.spark.sources.files import File
from zkmigrate.spark.sources.operations import Stretch
from zkmigrate.spark.sources.snapshots import SnapshotSource
from zkmigrate.spark.sources.source import TxnLogSource
from zkmigrate.spark.sources.stretches import Part, Stretches
from zkmigrate.spark.sources.txnlog import TxnLogReader
from zkmigrate.zookeeper.data.errors import ZkDataError

_SOURCES = (TxnLogSource, SnapshotSource)


class StretchCache:
    """A cache of the positions of records in logs that this process has read completely.

    Finding where records begin, with their checksums, takes most of the time of reading a table of few
    columns. Several threads may use the cache at once.
    """

    def __init__(self) -> None:
        self._logs: dict[str, list[Stretch]] = {}
        self._lock = threading.Lock()

    def __call__(self, file: File, part: Part, stretches: Stretches) -> Iterable[Stretch]:
        """Return the stretches of a part of a log, from the cache if the whole log is known.

        stretches: an iterator over the part that has not started yet. Raises the errors of this iterator.
        """
        if part != Part(file.name):
            return stretches
        with self._lock:
            known = self._logs.get(file.path)
        return self._storing(file.path, stretches) if known is None else known

    def _storing(self, path: str, stretches: Stretches) -> Iterator[Stretch]:
        """Yield the stretches one by one, and store them if the log has no damage."""
        seen = []
        for stretch in stretches:
            seen.append(stretch)
            yield stretch
        with self._lock:
            self._logs[path] = seen


def load(
    spark: SparkSession,
    source: str,
    found: Sequence[File],
    options: Mapping[str, str],
    cache: StretchCache | None = None,
) -> DataFrame:
    """Return the content of these files as a table.

    source, options: as for ``spark.read.format``. cache: shared by tables of the same logs. If a file cannot
    be read, PySparkException is raised where the table is used, no matter which process reads the file.
    """
    paths = [file.path for file in found]
    most = int(spark.conf.get(READ_HERE, "0") or 0)
    if (
        sum(map(data_bytes, found)) <= most
        and (table := _table(source, paths, options, most, cache)) is not None
    ):
        return local_frame(spark, table)
    return task_reader(spark, source).options(**options).load(paths)


def local_frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Return a table in this process's memory as a DataFrame of one partition."""
    # Spark 4.3.0 drops what follows an empty batch.
    batches = [batch for batch in table.to_batches() if batch.num_rows]
    # PySpark cannot take a column of lists from no batch at all.
    whole = batches or [pa.RecordBatch.from_pylist([], schema=table.schema)]
    return spark.createDataFrame(pa.Table.from_batches(whole, table.schema)).coalesce(1)


def task_reader(spark: SparkSession, source: str) -> DataFrameReader:
    """Return a DataFrameReader that reads one of our data sources in Spark's tasks.

    A session for small inputs does not register our data sources before this call.
    """
    register(spark)
    return spark.read.format(source)


def _table(
    source: str, paths: Sequence[str], options: Mapping[str, str], most: int, cache: StretchCache | None
) -> pa.Table | None:
    """Return the table if this process can read it; None if it is left to a Spark task.

    A task reads what takes more than `most` bytes, as a compressed snapshot may when it expands, and damaged
    files, because the task reports the damage.
    """
    made = next(one for one in _SOURCES if one.name() == source)({**options, "paths": json.dumps(paths)})
    schema = made.arrow_schema()
    batches: list[pa.RecordBatch] = []
    try:
        reader = made.reader(made.schema())
        if isinstance(reader, TxnLogReader):
            reader.cache, reader.options = cache, replace(reader.options, split=0)
        for partition in reader.partitions():
            for batch in reader.read(partition):
                batches.append(batch)
                most -= batch.nbytes
                if most < 0:
                    return None
    except (ZkDataError, UsageError, OSError):
        return None
    return pa.Table.from_batches(batches, schema)
