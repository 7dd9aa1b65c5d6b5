"""The delta of a log behind a zxid, judged as `zookeeper.data.delta` does.

Spark reads the log and leaves over what can concern the subtree: its changes, and the sessions that own a
part of it or change it. That is judged in the order of zxids by one task, with the judge of
`zookeeper.data.delta` itself, because an opening or a closing counts by what stood before it. The task holds
the ephemerals of the subtree."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain, groupby
from operator import attrgetter
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from zkmigrate.spark.input import under
from zkmigrate.spark.open_sessions import is_session
from zkmigrate.spark.operation_kinds import CHANGES, CLOSES, CREATES, ENDS, OPENS
from zkmigrate.spark.subtree_at import Plain, in_tasks
from zkmigrate.zookeeper.data.delta import DeltaFinding, Judge
from zkmigrate.zookeeper.data.effect import is_under
from zkmigrate.zookeeper.data.txn import (
    CloseSessionTxn,
    CreateSessionTxn,
    CreateTxn,
    DeleteTxn,
    MultiTxn,
    SetACLTxn,
    SubTxn,
    Txn,
    TxnBody,
    TxnHeader,
    TxnType,
)

FINDINGS = pa.schema([
    ("number", pa.int64()), ("zxid", pa.int64()), ("time_ms", pa.int64()), ("type", pa.string()),
    ("path", pa.string()), ("session", pa.int64()), ("expiry", pa.bool_()), ("allowed", pa.bool_()),
])  # fmt: skip
"""As of `zookeeper.data.delta.DeltaFinding`. number: in the order in which they were found; allowed: the
expiry of a session that lives on dest."""

_OWNER = "owner"
_TAKEN = ("zxid", "sequence", "time_ms", "type", "path", "session", "cxid", "multi", "ephemeral", "living")


def owners_of(nodes: DataFrame) -> DataFrame:
    """session and path of the ephemerals among znodes."""
    owner = F.col("ephemeral_owner")
    return nodes.filter(is_session(owner)).select(owner.alias("session"), "path")


def delta_findings(
    log: DataFrame, chroot: str, owners: DataFrame, on_dest: Collection[int], highest: int
) -> DataFrame:
    """FINDINGS of a log that begins behind a zxid. owners: session, path and `living`: whether the session
    lives on dest; as they stood at that zxid. on_dest: more that live there. highest: as of
    `zookeeper.data.delta.delta`. Raises PySparkException when it is read."""
    path = F.col("path")
    above = [one for one in _above(chroot) if one != chroot]
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
    return in_tasks(ordered, _judging(chroot, frozenset(on_dest), highest), FINDINGS)


def _ephemeral() -> Column:
    """Whether an operation creates an ephemeral."""
    return F.col("type").isin("create", "create2") & F.coalesce(F.col("ephemeral_owner") != 0, F.lit(False))


def _above(chroot: str) -> Iterator[str]:
    """The chroot and all that is above it."""
    while True:
        yield chroot
        if chroot == "/":
            return
        chroot = chroot.rpartition("/")[0] or "/"


# --- in the task


def _judging(
    chroot: str, on_dest: frozenset[int], highest: int
) -> Callable[[Iterable[Plain]], Iterator[tuple[Any, ...]]]:
    def judge(taken: Iterable[Plain]) -> Iterator[tuple[Any, ...]]:
        rows = iter(taken)
        first = next(rows, None)
        owners: dict[int, set[str]] = {}
        living = set(on_dest)
        while first is not None and first.type == _OWNER:
            owners.setdefault(first.session, set()).add(first.path)
            if first.living:
                living.add(first.session)
            first = next(rows, None)
        taking = Judge(chroot, owners, living, highest)
        number = 0
        for _, of_one in groupby(chain([first] if first else [], rows), key=attrgetter("zxid")):
            taking.take(_txn(list(of_one), chroot))
            for one, allowed in _taken(taking):
                yield number, one.zxid, one.time_ms, one.type, one.path, one.session, one.expiry, allowed
                number += 1

    return judge


def _taken(judge: Judge) -> list[tuple[DeltaFinding, bool]]:
    """What it found since; it need not keep them."""
    found = [*((one, False) for one in judge.missing), *((one, True) for one in judge.allowed)]
    judge.missing.clear()
    judge.allowed.clear()
    return found


def _txn(rows: list[Plain], chroot: str) -> Txn:
    """What was left over of a transaction, without data and ACLs."""
    one = rows[0]
    kind = TxnType.multi if one.multi else TxnType[one.type]
    head = TxnHeader(one.session, one.cxid, one.zxid, one.time_ms, kind)
    if kind is TxnType.multi:
        return Txn(head, MultiTxn(tuple(SubTxn(TxnType[row.type], _body(row)) for row in rows)), None)
    if kind is TxnType.closeSession:
        paths = (row.path for row in rows)
        return Txn(
            head, CloseSessionTxn(tuple(p for p in paths if p is not None and is_under(p, chroot))), None
        )
    return Txn(head, _body(one), None)


def _body(row: Plain) -> TxnBody:
    if row.type == OPENS:
        return CreateSessionTxn(0)
    if row.type in ENDS:
        return DeleteTxn(row.path)
    if row.type in CREATES:
        return CreateTxn(row.path, None, (), row.ephemeral, 0)
    return SetACLTxn(row.path, (), 0)
