"""Build a subtree at one zxid as a table, from a server's snapshot and the log after it, replayed in Spark.

The result equals that of `zookeeper.data.tree.load_tree`, by the same rules, applied path by path. A znode's
state depends on the operations on its own path, on its children's creates and deletes, and on two facts that
other paths decide:

- A create has no effect without its parent, as over a snapshot that was dumped after the parent's deletion.
  The parent's path reports that.
- A closeSession of 3.4 and 3.5 does not name the ephemerals that it deletes. Each path that the session may
  own gets the closing and reports whether it was deleted; its parent's pzxid follows from that.

Reports go to the paths concerned, which are replayed until no new report comes. One replay is enough for logs
of 3.6 and later with complete snapshots; the largest number of replays is the depth of the tree.

Limits: names with a lone surrogate, which no Spark text can hold, read as U+FFFD, so two such names may
become one. Times after the year 294,000 read as the last time that Spark can hold. One task replays all
operations of a path and its children in order, without memory for the rest. Damage in the log after the
wanted zxid may be refused, although `load_tree` does not read so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from zkmigrate.spark.disk import Disk
from zkmigrate.spark.input import only, under
from zkmigrate.spark.log_continuity import continuity, first_behind
from zkmigrate.spark.open_sessions import is_session
from zkmigrate.spark.operation_kinds import CHANGES, CLOSES, CREATES, ENDS, WRITES
from zkmigrate.spark.sources.arrays import ACL
from zkmigrate.spark.verb import reason
from zkmigrate.zookeeper.data import txn
from zkmigrate.zookeeper.data.chroot import QUOTA_STATS, QUOTAS, SERVERS_OWN, Chroot
from zkmigrate.zookeeper.data.effect import TTL_OWNER
from zkmigrate.zookeeper.data.errors import CorruptError, NoDataError
from zkmigrate.zookeeper.data.logdir import describe_gap
from zkmigrate.zookeeper.data.snapname import SnapshotFile
from zkmigrate.zookeeper.data.tree import Tree, Znode, from_best_snapshot
from zkmigrate.zookeeper.data.zxid import format_zxid

FIELDS = (
    "data_sha256", "data_length", "acl", "czxid", "mzxid", "pzxid", "ctime", "mtime", "version", "cversion",
    "aversion", "ephemeral_owner",
)  # fmt: skip
"""The fields of a znode in the order of comparison, as in `zookeeper.data.tree.Znode`."""

_BASE, _CLOSING = "base", "closing"
_NODE, _SKIPPED, _DELETED = "node", "skipped", "deleted"
_LAST = (1 << 31) - 1
_NOTHING: tuple[int, int | None] = (0, None)

_ZNODE = pa.schema([
    ("path", pa.string()), ("data_sha256", pa.binary()), ("data_length", pa.int32()), ("acl", ACL),
    *((name, pa.int64()) for name in ("czxid", "mzxid", "pzxid", "ctime", "mtime")),
    *((name, pa.int32()) for name in ("version", "cversion", "aversion")), ("ephemeral_owner", pa.int64()),
])  # fmt: skip
_EVENT = pa.schema([
    *_ZNODE, ("kind", pa.string()), ("child", pa.string()), ("zxid", pa.int64()), ("sequence", pa.int32()),
    ("session", pa.int64()), ("parent_cversion", pa.int32()),
])  # fmt: skip
"""The columns of the events of one path, in the order of zxid and sequence.

An event is the path's znode in the snapshot (`_BASE`), an operation on the path or, with `child`, on a child,
or the `_CLOSING` of a session that may own the znode. In operations ctime is the time, and version the new
version, also of an ACL.
"""
_REPORT = pa.schema([*_ZNODE, ("kind", pa.string()), ("zxid", pa.int64()), ("sequence", pa.int32())])
"""The columns of the reports of a path.

