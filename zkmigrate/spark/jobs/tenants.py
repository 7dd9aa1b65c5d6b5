"""Measure how large each subtree of an ensemble is and how much is written to it, for the job ``tenants``.

The job also reports znodes and lists of children whose size is near jute.maxbuffer.
"""

from __future__ import annotations

from collections import Counter

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from zkmigrate import input_file
from zkmigrate.errors import UsageError
from zkmigrate.spark.charts import Bar, bars
from zkmigrate.spark.input import Input, epoch, only, place_in_epoch
from zkmigrate.spark.open_sessions import is_session
from zkmigrate.spark.operation_kinds import CLOSES, CREATES, ENDS, WRITES
from zkmigrate.spark.plain_rows import Cell, plain, table
from zkmigrate.spark.section import Picture, Section
from zkmigrate.spark.sources.files import File
from zkmigrate.zookeeper.data.chroot import SERVERS_OWN
from zkmigrate.zookeeper.data.four_letter_words import WordError, parse_wchp
from zkmigrate.zookeeper.data.logdir import describe_gap
from zkmigrate.zookeeper.data.snapname import snapshot_zxid
from zkmigrate.zookeeper.data.txnlog import log_zxid
from zkmigrate.zookeeper.data.zxid import format_zxid

_CHILD_BYTES = 4
"""The number of bytes of the length that jute writes before a name."""
_NEAR = 0.5
"""The share of jute.maxbuffer from which a znode or a list of children is reported."""

_NODES = "path string, data_length int, ephemeral_owner bigint"


def run(input: Input) -> Section:
    """Run the job.

    A write is an operation with an effect that names a znode, including a deletion by a closing session.
    """
    nodes = znodes(input).withColumn("subtree", subtree(F.col("path"), input.request.depth)).persist()
    log = input.effects("time", "session", "path", "data_length").filter(F.col("path").isNotNull())
    written = input.reused(_written(log))
    span = only(written.agg(F.min("first_write"), F.max("last_write")))
    minutes = max((span[1] - span[0]).total_seconds() / 60, 1 / 60) if span[0] else 0.0
    joined = _sizes(nodes).join(_writes(written, input.request.depth), "subtree", "full_outer")
    if (watches := _watches(input)) is not None:
        joined = joined.join(watches, "subtree", "full_outer")
    rate = F.round(F.col("writes") / minutes, 3) if minutes else F.lit(0.0)
    counts = [name for name in joined.columns if name not in ("subtree", "last_write")]
    frame = joined.na.fill(0, counts).withColumn("writes_per_minute", rate)
    frame = input.once(frame.orderBy(F.desc("writes"), F.desc("bytes"), "subtree"))
    largest = nodes.select("path", "data_length").orderBy(F.desc("data_length"), "path")
    return _section(input, frame, largest, input.once(_lists(nodes)), minutes)


def base_snapshot(input: Input) -> File | None:
    """Return the snapshot to begin from, or None if the log begins with the first transaction.

    Raises UsageError if there is no snapshot and the log does not begin with the first transaction.
    """
    if input.snapshots:
        return input.snapshot
    first = log_zxid(input.logs_by_server[input.reference][0].name) or 0
    if found := describe_gap(None, 0, first):
        log = f"the log of {input.reference}"
        raise UsageError(
            f"there is no snapshot, and {log} does not begin with the first transaction: {found}"
        )
    return None


def znodes(input: Input) -> DataFrame:
    """Return the znodes at the end of the log: path, data_length (-1: null data) and ephemeral_owner.

    For other fields see `subtree_at`. Raises the errors of `base_snapshot`. For each path, the last operation
    that creates or deletes it decides whether the znode exists, and the last operation with data decides the
    length of the data. That is also true for a fuzzy snapshot, which may already have some of these changes.
    """
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
    # Each of the three is null only if the epoch has no such operation.
    last = of_epochs.groupBy("path").agg(
        *(
            F.max_by(name, F.when(F.col(name).isNotNull(), F.col("epoch"))).alias(name)
            for name in ("made", "new_length", "new_owner")
        )
    )
    if snapshot is None:
        before = input.spark.createDataFrame([(path, 0, 0) for path in SERVERS_OWN], _NODES)
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


def _watches(input: Input) -> DataFrame | None:
    """Return the number of watches by subtree, from saved answers to wchp; None if no answer was given.

    Raises UsageError for a file that is not an answer to wchp.
    """
    if not input.request.watches:
        return None
    counts: Counter[str] = Counter()
    for file in input.request.watches:
        try:
            answer = parse_wchp(input_file.content(file).decode())
        except (WordError, UnicodeDecodeError) as error:
            raise UsageError(f"{file}: {error}. Needed: the complete answer of a server to wchp") from error
        counts.update({path: len(sessions) for path, sessions in answer.items()})
    frame = input.spark.createDataFrame(list(counts.items()), "path string, watches bigint")
    by_subtree = frame.groupBy(subtree(F.col("path"), input.request.depth).alias("subtree"))
    return by_subtree.agg(F.sum("watches").alias("watches"))


def subtree(path: Column, depth: int) -> Column:
    """Return the first `depth` elements of a path, which name a subtree. The root is a subtree by itself."""
    return F.concat(F.lit("/"), F.array_join(F.slice(F.split(path, "/"), 2, depth), "/"))


