"""Compare transactions of several servers as Spark tables: one zxid is one transaction.

Hashes (64 bits) of all fields of the records, including the data, are compared. Three differences are not
faults. A server may not write the digest of the tree. A server may not write the paths that a closeSession
deletes; no server did before 3.6. An observer logs the operations of a failed multi, which had no effect, as
errors (see `zookeeper.data.txn`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from zkmigrate.spark.input import Input
from zkmigrate.spark.operation_kinds import CLOSES

RECORD = ("ensemble", "server", "file", "offset", "zxid")
"""The columns that identify a record."""

_HEAD = ("time", "session", "cxid", "type", "failed")
_BODY = ("path", "sequence", "multi", "data_length", "data", "version", "acl", "ephemeral_owner", "ttl_ms",
         "timeout_ms", "error")  # fmt: skip
SHOWN = (*_HEAD, "multi", "path", "data_length", "data_sha256", "version", "acl", "ephemeral_owner",
          "ttl_ms", "timeout_ms", "error", "digest")  # fmt: skip
"""The columns that are shown of the records that differ at one zxid."""


def operations(both: Mapping[str, Input]) -> DataFrame:
    """Return the logs of all servers as one table of operations, with hashes to compare.

    `core` is the hash of an operation, `paths` the hash of the paths that a closeSession names. A damaged
    place gives a row with the column `corrupt`.
    """
    read = [
        input.log_of(name, mode="permissive", data="true").withColumn("ensemble", F.lit(ensemble))
        for ensemble, input in both.items()
        for name in input.logs_by_server
    ]
    log = reduce(DataFrame.unionByName, read)
    return log.select(
        *RECORD,
        "corrupt",
        *_HEAD,
        *(name for name in _BODY if name != "data"),
        F.sha2("data", 256).alias("data_sha256"),
        "digest",
        _core().alias("core"),
        F.when((F.col("type") == CLOSES) & F.col("path").isNotNull(), F.xxhash64("path")).alias("paths"),
    )


def _core() -> Column:
    """Return the hash of an operation; null if the operation is not compared."""
    header = F.xxhash64("time", "session", "cxid", F.when(F.col("failed"), "multi").otherwise(F.col("type")))
    first = F.when(F.col("sequence") == 0, header)
    return F.when(F.col("failed") | (F.col("type") == CLOSES), first).otherwise(F.xxhash64(*_HEAD, *_BODY))


def records(log: DataFrame) -> DataFrame:
    """Return a row for each transaction and each damaged place."""
    return log.groupBy(*RECORD, "corrupt").agg(
        F.bit_xor("core").alias("core"), F.bit_xor("paths").alias("paths"), F.max("digest").alias("digest")
    )


def compared(every: DataFrame) -> DataFrame:
    """Return the zxids that occur in several records, with `divergent`: whether these records differ.

    every: the table of `records`.
    """

    def differ(name: str) -> Column:
        return F.coalesce(F.min(name) != F.max(name), F.lit(False))

    grouped = every.filter("zxid IS NOT NULL").groupBy("zxid")
    divergent = (differ("core") | differ("paths") | differ("digest")).alias("divergent")
    return grouped.agg(F.count("*").alias("records"), divergent).filter("records > 1")


def named(log: DataFrame) -> DataFrame:
    """Return each record with its first operation that differs from the other records with the same zxid.

    log: the operations of some zxids. The column hash is a hash of all compared operations of the record.
    """
    whole = F.bit_xor("core").over(Window.partitionBy(*RECORD))
    hashed = log.withColumn("hash", F.lower(F.lpad(F.hex(whole), 16, "0")))
    unlike = F.coalesce((F.min("core") != F.max("core")) | (F.min("paths") != F.max("paths")), F.lit(False))
    operations = log.groupBy("zxid", "sequence").agg(F.count("*").alias("have"), unlike.alias("unlike"))
    most = F.max("have").over(Window.partitionBy("zxid"))
    judged = operations.withColumn("unlike", F.col("unlike") | (F.col("have") < most))
    place = judged.groupBy("zxid").agg(
        F.coalesce(F.min(F.when(F.col("unlike"), F.col("sequence"))), F.lit(0)).alias("at")
    )
    shown = F.struct("sequence", "hash", *SHOWN)
    upto = hashed.join(place, "zxid").filter("sequence <= at")
    chosen = upto.groupBy(*RECORD).agg(F.max_by(shown, "sequence").alias("shown"))
    return chosen.select(*RECORD, "shown.*").orderBy("zxid", F.desc("ensemble"), "server", "file", "offset")