A path reports its znode at the end, creates of children that had no effect, and its deletion by a closing.
"""

Plain: TypeAlias = SimpleNamespace
"""A row in a task. It is faster than Row, which searches its names for each value."""


@dataclass(frozen=True)
class Subtree:
    """A subtree at one zxid.

    nodes: a table of path and FIELDS, times in milliseconds since 1970. records: the number of transactions
    replayed. snapshot, skipped: as in `zookeeper.data.tree.Tree`.
    """

    chroot: Chroot
    zxid: int
    nodes: DataFrame
    records: int
    snapshot: str
    skipped: Mapping[str, str]


def load_subtree(spark: SparkSession, disk: Disk, chroot: Chroot, upto: int) -> Subtree:
    """Return the subtree on a server's disk at `upto`. Raises the errors of `tree.load_tree`."""

    def attempt(file: SnapshotFile) -> tuple[Subtree, bool]:
        base = _of_snapshot(disk.znodes(spark, file.name), chroot).persist(StorageLevel.DISK_ONLY)
        try:
            newest, corrupt = _newest(base)
        except PySparkException as error:
            raise CorruptError(reason(error), file.name) from error
        if corrupt:
            raise CorruptError(corrupt.removeprefix(f"{file.name}: "), file.name)
        found = _replayed(
            spark, disk, chroot, (file.zxid, upto), base.drop("corrupt").filter("path IS NOT NULL")
        )
        newer = newest > upto and first_behind(spark, disk, upto) is not None
        return replace(found, snapshot=file.name), newer

    found, skipped = from_best_snapshot(disk, upto, attempt)
    if found is None:
        blank = [path for path in SERVERS_OWN if chroot.holds(path)]
        found = _replayed(spark, disk, chroot, (0, upto), _blank(spark, blank))
        if not found.records:
            raise NoDataError(
                "; ".join(skipped.values()) or "there is no snapshot or transaction to start from"
            )
    return replace(found, skipped=skipped)


def znode(row: Row | Plain) -> Znode:
    """Convert a row with FIELDS to a Znode."""
    known = {"acl": _acls(row), "data_sha256": bytes(row.data_sha256)}
    return Znode(**{name: getattr(row, name) for name in FIELDS} | known)


def _replayed(
    spark: SparkSession, disk: Disk, chroot: Chroot, span: tuple[int, int], base: DataFrame
) -> Subtree:
    """Return the subtree after replaying transactions on the znodes of `base`.

    span: the zxid after which the transactions begin, and the last zxid. Raises the errors of `load_subtree`.
    """
    after, upto = span
    found = continuity(spark, disk, after, upto)
    if found.broken:
        raise found.broken
    zxid = max(after, found.last or 0)
    if zxid < upto:
        behind = first_behind(spark, disk, upto)
        if behind is None:
            ends = f"the directories end at {format_zxid(zxid)}"
            raise NoDataError(f"{ends}, before the requested {format_zxid(upto)}")
        # A snapshot may have been received: what follows a hole does not prove that nothing was between.
        if missing := describe_gap(found.last, after, behind):
            raise CorruptError(missing)
    log = disk.log(spark, after, zxids=(after + 1, upto), data=True)
    nodes = base
    if found.records and log is not None:
        try:
            nodes = _final_nodes(base, _operations(log, chroot), chroot)
        except PySparkException as error:
            raise CorruptError(reason(error)) from error
    return Subtree(chroot, zxid, nodes, found.records, "", {})


def _of_snapshot(found: DataFrame, chroot: Chroot) -> DataFrame:
    kept = found.filter(under(F.col("path"), chroot) | F.col("corrupt").isNotNull())
    times = {name: F.unix_millis(name) for name in ("ctime", "mtime")}
    return kept.withColumns({**_data(), **times}).select("path", *FIELDS, "corrupt")


def _data() -> dict[str, Column]:
    """Return the columns of a znode's data. What a server counts for a quota is no data, as in `tree`."""
    counted = F.col("path").startswith(f"{QUOTAS}/") & F.col("path").endswith(f"/{QUOTA_STATS}")
    length = F.when(counted, F.lit(-1)).otherwise(F.col("data_length"))
    return {"data_sha256": _sha256(F.when(~counted, F.col("data"))), "data_length": length}


def _sha256(data: Column) -> Column:
    return F.unhex(F.sha2(F.coalesce(data, F.lit(b"")), 256))


def _newest(base: DataFrame) -> tuple[int, str]:
    """Return the largest zxid in any stat (0 without znodes), and why the snapshot cannot be read, or ""."""
    row = only(base.agg(F.max(F.greatest("czxid", "mzxid", "pzxid")), F.max("corrupt")))
    return row[0] or 0, row[1] or ""


def _blank(spark: SparkSession, paths: Iterable[str]) -> DataFrame:
    """Return the znodes that a server creates by itself when it starts without data."""
    frame = spark.createDataFrame([(path,) for path in paths], "path string")
    kinds = {field.name: field.dataType for field in from_arrow_schema(_ZNODE)}
    empty = {name: F.lit(0).cast(kinds[name]) for name in FIELDS[1:] if name != "acl"}
    empty |= {"data": F.lit(b""), "acl": F.lit(None).cast(kinds["acl"])}
    return frame.withColumns(empty).withColumn("data_sha256", _sha256(F.col("data"))).select("path", *FIELDS)


