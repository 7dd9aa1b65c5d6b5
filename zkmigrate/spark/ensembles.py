"""Source and the servers of dest, as the proofs and the comparison of their trees need them."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from pyspark import StorageLevel
from pyspark.errors import PySparkException

from zkmigrate.errors import UsageError
from zkmigrate.spark.compare_logs import histories
from zkmigrate.spark.disk import Disk, disks
from zkmigrate.spark.input import Input
from zkmigrate.spark.subtree_at import Subtree, load_subtree
from zkmigrate.spark.verb import reason
from zkmigrate.zookeeper.data.errors import CorruptError, ZkDataError
from zkmigrate.zookeeper.data.logdir import log_files
from zkmigrate.zookeeper.data.proofs import Reach, compared_at, reach_by, unread
from zkmigrate.zookeeper.data.tail import newest
from zkmigrate.zookeeper.data.txnlog import MAX_RECORD
from zkmigrate.zookeeper.disks.prove import no_subtree


class Sides:
    """What was asked for, opened. Trees of source are rolled once for each zxid."""

    def __init__(self, input: Input) -> None:
        """Raises UsageError for directories without ZooKeeper's files and for those that are missing."""
        request = input.request
        if not request.dest:
            raise UsageError("nothing of dest was named. Needed: --dest-dir [NAME=]DIR, once for each server")
        self.spark = input.spark
        self.request = request
        most = max(2 * (request.jute_maxbuffer + 1), MAX_RECORD)
        self.dests = disks(request.dest, most)
        self._sources = disks(request.source, most)
        self._trees: dict[int, Subtree] = {}

    @cached_property
    def source(self) -> Disk:
        """The server that was asked for, else the one that holds the newest transaction; of several, the one
        whose log reaches farthest back. Raises UsageError, ZkDataError where one of them cannot be read."""
        if self.request.server:
            found = [disk for disk in self._sources if disk.server == self.request.server]
            if not found:
                named = ", ".join(disk.server for disk in self._sources)
                raise UsageError(f"no server {self.request.server} of source. There are: {named}")
            return found[0]

        def reaches(disk: Disk) -> tuple[int, int]:
            first = min((file.zxid for file in log_files(disk)), default=1 << 63)
            return newest(disk, max_record=disk.max_record).zxid, -first

        return max(self._sources, key=reaches)

    @cached_property
    def upto(self) -> int:
        """Source's newest durable zxid. Raises ZkDataError."""
        return newest(self.source, max_record=self.source.max_record).zxid

    def reach(self, dest: Disk) -> Reach:
        """How far a dest server goes with source; what cannot be read is `unproved`."""
        try:
            at = newest(dest, max_record=dest.max_record).zxid
            found = histories(self.spark, self.source, dest)
            return reach_by(found, at, self.upto, dest.side, after_cut=self.request.after_cut)
        except ZkDataError as error:
            return unread(str(error))
        except PySparkException as error:
            return unread(reason(error))

    def compared_at(self, where: Reach) -> int:
        """The zxid at which trees are compared: as asked for, else the newest that both hold."""
        return self.request.zxid or compared_at(where, self.upto)

    def tree(self, zxid: int) -> Subtree:
        """Source's subtree. Raises ZkDataError, and UsageError where there is none."""
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
        """A dest server's subtree. Raises ZkDataError."""
        return load_subtree(self.spark, dest, self.request.chroot, zxid)
