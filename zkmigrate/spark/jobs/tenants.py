"""tenants: who lives in this ensemble, how large each is, and how much each writes; and the znodes and lists
of children that come near jute.maxbuffer."""

from __future__ import annotations

from collections import Counter

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from zkmigrate.errors import UsageError
from zkmigrate.model.report import Table
from zkmigrate.spark.charts import Bar, bars
from zkmigrate.spark.input import Input, only
from zkmigrate.spark.open_sessions import is_session
from zkmigrate.spark.plain_rows import moment, plain
from zkmigrate.spark.section import Picture, Section
from zkmigrate.spark.sizes import base_snapshot, znodes
from zkmigrate.zookeeper.data.four_letter_words import WordError, parse_wchp

_CHILD_BYTES = 4
"""Jute writes a name with its length before it."""

_NEAR = 0.5
"""A znode or a list of children is told from this share of jute.maxbuffer on."""


def run(input: Input) -> Section:
    """The job. A write is an operation that had an effect and names a znode, a deletion by a closing session
    among them."""
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


def _watches(input: Input) -> DataFrame | None:
    """By subtree, from saved answers; None where none was given. Raises UsageError for what is no answer."""
    if not input.request.watches:
        return None
    counts: Counter[str] = Counter()
    for file in input.request.watches:
        try:
            answer = parse_wchp(file.read_text(encoding="utf-8"))
        except (WordError, UnicodeDecodeError) as error:
            raise UsageError(f"{file}: {error}. Needed: the whole answer of a server to wchp") from error
        counts.update({path: len(sessions) for path, sessions in answer.items()})
    frame = input.spark.createDataFrame(list(counts.items()), "path string, watches bigint")
    by_subtree = frame.groupBy(subtree(F.col("path"), input.request.depth).alias("subtree"))
    return by_subtree.agg(F.sum("watches").alias("watches"))


def subtree(path: Column, depth: int) -> Column:
    """The first elements of a path; the root is a subtree of its own."""
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
    """The writes of a session to a path."""
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
    """Parents by the bytes of the reply that lists their children."""
    parent = F.regexp_replace("path", "/[^/]*$", "")
    parents = nodes.filter("path != '/'").select(
        F.when(parent == "", "/").otherwise(parent).alias("path"),
        F.octet_length(F.element_at(F.split("path", "/"), -1)).alias("name_bytes"),
    )
    bytes_of = F.sum(F.col("name_bytes") + _CHILD_BYTES).alias("reply_bytes")
    return (
        parents.groupBy("path")
        .agg(F.count("*").alias("children"), bytes_of)
        .orderBy(F.desc("reply_bytes"), "path")
    )


def _section(input: Input, frame: DataFrame, largest: DataFrame, lists: DataFrame, minutes: float) -> Section:
    request, top = input.request, input.request.top
    rows = frame.collect()
    big, long = largest.limit(top).collect(), lists.limit(top).collect()
    near = request.jute_maxbuffer * _NEAR
    dangers = [f"{row.path}: {row.data_length} bytes" for row in big if row.data_length >= near]
    dangers += [f"children of {row.path}: {row.reply_bytes} bytes" for row in long if row.reply_bytes >= near]
    snapshot = base_snapshot(input)
    base = f"{snapshot.name} of {snapshot.server} and the log behind it" if snapshot else "the log alone"
    largest_request = f"jute.maxbuffer ({request.jute_maxbuffer} bytes)"
    near_it = f"From {_NEAR:.0%} of {largest_request} on: {'; '.join(dangers[:top])}."
    answer = (
        f"{len(rows)} subtrees, {sum(row.znodes for row in rows)} znodes by {base}; "
        f"{sum(row.writes for row in rows)} writes in the {minutes:.1f} minutes that the log of "
        f"{input.reference} covers. " + (near_it if dangers else f"Nothing comes near {largest_request}.")
    )
    tables = (
        _subtrees(rows[:top]),
        Table(
            "largest", "Largest znodes", ("path", "bytes", "of jute.maxbuffer"),
            tuple((r.path, str(r.data_length), f"{r.data_length / request.jute_maxbuffer:.1%}") for r in big),
            wide=(0,),
        ),
        Table(
            "lists", "Longest lists of children", ("parent", "children", "reply bytes", "of jute.maxbuffer"),
            tuple(
                (r.path, str(r.children), str(r.reply_bytes), f"{r.reply_bytes / request.jute_maxbuffer:.1%}")
                for r in long
            ),
            wide=(0,),
        ),
    )  # fmt: skip
    written = [Bar(row.subtree, float(row.writes_per_minute)) for row in rows[:top]]
    held = sorted(rows, key=lambda row: -row.bytes)[:top]
    pictures = (
        Picture(bars("tenants-writes", "Writes per minute", written), "Operations that had an effect."),
        Picture(
            bars("tenants-bytes", "Bytes", [Bar(row.subtree, float(row.bytes)) for row in held]),
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


def _subtrees(rows: list[Row]) -> Table:
    watched = bool(rows) and "watches" in rows[0]
    head = ("subtree", "znodes", "bytes", "depth", "ephemerals", "owners", "writes", "per minute", "sessions",
            "last write", *(["watches"] if watched else []))  # fmt: skip
    cells = tuple(
        (
            row.subtree, str(row.znodes), str(row.bytes), str(row.depth), str(row.ephemerals),
            str(row.owners), str(row.writes), f"{row.writes_per_minute:g}", str(row.sessions),
            moment(row.last_write), *([str(row.watches)] if watched else []),
        )
        for row in rows
    )  # fmt: skip
    return Table("subtrees", "Subtrees", head, cells, wide=(0,))
