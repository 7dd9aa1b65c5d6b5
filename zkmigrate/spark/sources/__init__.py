"""Offer ZooKeeper's logs and snapshots, and Kafka's log directories, as Spark tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Register ``spark.read.format("zktxnlog")``, ``"zksnapshot"`` and ``"kafkalogdir"`` with a session."""
    from zkmigrate.spark.sources.logdirs import LogDirSource
    from zkmigrate.spark.sources.snapshots import SnapshotSource
    from zkmigrate.spark.sources.source import TxnLogSource

    spark.dataSource.register(TxnLogSource)
    spark.dataSource.register(SnapshotSource)
    spark.dataSource.register(LogDirSource)
