"""Find open sessions and their ephemerals at the end of a log.

They are computed from the newest snapshot and the transactions after the zxid in its name, by the rules of
`zookeeper.data.tree`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from zkmigrate.spark.input import Input, only_under, under
from zkmigrate.spark.operation_kinds import CLOSES, ENDS, OPENS
from zkmigrate.zookeeper.data.effect import SESSIONS
from zkmigrate.zookeeper.data.logdir import describe_gap
from zkmigrate.zookeeper.data.zxid import follows, format_zxid


@dataclass(frozen=True)
class Extent:
    """The part of history that a log covers.

    records: the number of transactions. zxid: the newest zxid of snapshot and log. begin, end: the times of
    the first and the last transaction; None without transactions. missing: why the state in the snapshot
    cannot be brought forward to `zxid`; "" if it can.
    """

    records: int
    zxid: int
    begin: datetime | None
    end: datetime | None
    missing: str

    @property
    def seconds(self) -> float:
        """The seconds from the first transaction to the last."""
        return (self.end - self.begin).total_seconds() if self.begin and self.end else 0.0


def extent(log: DataFrame, start: int) -> Extent:
    """Read the log once, and return the part of history that it covers.

    start: the snapshot's zxid. Without a snapshot start is 0, and the log must begin with the first
    transaction.
    """
    transactions = log.filter("sequence = 0")  # each has one such row
    epochs = transactions.groupBy((F.col("zxid") > start).alias("behind"), "epoch").agg(
        F.min("zxid").alias("first"),
        F.max("zxid").alias("last"),
        F.count("*").alias("records"),
        F.min("time").alias("begin"),
        F.max("time").alias("end"),
    )
    rows = epochs.orderBy("behind", "epoch").collect()
    return Extent(
        sum(row.records for row in rows),
        max([start, *(row.last for row in rows)]),
        min((row.begin for row in rows), default=None),
        max((row.end for row in rows), default=None),
        _missing(rows, start),
    )


def _missing(rows: Sequence[Row], start: int) -> str:
    """Return a text that says which transaction is missing; "" if none is missing.

    rows: a row for each epoch, beginning with epochs at or below start.
    """
    last: int | None = None
    for row in rows:
        first = format_zxid(row.first)
        if row.behind:
            if last is None or last <= start:
                if found := describe_gap(last, start, row.first):
                    return found
            elif not follows(last, row.first):
                return f"{first} comes directly after {format_zxid(last)}"
            if row.last - row.first + 1 != row.records:
                return f"transactions of {first} to {format_zxid(row.last)} are missing or occur twice"
        last = row.last
    return "" if start or last is not None else "there is no snapshot and no transaction"


def is_session(owner: Column) -> Column:
    """Return the condition that an ephemeralOwner is a session, by the rule of `zookeeper.data.effect`."""
    high, low = (owner.between(some.start, some.stop - 1) for some in SESSIONS)
    return high | low


def events(input: Input) -> DataFrame:
    """Return a row for each opening and closing of a session in the log.

    A closeSession is represented by its first row, because its other rows are the ephemerals that it deletes.
    """
    columns = ("zxid", "time", "session", "cxid", "type", "timeout_ms")
    log = input.log(*columns, "sequence", types=f"{OPENS},{CLOSES}")
    return log.filter("sequence = 0").select(*columns)


def open_sessions(held: DataFrame | None, seen: DataFrame, start: int) -> DataFrame:
    """Return the sessions that are open at the end of the log, each with its timeout_ms.

    held: the sessions in the snapshot; None without a snapshot. seen: the table of `events`. start: the
    snapshot's zxid.
    """
    opened = F.when(F.col("type") == OPENS, F.col("zxid"))
    by_session = seen.filter(F.col("zxid") > start).groupBy("session")
    behind = by_session.agg(
        F.max_by("type", "zxid").alias("last"), F.max_by("timeout_ms", opened).alias("timeout_ms")
    )
    if held is None:
        return behind.filter(F.col("last") == OPENS).select("session", "timeout_ms")
    before = held.select("session", F.col("timeout_ms").alias("before_ms"))
    joined = before.join(behind, "session", "full_outer")
    alive = joined.filter(F.coalesce(F.col("last"), F.lit(OPENS)) == OPENS)
    return alive.select("session", F.coalesce("timeout_ms", "before_ms").alias("timeout_ms"))


def ephemerals(input: Input, seen: DataFrame, start: int) -> DataFrame:
    """Return path and session of the ephemerals at or under the chroot at the end of the log.

    seen: the table of `events`. start: the snapshot's zxid (see `extent`). Ephemerals that a closeSession
    deletes are left out, even if the log does not name them.
    """
    chroot = input.request.chroot
    owner = F.col("ephemeral_owner")
    makes = F.coalesce(is_session(owner), F.lit(False))
    columns = ("path", "zxid", "sequence", "ephemeral_owner")
    behind = input.effects(*columns, "type", fromZxid=format_zxid(start + 1), **only_under(chroot))
    chosen = behind.filter(under(F.col("path"), chroot) & (F.col("type").isin(*ENDS) | makes))
    changes = chosen.select(*columns)
    if input.snapshots:
        there = input.nodes("path", "ephemeral_owner", **only_under(chroot))
        there = there.filter(is_session(owner) & under(F.col("path"), chroot))
        snapped = there.select("path", F.lit(start).alias("zxid"), F.lit(0).alias("sequence"), owner)
        changes = changes.unionByName(snapped)
    last = changes.groupBy("path").agg(F.max(F.struct("zxid", "sequence", "ephemeral_owner")).alias("at"))
    left = last.select("path", F.col("at.ephemeral_owner").alias("session"), F.col("at.zxid").alias("made"))
    closings = seen.filter((F.col("zxid") > start) & (F.col("type") == CLOSES))
    closed = closings.groupBy("session").agg(F.max("zxid").alias("closed"))
    alive = left.filter(F.col("session").isNotNull()).join(closed, "session", "left")
    return alive.filter(F.coalesce(F.col("closed") < F.col("made"), F.lit(True))).select("path", "session")
