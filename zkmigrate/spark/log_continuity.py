"""Check in Spark whether a server's log is complete after a zxid."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from zkmigrate.spark.disk import Disk
from zkmigrate.spark.input import only
from zkmigrate.spark.verb import reason
from zkmigrate.zookeeper.data.errors import CorruptError
from zkmigrate.zookeeper.data.logdir import describe_gap


@dataclass(frozen=True)
class Continuity:
    """Whether a log is complete after a zxid.

    last: the newest zxid in the log up to the bound; None if there is no zxid. records: the number of
    transactions after the zxid. broken: the first place where the log is not complete; None if it is
    complete.
    """

    last: int | None
    records: int
    broken: CorruptError | None


def continuity(spark: SparkSession, disk: Disk, after: int, upto: int | None) -> Continuity:
    """Check whether the log holds every transaction from `after` to `upto`.

    upto: None for the log's end. The rules are those of `zookeeper.data.logdir.describe_gap`. Raises
    CorruptError if the log cannot be read.
    """
    log = disk.log(spark, after) if upto is None else disk.log(spark, after, zxids=(0, upto))
    if log is None:
        return Continuity(None, 0, None)
    records = log.filter("sequence = 0")
    zxid = F.col("zxid")
    try:
        groups = (
            records.groupBy((zxid > after).alias("behind"), "epoch")
            .agg(F.min(zxid).alias("first"), F.max(zxid).alias("last"), F.count("*").alias("records"),
                 F.count_distinct(zxid).alias("different"))
            .orderBy("first")
            .collect()
        )  # fmt: skip
        last: int | None = None
        for group in groups:
            if group.behind:
                missing, at = describe_gap(last, after, group.first), group.first
                if not missing and group.different <= group.last - group.first:
                    at, missing = _gap(records, group, after)
                if not missing and group.records > group.different:
                    missing = f"a transaction of epoch {group.epoch} is in more than one place"
                if missing:
                    here = only(records.filter(zxid == at).select("file", "offset"))
                    count = sum(one.records for one in groups if one.behind)
                    return Continuity(groups[-1].last, count, CorruptError(missing, here.file, here.offset))
            last = group.last
    except PySparkException as error:
        raise CorruptError(reason(error)) from error
    return Continuity(last, sum(group.records for group in groups if group.behind), None)


def first_behind(spark: SparkSession, disk: Disk, zxid: int) -> int | None:
    """Return the first zxid in the log after `zxid`, or None. Raises CorruptError for an unreadable log."""
    log = disk.log(spark, zxid, zxids=(zxid + 1, (1 << 63) - 1))
    if log is None:
        return None
    try:
        first: int | None = only(log.agg(F.min("zxid")))[0]
    except PySparkException as error:
        raise CorruptError(reason(error)) from error
    return first


def _gap(records: DataFrame, group: Row, after: int) -> tuple[int, str]:
    """Return the first zxid of an epoch that does not follow the zxid before it, and the reason."""
    here = records.filter((F.col("zxid") >= group.first) & (F.col("zxid") <= group.last)).select("zxid")
    before = here.select((F.col("zxid") + 1).alias("zxid"))
    later = here.filter(F.col("zxid") > group.first).join(before, "zxid", "left_anti")
    first = only(later.agg(F.min("zxid")))[0]
    last = only(here.filter(F.col("zxid") < first).agg(F.max("zxid")))[0]
    return first, describe_gap(last, after, first)
