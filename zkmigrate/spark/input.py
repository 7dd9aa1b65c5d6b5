"""Read the logs and snapshots of a request's servers as tables for the jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, reduce
from itertools import chain
from operator import or_

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from zkmigrate.errors import UsageError
from zkmigrate.spark.reading import StretchCache, load, local_frame
from zkmigrate.spark.request import Place, Request, is_small
from zkmigrate.spark.sources.files import File, files
from zkmigrate.spark.sources.txnlog import SPLIT_MB
from zkmigrate.zookeeper.data.chroot import QUOTA_LIMITS, QUOTA_STATS, QUOTAS, SYSTEM_ROOT, Chroot
from zkmigrate.zookeeper.data.seal import check_snapshot
from zkmigrate.zookeeper.data.snapname import snapshot_zxid
from zkmigrate.zookeeper.data.txnlog import FILE_HEADER_SIZE, log_zxid

_WORTH_A_TASK_MB = 16
"""The size in megabytes from which reading takes longer than starting a task; see `sources.txnlog`."""

_COUNTER = 0xFFFFFFFF
"""The bit mask of the counter in a zxid: the low 32 bits."""


class Input:
    """The tables of one ensemble.

    spark: a session with the data sources registered.
    """

    def __init__(self, spark: SparkSession, request: Request, places: Sequence[Place] | None = None) -> None:
        self.spark = spark
        self.request = request
        self.places = tuple(request.source if places is None else places)
        self._cache = StretchCache()  # of the reference server's logs, which every job reads

    @cached_property
    def is_local(self) -> bool:
        """Whether results are small and Spark runs on this machine, so that this process can hold them."""
        return (self.spark.sparkContext.master or "").startswith("local") and is_small(self.request)

    def once(self, answer: DataFrame) -> DataFrame:
        """Return a result that is both shown and written to a file, computed only once if `is_local`."""
        return local_frame(self.spark, answer.toArrow()) if self.is_local else answer

    def reused(self, table: DataFrame) -> DataFrame:
        """Return a table that is read several times, stored so that it is computed only once."""
        return self.once(table) if self.is_local else table.persist()

    @cached_property
    def logs_by_server(self) -> dict[str, list[File]]:
        """The log files that may contain a record, by server name, oldest first."""
        found = self._by_server(lambda name: log_zxid(name) is not None)
        kept = {name: [log for log in logs if log.size > FILE_HEADER_SIZE] for name, logs in found.items()}
        return {
            name: sorted(logs, key=lambda log: log_zxid(log.name) or 0) for name, logs in kept.items() if logs
        }

    @cached_property
    def snapshots(self) -> list[File]:
        """The snapshots of all servers, newest first."""
        found = chain.from_iterable(self._by_server(lambda name: snapshot_zxid(name) is not None).values())
        return sorted(found, key=lambda file: (snapshot_zxid(file.name) or 0, file.path), reverse=True)

    def _by_server(self, is_one: Callable[[str], bool]) -> dict[str, list[File]]:
        found: dict[str, dict[str, File]] = {}
        for place in self.places:
            try:
                here = files((place.path,), place.server, is_one)
            except UsageError:
                continue  # a dataDir without logs, a dataLogDir without snapshots
            for file in here:
                found.setdefault(file.server, {})[file.path] = file
        return {name: list(by_path.values()) for name, by_path in sorted(found.items())}

    @cached_property
    def reference(self) -> str:
        """The name of the server that is read where one log is enough, because each log has all transactions.

        It is the server of --server, otherwise the server with the oldest log. Raises UsageError if there is
        no log.
        """
        servers = self.logs_by_server
        if self.request.server:
            if self.request.server not in servers:
                named = ", ".join(sorted(servers)) or "none"
                raise UsageError(
                    f"there is no log of server {self.request.server}. Servers with logs: {named}"
                )
            return self.request.server
        if not servers:
            raise UsageError(f"there is no transaction log at {_paths(self.places)}")

        def reach(name: str) -> tuple[int, int, str]:
            return log_zxid(servers[name][0].name) or 0, -sum(file.size for file in servers[name]), name

        return min(servers, key=reach)

    def log(self, *columns: str, **options: str) -> DataFrame:
        """Return the reference server's log as a table of operations.

        columns: the columns of `sources.columns.SCHEMA` to read; none for all. options: more options of the
        data source.
        """
        return self.log_of(self.reference, *columns, **options)

    def log_of(self, server: str, *columns: str, **options: str) -> DataFrame:
        """Return one server's log as a table of operations. For columns and options see `log`."""
        logs = self.logs_by_server[server]
        cache = self._cache if server == self.reference else None
        return self._read("zktxnlog", logs, columns, {**shared(self.spark, logs), **options}, cache)

    def effects(self, *columns: str, **options: str) -> DataFrame:
        """Return the reference server's log without the operations of failed multis.

        columns: the columns to read, at least one. options: more options of the data source.
        """
        return self.log(*columns, "failed", **options).filter(~F.col("failed")).select(*columns)

    @cached_property
    def snapshot(self) -> File:
        """The newest snapshot with a complete end. Raises UsageError if there is none."""
        for file in self.snapshots:
            if not check_snapshot(file.reader(), file.name, whole=False):
                return file
        raise UsageError(f"there is no complete snapshot at {_paths(self.places)}")

    def nodes(self, *columns: str, **options: str) -> DataFrame:
        """Return the znodes of the newest complete snapshot.

        columns: the columns of `sources.nodes.NODES` to make; none for all. options: more options of the data
        source.
        """
        return self._read("zksnapshot", [self.snapshot], columns, options)

    @cached_property
    def sessions(self) -> DataFrame:
        """The table of the sessions in the newest complete snapshot."""
        return self._read("zksnapshot", [self.snapshot], (), {"table": "sessions"})

    def _read(
        self,
        source: str,
        found: Sequence[File],
        columns: Sequence[str],
        options: dict[str, str],
        cache: StretchCache | None = None,
    ) -> DataFrame:
        named = {"server": found[0].server, "columns": ",".join(columns)}
        return load(self.spark, source, found, {**named, **options}, cache)


