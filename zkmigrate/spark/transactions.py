"""Transactions of several servers against each other, as Spark tables: one zxid is one transaction.

Compared are 64-bit hashes of all that their records hold, the data too. Three things may differ without a
fault, and are not compared: the digest of the tree, and the paths that a closeSession deletes, where a server
wrote none, as those before 3.6; and the operations of a failed multi, which an observer replaces by errors
while it logs them (see `zookeeper.data.txn`), and which had no effect."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from zkmigrate.spark.input import Input
from zkmigrate.spark.operation_kinds import CLOSES

RECORD = ("ensemble", "server", "file", "offset", "zxid")
"""What names a record."""

_HEAD = ("time", "session", "cxid", "type", "failed")
_BODY = ("path", "sequence", "multi", "data_length", "data", "version", "acl", "ephemeral_owner", "ttl_ms",
         "timeout_ms", "error")  # fmt: skip
SHOWN = (*_HEAD, "multi", "path", "data_length", "data_sha256", "version", "acl", "ephemeral_owner",
          "ttl_ms", "timeout_ms", "error", "digest")  # fmt: skip
"""What is told of the records of a zxid that are not the same."""


def operations(both: Mapping[str, Input]) -> DataFrame:
    """The logs of all servers, with what is compared: `core`, of each operation a hash; `paths`, of those
    that a closeSession names. Damage is rows with `corrupt`."""
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
    """Null where an operation is not compared."""
    header = F.xxhash64("time", "session", "cxid", F.when(F.col("failed"), "multi").otherwise(F.col("type")))
    first = F.when(F.col("sequence") == 0, header)
    return F.when(F.col("failed") | (F.col("type") == CLOSES), first).otherwise(F.xxhash64(*_HEAD, *_BODY))


def records(log: DataFrame) -> DataFrame:
    """A row for each transaction and each damage."""
    return log.groupBy(*RECORD, "corrupt").agg(
        F.bit_xor("core").alias("core"), F.bit_xor("paths").alias("paths"), F.max("digest").alias("digest")
    )


def compared(of: DataFrame) -> DataFrame:
    """Zxids that several records have. of: `records`; divergent: whether these differ."""

    def differ(name: str) -> Column:
        return F.coalesce(F.min(name) != F.max(name), F.lit(False))

    grouped = of.filter("zxid IS NOT NULL").groupBy("zxid")
    told = (differ("core") | differ("paths") | differ("digest")).alias("divergent")
    return grouped.agg(F.count("*").alias("records"), told).filter("records > 1")


def named(log: DataFrame) -> DataFrame:
    """Each record with the first of its operations that others at its zxid do not have so; hash: of all that
    is compared of the record. log: of some zxids."""
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