def _sizes(nodes: DataFrame) -> DataFrame:
    ephemeral = is_session(F.col("ephemeral_owner"))
    elements = F.when(F.col("path") == "/", 0).otherwise(F.size(F.split("path", "/")) - 1)
    return nodes.groupBy("subtree").agg(
        F.count("*").alias("znodes"),
        F.sum(F.greatest("data_length", F.lit(0))).alias("bytes"),
        F.max(elements).alias("depth"),
        F.count_if(ephemeral).alias("ephemerals"),
        F.count_distinct(F.when(ephemeral, F.col("ephemeral_owner"))).alias("owners"),
    )


def _written(log: DataFrame) -> DataFrame:
    """Return the number, bytes and times of the writes of each session to each path."""
    sent = F.greatest(F.coalesce("data_length", F.lit(0)), F.lit(0))
    return log.groupBy("path", "session").agg(
        F.count("*").alias("writes"),
        F.sum(sent).alias("bytes_written"),
        F.min("time").alias("first_write"),
        F.max("time").alias("last_write"),
    )


def _writes(written: DataFrame, depth: int) -> DataFrame:
    return written.groupBy(subtree(F.col("path"), depth).alias("subtree")).agg(
        F.sum("writes").alias("writes"),
        F.sum("bytes_written").alias("bytes_written"),
        F.count_distinct("session").alias("sessions"),
        F.max("last_write").alias("last_write"),
    )


def _lists(nodes: DataFrame) -> DataFrame:
    """Return each parent znode with the bytes of the reply that lists its children, largest first."""
    parent = F.regexp_replace("path", "/[^/]*$", "")
    parents = nodes.filter("path != '/'").select(
        F.when(parent == "", "/").otherwise(parent).alias("path"),
        F.octet_length(F.element_at(F.split("path", "/"), -1)).alias("name_bytes"),
    )
    reply_bytes = F.sum(F.col("name_bytes") + _CHILD_BYTES).alias("reply_bytes")
    found = parents.groupBy("path").agg(F.count("*").alias("children"), reply_bytes)
    return found.orderBy(F.desc("reply_bytes"), "path")


def _section(input: Input, frame: DataFrame, largest: DataFrame, lists: DataFrame, minutes: float) -> Section:
    request, top = input.request, input.request.top
    rows = frame.collect()
    big, long = largest.limit(top).collect(), lists.limit(top).collect()
    near = request.jute_maxbuffer * _NEAR
    dangers = [f"{row.path}: {row.data_length} bytes" for row in big if row.data_length >= near]
    dangers += [f"children of {row.path}: {row.reply_bytes} bytes" for row in long if row.reply_bytes >= near]
    snapshot = base_snapshot(input)
    base = f"{snapshot.name} of {snapshot.server} and the log after it" if snapshot else "only the log"
    largest_request = f"jute.maxbuffer ({request.jute_maxbuffer} bytes)"
    near_it = f"At least {_NEAR:.0%} of {largest_request}: {'; '.join(dangers[:top])}."
    answer = (
        f"{len(rows)} subtrees, {sum(row.znodes for row in rows)} znodes by {base}; "
        f"{sum(row.writes for row in rows)} writes in the {minutes:.1f} minutes that the log of "
        f"{input.reference} covers. "
        + (near_it if dangers else f"No request comes close to {largest_request}.")
    )

    def share(column: str) -> tuple[str, Cell]:
        return "of jute.maxbuffer", lambda row: f"{row[column] / request.jute_maxbuffer:.1%}"

    columns = _SUBTREE_COLUMNS if "watches" in frame.columns else _SUBTREE_COLUMNS[:-1]
    tables = (
        table("subtrees", "Subtrees", rows[:top], columns, wide=(0,)),
        table("largest", "Largest znodes", big,
              [("path", "path"), ("bytes", "data_length"), share("data_length")], wide=(0,)),
        table("lists", "Longest lists of children", long,
              [("parent", "path"), ("children", "children"), ("reply bytes", "reply_bytes"),
               share("reply_bytes")], wide=(0,)),
    )  # fmt: skip
    written = [Bar(row.subtree, float(row.writes_per_minute)) for row in rows[:top]]
    held = sorted(rows, key=lambda row: -row.bytes)[:top]
    pictures = (
        Picture(bars("Writes per minute", written), "Operations that changed a znode."),
        Picture(
            bars("Bytes", [Bar(row.subtree, float(row.bytes)) for row in held]),
            "Data of the znodes, without their names and stats.",
        ),
    )
    figures = {
        "server": input.reference,
        "snapshot": snapshot.name if snapshot else None,
        "minutes": round(minutes, 3),
        "subtrees": [plain(row) for row in rows],
        "largest": [plain(row) for row in big],
        "longest_lists": [plain(row) for row in long],
        "near_jute_maxbuffer": dangers,
    }
    return Section("Tenants", answer, figures, tables, pictures, {"subtrees": frame, "lists": lists})


_SUBTREE_COLUMNS: list[tuple[str, Cell]] = [
    *((name, name) for name in ("subtree", "znodes", "bytes", "depth", "ephemerals", "owners", "writes")),
    ("per minute", lambda row: f"{row.writes_per_minute:g}"), ("sessions", "sessions"),
    ("last write", "last_write"), ("watches", "watches"),
]  # fmt: skip
