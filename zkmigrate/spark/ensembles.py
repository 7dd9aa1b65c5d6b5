"""Compare source with the servers of dest: their trees, and their logs by zxid."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, reduce

from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from zkmigrate.errors import UsageError
from zkmigrate.spark.disk import Disk, disks
from zkmigrate.spark.input import Input, only
from zkmigrate.spark.operation_kinds import CHANGES, CLOSES
from zkmigrate.spark.subtree_at import Subtree, load_subtree
from zkmigrate.spark.verb import reason
from zkmigrate.zookeeper.data.errors import CorruptError, ZkDataError
from zkmigrate.zookeeper.data.histories import Histories, Parting, words
from zkmigrate.zookeeper.data.logdir import log_files
from zkmigrate.zookeeper.data.proofs import Reach, comparison_zxid, reach_by, unread_reach
from zkmigrate.zookeeper.data.tail import newest
from zkmigrate.zookeeper.data.txnlog import MAX_RECORD
from zkmigrate.zookeeper.disks.prove import no_subtree

_HEADER = ("session", "cxid", "time", "kind")
_BODY = (
    "sequence", "type", "path", "data_length", "data", "version", "parent_cversion", "acl", "ephemeral_owner",
    "ttl_ms", "timeout_ms", "error",
)  # fmt: skip


class Sides:
    """The servers of source and dest in a request. Each tree of source is loaded only once."""

    def __init__(self, input: Input) -> None:
        """Find the servers.

        Raises UsageError for missing directories and for directories without ZooKeeper's files.
        """
        request = input.request
        if not request.dest:
            raise UsageError(
                "no directory of dest is named. Needed: --dest-dir [NAME=]DIR, once for each server"
            )
        self.spark = input.spark
        self.request = request
        most = max(2 * (request.jute_maxbuffer + 1), MAX_RECORD)
        self.dests = disks(request.dest, most)
        self._sources = disks(request.source, most)
        self._trees: dict[int, Subtree] = {}

    @cached_property
    def source(self) -> Disk:
        """The server of --server, otherwise the server with the newest transaction.

        If several servers have the newest transaction, the one with the oldest log is used. Raises UsageError
        for an unknown server, and ZkDataError if a server cannot be read.
        """
        if self.request.server:
            found = [disk for disk in self._sources if disk.server == self.request.server]
            if not found:
                named = ", ".join(disk.server for disk in self._sources)
                raise UsageError(f"source has no server {self.request.server}. Servers of source: {named}")
            return found[0]

        def reaches(disk: Disk) -> tuple[int, int]:
            first = min((file.zxid for file in log_files(disk)), default=1 << 63)
            return newest(disk, max_record=disk.max_record).zxid, -first

        return max(self._sources, key=reaches)

    @cached_property
    def upto(self) -> int:
        """The newest durable zxid of source. Raises ZkDataError."""
        return newest(self.source, max_record=self.source.max_record).zxid

    def reach(self, dest: Disk) -> Reach:
        """Return how far a dest server agrees with source. `unproved` gives the reason if that is unknown."""
        try:
            at = newest(dest, max_record=dest.max_record).zxid
            found = histories(self.spark, self.source, dest)
            return reach_by(found, at, self.upto, dest.side, after_cut=self.request.after_cut)
        except ZkDataError as error:
            return unread_reach(str(error))
        except PySparkException as error:
            return unread_reach(reason(error))

    def comparison_zxid(self, where: Reach) -> int:
        """Return the zxid at which trees are compared: --zxid, otherwise the newest that both sides have."""
        zxid = self.request.zxid
        return comparison_zxid(where, self.upto) if zxid is None else zxid

    def tree(self, zxid: int) -> Subtree:
        """Return source's subtree at a zxid. Raises ZkDataError, and UsageError if there is no subtree."""
        if zxid not in self._trees:
            found = load_subtree(self.spark, self.source, self.request.chroot, zxid)
            found = replace(found, nodes=found.nodes.persist(StorageLevel.DISK_ONLY))
            try:
                nothing = found.nodes.isEmpty()
            except PySparkException as error:
                raise CorruptError(reason(error)) from error
            if nothing:
                raise no_subtree(self.source.server, self.request.chroot, zxid)
            self._trees[zxid] = found
        return self._trees[zxid]

    def tree_of(self, dest: Disk, zxid: int) -> Subtree:
        """Return a dest server's subtree at a zxid. Raises ZkDataError."""
        return load_subtree(self.spark, dest, self.request.chroot, zxid)


def histories(spark: SparkSession, source: Disk, dest: Disk) -> Histories:
    """Compare two logs like `zookeeper.data.histories.compare`.

    Each transaction's operations are compared by two 64-bit hashes. Both transactions are described at the
    zxid where the logs part. Raises PySparkException for a log that cannot be read.
    """
    theirs = dest.log(spark, data=True)
    if theirs is None:
        return Histories(None, 0, None, False, None)
    first = min((file.zxid for file in log_files(dest)), default=0)
    ours = source.log(spark, max(first - 1, 0), data=True)
    common, compared, parting, rejoined = None, 0, None, False
    if ours is not None:
        left, right = _transactions(ours).alias("a"), _transactions(theirs).alias("b")
        both = left.join(right, "zxid")
        alike, zxid = _alike(), F.col("zxid")
        ends = F.max(F.when(alike, zxid)), F.min(F.when(~alike, zxid))
        compared, common, parted = only(both.agg(F.count("*"), *ends))
        if parted is not None:
            parting = Parting(parted, _words(ours, parted), _words(theirs, parted))
            rejoined = common is not None and common > parted
    row = only(theirs.filter(F.col("zxid") > (-1 if common is None else common)).agg(F.min("zxid")))
    return Histories(common, compared, parting, rejoined, row[0])


def _transactions(log: DataFrame) -> DataFrame:
    """Return a row for each transaction, with hashes of its operations.

    The columns are zxid, the header, two hashes (`one`, `other`), the number of operations, and two flags:
    `failed` for a failed multi, `unnamed` for a closeSession that does not name what it deletes.
    """
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
    """Return the condition for equal transactions, by the rules of `zookeeper.data.histories`.

    A closeSession that deletes nothing is treated like one that does not name its deletions.
    """
    header, body = (
        reduce(Column.__and__, (F.col(f"a.{name}").eqNullSafe(F.col(f"b.{name}")) for name in names))
        for names in (_HEADER, ("one", "other", "operations"))
    )
    failed = F.col("a.failed") & F.col("b.failed")
    return header & (body | failed | F.col("a.unnamed") | F.col("b.unnamed"))


def _words(log: DataFrame, zxid: int) -> str:
    rows = log.filter(F.col("zxid") == zxid).orderBy("sequence")
    found = rows.select("type", "path", "multi", "failed").collect()
    changed = [row.path for row in found if not row.failed and row.type in CHANGES and row.path is not None]
    return words("multi" if found[0].multi else found[0].type, changed)
