"""The znodes at the end of the log with what their size needs: the newest snapshot, rolled forward by what
stands behind the zxid in its name.

For each path the last operation that creates or deletes it says whether it is there, the last that carries
data how much. That holds over a fuzzy snapshot too, which may have some of these changes already. Versions
and other fields of the stat are not told: for those see `rolled`."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from zkmigrate.errors import UsageError
from zkmigrate.spark.input import Input, epoch, place_in_epoch
from zkmigrate.spark.operation_kinds import CLOSES, CREATES, ENDS, WRITES
from zkmigrate.spark.sources.files import File
from zkmigrate.zookeeper.data.effect import SYSTEM_ROOT
from zkmigrate.zookeeper.data.logdir import hole
from zkmigrate.zookeeper.data.snapname import snapshot_zxid
from zkmigrate.zookeeper.data.txnlog import log_zxid
from zkmigrate.zookeeper.data.zxid import format_zxid

_FIRST = ("/", SYSTEM_ROOT, f"{SYSTEM_ROOT}/quota")
"""What a server makes before its first transaction."""

_COLUMNS = "path string, data_length int, ephemeral_owner bigint"


def base_snapshot(input: Input) -> File | None:
    """The snapshot to begin from; None: nothing, since the log begins with the first transaction. Raises
    UsageError where it is neither."""
    if input.snapshots:
        return input.snapshot
    first = log_zxid(input.logs_by_server[input.reference][0].name) or 0
    if found := hole(None, 0, first):
        raise UsageError(
            f"no snapshot, and the log of {input.reference} does not begin at the start: {found}"
        )
    return None


def znodes(input: Input) -> DataFrame:
    """Columns: path, data_length (-1: null data), ephemeral_owner. Raises UsageError where there is no
    snapshot and the log does not begin with the first transaction."""
    snapshot = base_snapshot(input)
    start = 0 if snapshot is None else snapshot_zxid(snapshot.name) or 0
    behind = input.effects(
        "zxid", "sequence", "session", "type", "path", "data_length", "ephemeral_owner",
        fromZxid=format_zxid(start + 1),
    )  # fmt: skip
    kind = F.col("type")
    creates, lives, data = (kind.isin(*of) for of in (CREATES, (*CREATES, *ENDS), (*CREATES, *WRITES)))
    place = place_in_epoch()
    of_epochs = (
        behind.filter(F.col("path").isNotNull() & (lives | data))
        .groupBy("path", epoch().alias("epoch"))
        .agg(
            F.max_by(creates, F.when(lives, place)).alias("made"),
            F.max_by("data_length", F.when(data, place)).alias("new_length"),
            F.max_by("ephemeral_owner", F.when(creates, place)).alias("new_owner"),
        )
    )
    # None of the three is null where such an operation was.
    last = of_epochs.groupBy("path").agg(
        *(
            F.max_by(name, F.when(F.col(name).isNotNull(), F.col("epoch"))).alias(name)
            for name in ("made", "new_length", "new_owner")
        )
    )
    if snapshot is None:
        before = input.spark.createDataFrame([(path, 0, 0) for path in _FIRST], _COLUMNS)
    else:
        before = input.nodes("path", "data_length", "ephemeral_owner")
    joined = before.join(last, "path", "full_outer").filter(
        F.coalesce("made", F.col("data_length").isNotNull())
    )
    found = joined.select(
        "path",
        F.coalesce("new_length", "data_length").alias("data_length"),
        F.coalesce("new_owner", "ephemeral_owner").alias("ephemeral_owner"),
    )
    # 3.4 and 3.5 do not log what a closing session deletes. A session is never opened again.
    closed = behind.filter(kind == CLOSES).select(F.col("session").alias("ephemeral_owner")).distinct()
    return found.join(F.broadcast(closed), "ephemeral_owner", "left_anti")
