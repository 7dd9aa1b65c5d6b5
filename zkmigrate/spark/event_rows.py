"""What happened when, as rows of one table: out of a run's folder, clients' histories, brokers' text logs and
ZooKeeper's logs. Each has its own clock; they are laid side by side as they are."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from zkmigrate.errors import UsageError
from zkmigrate.model.report import Report
from zkmigrate.report.timebase import Timebase
from zkmigrate.spark.input import Input, only, under
from zkmigrate.spark.operation_kinds import CLOSES, OPENS
from zkmigrate.spark.request import Place
from zkmigrate.spark.sources.segments import LATEST_MS

EVENTS = pa.schema([
    ("at", pa.timestamp("us", tz="UTC")), ("source", pa.string()), ("kind", pa.string()),
    ("who", pa.string()), ("what", pa.string()), ("zxid", pa.int64()), ("session", pa.int64()),
    ("path", pa.string()), ("count", pa.int64()),
])  # fmt: skip
"""Columns of a timeline. source: journal, samples, zookeeper, client, broker. kind: what sort of thing
happened: step, change, decision, window, silence, ack, write, session, client, controller. who: a host, a
client, a broker, a step. count: how many of them, one but for the writes of a second."""

ACK = "ack"
_SAME_S = 1.0
"""A client whose two clocks agree so well with the operator's runs on the operator's machine."""
_URI = re.compile(r"[a-z][a-z0-9+.-]*://")
_GLOB = re.compile(r"([*?\[\]{}\\])")
_LINE = (
    "event string, mono_ns double, epoch_ms double, host string, op string, outcome string, error string, "
    "reason string, topic string, partition int, offset long, path string, zxid string, session string"
)
_DATED = r"^\[?(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[,.](\d{3})\]?\s+(.*)$"
_CONTROLLER = r"\[(Quorum)?Controller |\(kafka\.controller\.|ControllerEventThread|\[KafkaController"
_SESSIONS = (
    r"ZooKeeperClient|ClientCnxn|(?i)session (has )?(been )?(expired|timed out|establish)|sessionid|"
    r"\breconnect"
)
_SESSION_ID = r"(?i)session(?:id)?\s*[:=]?\s*(0x[0-9a-f]{1,16})\b"


def run_events(spark: SparkSession, report: Report) -> DataFrame:
    """The journal's steps, changes, decisions and windows, and what the run's samples say of brokers."""
    rows = [*_journal(report), *_samples(report)]
    names = ("at", "source", "kind", "who", "what")
    filled = [{**dict(zip(names, row, strict=True)), "at": round(row[0] * 1e6), "count": 1} for row in rows]
    return spark.createDataFrame(pa.Table.from_pylist(filled, schema=EVENTS))


_Row = tuple[float, str, str, str, str]


def _journal(report: Report) -> Iterable[_Row]:
    for visit in report.visits:
        way = " back" if visit.back else ""
        yield visit.start, "journal", "step", visit.step, f"begins{way}"
        if visit.end is not None:
            yield visit.end, "journal", "step", visit.step, f"{visit.outcome}{way}"
        for op in visit.ops:
            words = op.change.describe()
            yield op.sent, "journal", "change", op.target, f"sent: {words}"
            if op.ended is not None:
                yield op.ended, "journal", "change", op.target, f"{op.status}: {words}"
    for decision in report.decisions:
        told = " ".join(part for part in (decision.what, decision.answer, decision.by) if part)
        yield decision.at, "journal", "decision", decision.where, f"{decision.kind}: {told}"
    for window in report.windows:
        kind = "rehearsed window" if window.rehearsal else "window"
        yield window.start, "journal", "window", window.stage, f"{kind} begins: FENCE"
        if window.end is not None:
            yield window.end, "journal", "window", window.stage, f"{kind} ends: {window.outcome}"


def _samples(report: Report) -> Iterable[_Row]:
    for beat in report.beats:
        if beat.ms is None:
            yield beat.at, "samples", "silence", beat.broker, f"no answer: {beat.why}"
    for one in report.produced:
        for at, ms in one.took:
            yield at, "samples", ACK, one.partition, f"acknowledged after {ms:.0f} ms"


def read_lines(spark: SparkSession, place: Place) -> DataFrame:
    """A text file's lines as the column value. Raises UsageError where there is none."""
    path = place.path
    if not _URI.match(path):
        if not Path(path).is_file():
            raise UsageError(f"{path} is no file. Needed: a text file that is there, or a URI of one")
        path = f"{Path(path).absolute()}"
        path = _GLOB.sub(r"\\\1", path)  # Spark takes each path for a pattern
    return spark.read.text(path)


def named(place: Place) -> str:
    """Who wrote a file: as the operator names it, else by the file's name."""
    return place.server or Path(place.path).stem