def _operations(log: DataFrame, chroot: Chroot) -> DataFrame:
    """Return the changes of the subtree, and the closings of sessions, with the columns of `_EVENT`."""
    changes = F.col("type").isin(*CHANGES) & under(F.col("path"), chroot)
    found = log.filter(~F.col("failed") & (changes | (F.col("type") == CLOSES))).withColumns(
        {**_data(), "ctime": F.unix_millis("time"), "kind": F.col("type")}
    )
    return _events(found)


def _events(found: DataFrame) -> DataFrame:
    """Return the rows with exactly the columns of `_EVENT`, null where a column is missing."""
    known = {name: F.col(name) for name in found.columns}
    fields = from_arrow_schema(_EVENT)
    return found.select(*(known.get(f.name, F.lit(None)).cast(f.dataType).alias(f.name) for f in fields))


def _final_nodes(base: DataFrame, operations: DataFrame, chroot: Chroot) -> DataFrame:
    """Return the znodes of ``base`` as they are after the operations."""
    operations = operations.persist(StorageLevel.DISK_ONLY)
    changes = operations.filter(under(F.col("path"), chroot))
    below = changes.filter((F.col("path") != chroot.path) & under(parent(F.col("path")), chroot))
    of_children = below.filter(F.col("kind").isin(*CREATES, *ENDS)).withColumns(
        {"child": F.col("path"), "path": parent(F.col("path"))}
    )
    closings = _closings(base, changes, operations)
    shown = base.withColumns({"kind": F.lit(_BASE), "zxid": F.lit(-1), "sequence": F.lit(0)})
    # A closing may concern the parents too, which only the reports of the paths below show.
    closed = closings.select("path").union(
        closings.filter(F.col("path") != chroot.path).select(parent(F.col("path")))
    )
    touched = changes.select("path").union(of_children.select("path")).union(closed)
    touched = touched.distinct().persist(StorageLevel.DISK_ONLY)
    others = [of_children, closings, _events(shown.join(touched, "path", "left_semi"))]
    reports = _reports([changes, *others])
    before, new = _NOTHING, _fingerprint(reports)
    while new != before:
        skipped = reports.filter(F.col("kind") == _SKIPPED).select("path", "zxid", "sequence")
        deleted = reports.filter((F.col("kind") == _DELETED) & (F.col("path") != chroot.path)).select(
            parent(F.col("path")).alias("path"), F.col("path").alias("child"), "zxid", "sequence",
            F.lit("delete").alias("kind"),
        )  # fmt: skip
        effective = changes.join(skipped, ["path", "zxid", "sequence"], "left_anti")
        reports = _reports([_events(effective), *others, _events(deleted)])
        before, new = new, _fingerprint(reports)
    last = reports.filter(F.col("kind") == _NODE).select("path", *FIELDS)
    return base.join(touched, "path", "left_anti").select("path", *FIELDS).unionByName(last)


def parent(path: Column) -> Column:
    """Return the path one element up; "/" is its own parent."""
    above = F.substring_index(path, "/", -1)
    cut = F.substring(path, F.lit(1), F.char_length(path) - F.char_length(above) - 1)
    return F.when(cut == "", "/").otherwise(cut)


def _closings(base: DataFrame, changes: DataFrame, operations: DataFrame) -> DataFrame:
    """Return an event for every closing of a session and every path that the session may own."""
    closed = operations.filter(F.col("kind") == CLOSES)
    each = closed.groupBy("zxid", "session").agg(F.max("ctime").alias("ctime"))
    owner = F.col("ephemeral_owner")
    owners = base.select("path", owner).union(
        changes.filter(F.col("kind").isin(*CREATES)).select("path", owner)
    )
    those = owners.filter(is_session(owner)).distinct().withColumnRenamed("ephemeral_owner", "session")
    joined = those.join(each, "session")
    return _events(joined.withColumns({"kind": F.lit(_CLOSING), "sequence": F.lit(_LAST)}))


def _reports(events: list[DataFrame]) -> DataFrame:
    whole = reduce(DataFrame.unionByName, events)
    order = ("path", "zxid", "sequence")
    ordered = whole.select(*_EVENT.names).repartition("path").sortWithinPartitions(*order)
    # Of writes that follow each other only the last has an effect.
    following = F.lead("kind").over(Window.partitionBy("path").orderBy(*order))
    overwritten = F.col("kind").isin(*WRITES) & F.coalesce(following.isin(*WRITES), F.lit(False))
    kept = ordered.withColumn("overwritten", overwritten).filter("NOT overwritten").drop("overwritten")
    return in_tasks(kept, _replay, _REPORT).persist(StorageLevel.DISK_ONLY)