def shared(spark: SparkSession, logs: Iterable[File]) -> dict[str, str]:
    """Return data source options that divide large logs among Spark's cores; small logs stay whole."""
    each = sum(log.size for log in logs) // spark.sparkContext.defaultParallelism >> 20
    return {"splitMB": str(min(SPLIT_MB, max(_WORTH_A_TASK_MB, each)))}


def only(frame: DataFrame) -> Row:
    """Return the only row of an aggregate."""
    row = frame.first()
    assert row is not None
    return row


def under(path: Column, chroot: Chroot) -> Column:
    """Return whether a znode is part of a chroot, as `Chroot.holds` does; false for a null path."""
    if chroot.names:
        inside = F.substring_index(F.substr(path, F.lit(2)), "/", 1).isin(*chroot.names)
    elif chroot.path == "/":
        inside = ~at_or_below(path, SYSTEM_ROOT)
    else:
        inside = at_or_below(path, chroot.path)
    return F.coalesce(inside | _of_quota(path, chroot), F.lit(False))


def _of_quota(path: Column, chroot: Chroot) -> Column:
    """Return whether a znode is part of a chroot's quotas."""
    below = F.substr(path, F.lit(len(QUOTAS) + 1))
    of = F.regexp_replace(below, f"/(?:{QUOTA_LIMITS}|{QUOTA_STATS})$", "")
    above = F.concat(of, F.lit("/"))
    inside = [at_or_below(of, root) | F.lit(root).startswith(above) for root in chroot.roots]
    return path.startswith(f"{QUOTAS}/") & ((of == "") | reduce(or_, inside))


def at_or_below(path: Column, root: str) -> Column:
    """Return whether a path is `root` or below it, as `is_under` does."""
    return F.lit(root == "/") | (path == root) | path.startswith(f"{root}/")


def only_under(chroot: Chroot) -> dict[str, str]:
    """Return data source options that leave out most paths outside a chroot, and the chroot's quotas.

    Filter the result with `under`.
    """
    return {"pathPrefix": chroot.path} if chroot.path != "/" and chroot.path.isascii() else {}


def epoch() -> Column:
    """Return the epoch of an operation's zxid."""
    return F.shiftright("zxid", 32)


def place_in_epoch() -> Column:
    """Return a number that orders operations within one epoch: counter (32 bits), then sequence (31 bits).

    Spark finds the greatest number of a group without sorting; for the greatest struct it would sort all
    rows.
    """
    return F.shiftleft(F.col("zxid").bitwiseAND(_COUNTER), 31) + F.col("sequence")


def _paths(places: Sequence[Place]) -> str:
    return ", ".join(place.path for place in places)
