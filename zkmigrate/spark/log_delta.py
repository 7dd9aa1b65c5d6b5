"""Find the delta of a log after a zxid, as `zookeeper.data.delta` judges it.

Spark reads the log and keeps what can concern the subtree: changes of the subtree, and sessions that change
it or own ephemerals in it. One task judges these operations in the order of zxids, with the judge of
`zookeeper.data.delta`, because an opening or a closing depends on the state before it. The task holds the
subtree's ephemerals in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from zkmigrate.spark.input import under
from zkmigrate.spark.open_sessions import is_session
from zkmigrate.spark.operation_kinds import CHANGES, CLOSES, CREATES, ENDS, OPENS
from zkmigrate.spark.subtree_at import Plain, in_tasks
from zkmigrate.zookeeper.data import txn
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.delta import DeltaFinding, Judge

FINDINGS = pa.schema([
    ("number", pa.int64()), ("zxid", pa.int64()), ("time_ms", pa.int64()), ("type", pa.string()),
    ("path", pa.string()), ("session", pa.int64()), ("expiry", pa.bool_()), ("allowed", pa.bool_()),
])  # fmt: skip
"""The columns of findings, as in `zookeeper.data.delta.DeltaFinding`.

number: position in the order of the log. allowed: whether the finding is the expiry of a session that lives
on dest.
"""

_OWNER = "owner"
_TAKEN = ("zxid", "sequence", "time_ms", "type", "path", "session", "cxid", "multi", "ephemeral", "living")


def owners_of(nodes: DataFrame) -> DataFrame:
    """Return session and path of each ephemeral among the znodes."""
    owner = F.col("ephemeral_owner")
    return nodes.filter(is_session(owner)).select(owner.alias("session"), "path")


def delta_findings(
    log: DataFrame, chroot: Chroot, owners: DataFrame, on_dest: Collection[int], highest: int
) -> DataFrame:
    """Return the FINDINGS of a log that begins after a zxid.

    owners: the ephemerals at that zxid, with session, path and `living`, which says whether the session lives
    on dest. on_dest: more sessions that live on dest. highest: see `zookeeper.data.delta.delta`. A later
    action on the result may raise PySparkException.
    """
    path = F.col("path")
    above = [one for one in _above(chroot.path) if one != chroot.path]
    touches = under(path, chroot) | (F.col("type").isin(*ENDS) & F.coalesce(path.isin(*above), F.lit(False)))
    behind = log.filter(~F.col("failed"))
    changes = behind.filter(F.col("type").isin(*CHANGES) & touches)
    concerned = changes.select("session").union(owners.select("session")).distinct()
    sessions = behind.filter((F.col("type") == OPENS) | ((F.col("type") == CLOSES) & ~touches)).join(
        concerned, "session", "left_semi"
    )
    rows = changes.unionByName(sessions).withColumns(
        {"time_ms": F.unix_millis("time"), "ephemeral": _ephemeral(),
         "living": F.lit(False)}
    )  # fmt: skip
    known = owners.select(
        F.lit(-1).cast("bigint").alias("zxid"), F.lit(0).alias("sequence"),
        F.lit(0).cast("bigint").alias("time_ms"),
        F.lit(_OWNER).alias("type"), "path", "session", F.lit(0).alias("cxid"), F.lit(False).alias("multi"),
        F.lit(True).alias("ephemeral"), "living",
    )  # fmt: skip
    ordered = rows.select(*_TAKEN).unionByName(known).repartition(1).sortWithinPartitions("zxid", "sequence")
    return in_tasks(ordered, partial(_judge, chroot, frozenset(on_dest), highest), FINDINGS)


def _ephemeral() -> Column:
    """Return a boolean column: whether the operation of a row creates an ephemeral znode."""
    return F.col("type").isin("create", "create2") & F.coalesce(F.col("ephemeral_owner") != 0, F.lit(False))


def _above(chroot: str) -> Iterator[str]:
    """Yield the chroot, and then each ancestor of the chroot up to "/"."""
    while True:
        yield chroot
        if chroot == "/":
            return
        chroot = chroot.rpartition("/")[0] or "/"


# --- in the task


def _judge(
    chroot: Chroot, on_dest: frozenset[int], highest: int, rows: Iterable[Plain]
) -> Iterator[tuple[Any, ...]]:
    owners: dict[int, set[str]] = {}
    living = set(on_dest)
    judge = Judge(chroot, owners, living, highest)
    number = 0
    for _, of_one in groupby(rows, key=attrgetter("zxid")):
        operations = list(of_one)
        if operations[0].type == _OWNER:  # they come first
            for owner in operations:
                owners.setdefault(owner.session, set()).add(owner.path)
            living.update(owner.session for owner in operations if owner.living)
            judge = Judge(chroot, owners, living, highest)
            continue
        judge.take(_txn(operations, chroot))
        for one, allowed in _new_findings(judge):
            yield number, one.zxid, one.time_ms, one.type, one.path, one.session, one.expiry, allowed
            number += 1


def _new_findings(judge: Judge) -> list[tuple[DeltaFinding, bool]]:
    """Return the judge's findings since the last call, each with whether it is allowed.

    The findings are deleted from the judge to save memory.
    """
    found = [*((one, False) for one in judge.missing), *((one, True) for one in judge.allowed)]
    judge.missing.clear()
    judge.allowed.clear()
    return found


def _txn(rows: list[Plain], chroot: Chroot) -> txn.Txn:
    """Rebuild a transaction from the rows of its operations, without data and ACLs."""
    one = rows[0]
    kind = txn.TxnType.multi if one.multi else txn.TxnType[one.type]
    head = txn.TxnHeader(one.session, one.cxid, one.zxid, one.time_ms, kind)
    if kind is txn.TxnType.multi:
        return txn.Txn(
            head, txn.MultiTxn(tuple(txn.SubTxn(txn.TxnType[row.type], _body(row)) for row in rows)), None
        )
    if kind is txn.TxnType.closeSession:
        paths = tuple(row.path for row in rows if row.path is not None and chroot.holds(row.path))
        return txn.Txn(head, txn.CloseSessionTxn(paths), None)
    return txn.Txn(head, _body(one), None)


def _body(row: Plain) -> txn.TxnBody:
    if row.type == OPENS:
        return txn.CreateSessionTxn(0)
    if row.type in ENDS:
        return txn.DeleteTxn(row.path)
    if row.type in CREATES:
        return txn.CreateTxn(row.path, None, (), row.ephemeral, 0)
    return txn.SetACLTxn(row.path, (), 0)