def in_tasks(
    frame: DataFrame, task: Callable[[Iterable[Plain]], Iterator[tuple[Any, ...]]], gives: pa.Schema
) -> DataFrame:
    """Return the rows that `task` makes from the rows of each partition. gives: the schema of the result.

    ``task`` works on rows, because Spark's Arrow functions need pandas.
    """
    rows = frame.rdd.mapPartitions(lambda taken: task(Plain(**row.asDict()) for row in taken))
    return frame.sparkSession.createDataFrame(rows, from_arrow_schema(gives), verifySchema=False)


def _fingerprint(reports: DataFrame) -> tuple[int, int | None]:
    """Return the number and a hash of the reports for other paths; `_NOTHING` without such reports."""
    others = reports.filter(F.col("kind") != _NODE)
    row = only(others.agg(F.count("*"), F.bit_xor(F.xxhash64("kind", "path", "zxid", "sequence"))))
    return row[0], row[1]


# --- in the tasks


def _replay(events: Iterable[Plain]) -> Iterator[tuple[Any, ...]]:
    """Replay the rows of `_EVENT`, path after path, and yield rows of `_REPORT`.

    The rules are those of `zookeeper.data.tree`.
    """
    for path, of_path in groupby(events, key=attrgetter("path")):
        for report in _Path(path).take(of_path):
            yield tuple(report.get(name) for name in _REPORT.names)


def _acls(row: Row | Plain) -> tuple[txn.Acl, ...] | None:
    return None if row.acl is None else tuple(txn.Acl(*one) for one in row.acl)


class _Path:
    """A path and its children, as a tree whose chroot is the path.

    A create of the path needs no parent here, because `_final_nodes` has left out creates without a parent.
    """

    def __init__(self, path: str) -> None:
        self._path, self._tree = path, Tree(Chroot(path))

    def take(self, events: Iterable[Plain]) -> Iterator[dict[str, Any]]:
        """Apply the events of the path and yield rows of `_REPORT`."""
        for event in events:
            yield from self._one(event)
        node = self._tree.nodes.get(self._path)
        if node is not None:
            acl = None if node.acl is None else [(one.perms, one.scheme, one.id) for one in node.acl]
            values = {name: getattr(node, name) for name in FIELDS} | {"acl": acl}
            yield {"kind": _NODE, "path": self._path, **values}

    def _one(self, event: Plain) -> Iterator[dict[str, Any]]:
        tree, path = self._tree, self._path
        before = tree.nodes.get(path)
        if event.kind == _BASE:
            tree.put(path, znode(event))
            return
        tree.apply(_txn(event))
        after = tree.nodes.get(path)
        place = {"zxid": event.zxid, "sequence": event.sequence}
        if event.child is not None:
            tree.nodes.pop(event.child, None)
            if before is None and event.kind in CREATES:
                yield {"kind": _SKIPPED, "path": event.child, **place}
        elif event.kind == _CLOSING:
            if before is not None and after is None:
                yield {"kind": _DELETED, "path": path, **place}
        elif after is not None and (before is None or event.kind in WRITES):
            tree.nodes[path] = replace(
                after, data_sha256=bytes(event.data_sha256), data_length=event.data_length
            )


def _txn(event: Plain) -> txn.Txn:
    """Return an event as a transaction of one operation, without the data; the event has the data's hash."""
    kind = txn.TxnType.closeSession if event.kind == _CLOSING else txn.TxnType[event.kind]
    return txn.Txn(
        txn.TxnHeader(event.session or 0, 0, event.zxid, event.ctime or 0, kind), _body(event), None
    )


def _body(event: Plain) -> txn.TxnBody:
    path, acl = event.child or event.path, _acls(event) or ()
    match event.kind:
        case "create" | "create2":
            # A child's own state belongs to its own path.
            ephemeral = event.child is None and event.ephemeral_owner != 0
            return txn.CreateTxn(path, None, acl, ephemeral, event.parent_cversion)
        case "createContainer":
            return txn.CreateContainerTxn(path, None, acl, event.parent_cversion)
        case "createTTL":
            return txn.CreateTTLTxn(path, None, acl, event.parent_cversion, event.ephemeral_owner - TTL_OWNER)
        case "setData" | "reconfig":
            return txn.SetDataTxn(path, None, event.version)
        case "setACL":
            return txn.SetACLTxn(path, acl, event.version)
        case "closing":
            return txn.CloseSessionTxn(None)
        case _:
            return txn.DeleteTxn(path)
