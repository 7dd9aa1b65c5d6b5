"""Two servers' logs laid side by side by zxid, as `zookeeper.data.histories.compare` does it.

Transactions are told apart by two hashes of 64 bits over their operations. Where the logs part, the two
transactions are read and told in words."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from zkmigrate.spark.disk import Disk
from zkmigrate.spark.input import only
from zkmigrate.spark.operation_kinds import CHANGES, CLOSES
from zkmigrate.zookeeper.data.histories import Histories, Parting, words
from zkmigrate.zookeeper.data.logdir import log_files

_HEADER = ("session", "cxid", "time", "kind")
_BODY = (
    "sequence", "type", "path", "data_length", "data", "version", "parent_cversion", "acl", "ephemeral_owner",
    "ttl_ms", "timeout_ms", "error",
)  # fmt: skip


def histories(spark: SparkSession, source: Disk, dest: Disk) -> Histories:
    """As of `zookeeper.data.histories`. Raises PySparkException where a log cannot be read."""
    theirs = dest.log(spark, data=True)
    if theirs is None:
        return Histories(None, 0, None, False, None)
    first = min((file.zxid for file in log_files(dest)), default=0)
    ours = source.log(spark, max(first - 1, 0), data=True)
    common, compared, parting, rejoined = None, 0, None, False
    if ours is not None:
        left, right = _transactions(ours).alias("a"), _transactions(theirs).alias("b")
        both = left.join(right, "zxid")
        alike = _alike()
        row = both.agg(
            F.count("*"), F.max(F.when(alike, F.col("zxid"))), F.min(F.when(~alike, F.col("zxid")))
        ).first()
        assert row is not None
        compared, common, parted = row
        if parted is not None:
            parting = Parting(parted, _words(ours, parted), _words(theirs, parted))
            rejoined = common is not None and common > parted
    row = only(theirs.filter(F.col("zxid") > (-1 if common is None else common)).agg(F.min("zxid")))
    return Histories(common, compared, parting, rejoined, row[0])


def _transactions(log: DataFrame) -> DataFrame:
    """One row each: header, hashes of the operations, and what lets bodies differ."""
    kind = F.when(F.col("multi"), "multi").otherwise(F.col("type"))
    hashed = log.withColumns({"kind": kind, "one": F.xxhash64(*_BODY), "other": F.xxhash64(F.lit(1), *_BODY)})
    return hashed.groupBy("zxid").agg(
        *(F.first(name).alias(name) for name in _HEADER),
        F.bit_xor("one").alias("one"),
        F.bit_xor("other").alias("other"),
        F.count("*").alias("operations"),
        F.bool_or("failed").alias("failed"),
        ((F.first("kind") == CLOSES) & F.bool_or(F.col("path").isNull())).alias("unnamed"),
    )


def _alike() -> Column:
    """As `zookeeper.data.histories` says; a closeSession that deletes nothing is taken for one that does not
    say."""
    header = F.lit(True)
    for name in _HEADER:
        header = header & F.col(f"a.{name}").eqNullSafe(F.col(f"b.{name}"))
    body = F.lit(True)
    for name in ("one", "other", "operations"):
        body = body & (F.col(f"a.{name}") == F.col(f"b.{name}"))
    failed = F.col("a.failed") & F.col("b.failed")
    return header & (body | failed | F.col("a.unnamed") | F.col("b.unnamed"))


def _words(log: DataFrame, zxid: int) -> str:
    rows = log.filter(F.col("zxid") == zxid).orderBy("sequence").select("type", "path", "multi", "failed")
    found = rows.collect()
    changed = [row.path for row in found if not row.failed and row.type in CHANGES and row.path is not None]
    return words("multi" if found[0].multi else found[0].type, changed)