def client_events(spark: SparkSession, place: Place, times: Timebase) -> tuple[DataFrame, int, bool]:
    """A client's history in the lines of `zkmigrate.lab.load`; how many lines are none or have no time; and
    whether it was timed by the operator's monotonic clock."""
    lines = (
        read_lines(spark, place)
        .filter(F.trim("value") != "")
        .select(F.from_json("value", _LINE).alias("one"))
    )
    rows = lines.select("one.*")
    both = rows.filter(F.col("event").isNotNull() & (F.col("mono_ns") > 0) & (F.col("epoch_ms") > 0)).first()
    own = both is not None and abs(times.of_mono(both.mono_ns / 1e9) - both.epoch_ms / 1e3) <= _SAME_S
    mono, wall = F.col("mono_ns") / 1e9 + times.of_mono(0.0), F.col("epoch_ms") / 1e3
    seconds = F.coalesce(mono, wall) if own else F.coalesce(wall, mono)
    good = F.col("event").isNotNull() & seconds.between(0, LATEST_MS // 1000)
    acked = (F.col("event") == "ack") | ((F.col("event") == "op") & (F.col("outcome") == "ok"))
    where = F.concat_ws("-", "topic", F.col("partition").cast("string"))
    found = rows.filter(good).select(
        F.timestamp_micros(F.round(seconds * 1e6).try_cast("long")).alias("at"),
        F.lit("client").alias("source"),
        F.when(acked, ACK).otherwise("client").alias("kind"),
        F.lit(named(place)).alias("who"),
        F.concat_ws(
            " ", "event", "op", F.when(where != "", where), F.col("offset").cast("string"), "host", "outcome",
            "error", "reason",
        ).alias("what"),
        _hex("zxid").alias("zxid"),
        _hex("session").alias("session"),
        "path",
        F.lit(1).cast("long").alias("count"),
    )  # fmt: skip
    bad = rows.filter(~F.coalesce(good, F.lit(False))).count()
    return found, bad, own


def broker_events(spark: SparkSession, place: Place, zone: str) -> tuple[DataFrame, int, int]:
    """A broker's lines about the controller and its ZooKeeper sessions; how many lines it has in all, and how
    many of them without a time, which belong to the line before. zone: in which it was written."""
    lines = read_lines(spark, place).filter(F.trim("value") != "")
    clock = F.concat(F.regexp_extract("value", _DATED, 1), F.lit("."), F.regexp_extract("value", _DATED, 2))
    local = F.try_to_timestamp(clock, F.lit("yyyy-MM-dd HH:mm:ss.SSS"))
    rows = lines.select(
        F.to_utc_timestamp(local, zone).alias("at"), F.regexp_extract("value", _DATED, 3).alias("what")
    )
    controller, session = F.col("what").rlike(_CONTROLLER), F.col("what").rlike(_SESSIONS)
    found = rows.filter(F.col("at").isNotNull() & (controller | session)).select(
        "at",
        F.lit("broker").alias("source"),
        F.when(controller, "controller").otherwise("session").alias("kind"),
        F.lit(named(place)).alias("who"),
        "what",
        F.lit(None).cast("long").alias("zxid"),
        _hex_text(F.regexp_extract("what", _SESSION_ID, 1)).alias("session"),
        F.lit(None).cast("string").alias("path"),
        F.lit(1).cast("long").alias("count"),
    )
    counted = only(rows.agg(F.count("*"), F.count_if(F.col("at").isNull())))
    return found, int(counted[0]), int(counted[1])


def zookeeper_events(input: Input, begin: float, end: float) -> DataFrame:
    """The writes under the chroot, summed up by the second, and the beginnings and ends of sessions, between
    two moments; of source's log and, where it was named, of dest's."""
    request = input.request
    sides = [input, *([Input(input.spark, request, request.dest)] if request.dest else [])]
    first, last = (F.lit(datetime.fromtimestamp(at, UTC)) for at in (begin, end))
    columns = ("zxid", "sequence", "time", "session", "type", "path", "timeout_ms")
    parts = [
        side.effects(*columns).filter((F.col("time") >= first) & (F.col("time") <= last)) for side in sides
    ]
    log = parts[0]
    if len(parts) > 1:  # until FENCE dest has what source has
        log = log.unionByName(parts[1]).dropDuplicates(["zxid", "sequence", "time"])
    sessions = (OPENS, CLOSES)
    writes = (
        log.filter(under(F.col("path"), request.chroot) & ~F.col("type").isin(*sessions))
        .groupBy(F.date_trunc("second", "time").alias("at"))
        .agg(F.max("zxid").alias("zxid"), F.count("*").alias("count"))
        .select(
            "at",
            F.lit("zookeeper").alias("source"),
            F.lit("write").alias("kind"),
            F.lit(request.chroot).alias("who"),
            F.concat(F.col("count").cast("string"), F.lit(" writes in this second")).alias("what"),
            "zxid",
            F.lit(None).cast("long").alias("session"),
            F.lit(request.chroot).alias("path"),
            "count",
        )
    )
    timeout = F.concat(F.lit("session begins, timeout "), F.col("timeout_ms").cast("string"), F.lit(" ms"))
    ended = log.filter(F.col("type").isin(*sessions) & (F.col("sequence") == 0)).select(
        F.col("time").alias("at"),
        F.lit("zookeeper").alias("source"),
        F.lit("session").alias("kind"),
        F.lit("").alias("who"),
        F.when(F.col("type") == OPENS, timeout).otherwise("session closed").alias("what"),
        "zxid",
        "session",
        F.lit(None).cast("string").alias("path"),
        F.lit(1).cast("long").alias("count"),
    )
    return writes.unionByName(ended)


def _hex(name: str) -> Column:
    return _hex_text(F.col(name))


def _hex_text(text: Column) -> Column:
    """Hexadecimal text as a signed long; null for what is none."""
    digits = F.regexp_extract(text, r"^0x([0-9a-f]{1,16})$", 1)
    return F.when(digits != "", F.conv(digits, 16, -10).cast("long"))
