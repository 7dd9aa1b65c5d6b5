"""ZooKeeper's logs and snapshots, and Kafka's log directories, as Spark tables. `register` makes them known
to a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make ``spark.read.format("zktxnlog")``, ``"zksnapshot"`` and ``"kafkalogdir"`` known."""
    from zkmigrate.spark.sources.logdirs import LogDirSource
    from zkmigrate.spark.sources.snapshots import SnapshotSource
    from zkmigrate.spark.sources.source import TxnLogSource

    spark.dataSource.register(TxnLogSource)
    spark.dataSource.register(SnapshotSource)
    spark.dataSource.register(LogDirSource)
