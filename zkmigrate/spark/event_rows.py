"""The events of a run's folder, clients' histories, brokers' text logs and ZooKeeper's logs as rows of one
table. Each source has its own clock; none is corrected."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from zkmigrate.errors import UsageError
from zkmigrate.kafka.disks.segments import LATEST_MS
from zkmigrate.report.timebase import Timebase
from zkmigrate.runbook.model.report import Report
from zkmigrate.spark.input import Input, only, under
from zkmigrate.spark.operation_kinds import CLOSES, OPENS
from zkmigrate.spark.request import Place

EVENTS = pa.schema([
    ("at", pa.timestamp("us", tz="UTC")), ("source", pa.string()), ("kind", pa.string()),
    ("who", pa.string()), ("what", pa.string()), ("zxid", pa.int64()), ("session", pa.int64()),
    ("path", pa.string()), ("count", pa.int64()),
])  # fmt: skip
"""Columns of a timeline. source: journal, samples, zookeeper, client, broker. kind: step, change, decision,
window, silence, ack, write, session, client, controller. who: a host, a client, a broker, a step. count: 1,
but for the writes of a second."""

ACK = "ack"
_SAME_S = 1.0
"""A client runs on the operator's machine if its two clocks agree with the operator's to this."""
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
    """The journal's steps, changes, decisions and windows, and the run's samples of brokers."""
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
        words = " ".join(part for part in (decision.what, decision.answer, decision.by) if part)
        yield decision.at, "journal", "decision", decision.where, f"{decision.kind}: {words}"
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
    """A text file's lines as the column value. Raises UsageError without a file."""
    path = place.path
    if not _URI.match(path):
        if not Path(path).is_file():
            raise UsageError(f"{path} is not a file. Needed: a text file that is there, or a URI of one")
        path = _GLOB.sub(r"\\\1", str(Path(path).absolute()))  # Spark reads each path as a pattern
    return spark.read.text(path)


def named(place: Place) -> str:
    """Who wrote a file: by the operator's name for it, else by the file's name."""
    return place.server or Path(place.path).stem


def client_events(spark: SparkSession, place: Place, times: Timebase) -> tuple[DataFrame, int, bool]:
    """A client's history in the lines of `zkmigrate.lab.load`; how many lines are not events or have no time;
    and whether it was timed by the operator's monotonic clock."""
    lines = read_lines(spark, place).filter(F.trim("value") != "")
    rows = lines.select(F.from_json("value", _LINE).alias("one")).select("one.*")
    both = rows.filter(F.col("event").isNotNull() & (F.col("mono_ns") > 0) & (F.col("epoch_ms") > 0)).first()
    own = both is not None and abs(times.of_mono(both.mono_ns / 1e9) - both.epoch_ms / 1e3) <= _SAME_S
    mono, wall = F.col("mono_ns") / 1e9 + times.of_mono(0.0), F.col("epoch_ms") / 1e3
    seconds = F.coalesce(mono, wall) if own else F.coalesce(wall, mono)
    good = F.col("event").isNotNull() & seconds.between(0, LATEST_MS // 1000)
    acked = (F.col("event") == "ack") | ((F.col("event") == "op") & (F.col("outcome") == "ok"))
    where = F.concat_ws("-", "topic", F.col("partition").cast("string"))
    what = ("event", "op", F.when(where != "", where), F.col("offset").cast("string"), "host", "outcome",
            "error", "reason")  # fmt: skip
    found = _events(
        rows.filter(good),
        at=F.timestamp_micros(F.round(seconds * 1e6).try_cast("long")),
        source=F.lit("client"),
        kind=F.when(acked, ACK).otherwise("client"),
        who=F.lit(named(place)),
        what=F.concat_ws(" ", *what),
        zxid=_hex(F.col("zxid")),
        session=_hex(F.col("session")),
        path=F.col("path"),
    )
    bad = rows.filter(~F.coalesce(good, F.lit(False))).count()
    return found, bad, own


def broker_events(spark: SparkSession, place: Place, zone: str) -> tuple[DataFrame, int, int]:
    """A broker's lines about the controller and its ZooKeeper sessions; how many lines there are in all, and
    how many without a time, which belong to the line before. zone: of the times."""
    lines = read_lines(spark, place).filter(F.trim("value") != "")
    clock = F.concat(F.regexp_extract("value", _DATED, 1), F.lit("."), F.regexp_extract("value", _DATED, 2))
    local = F.try_to_timestamp(clock, F.lit("yyyy-MM-dd HH:mm:ss.SSS"))
    rows = lines.select(
        F.to_utc_timestamp(local, zone).alias("at"), F.regexp_extract("value", _DATED, 3).alias("what")
    )
    controller, session = F.col("what").rlike(_CONTROLLER), F.col("what").rlike(_SESSIONS)
    found = _events(
        rows.filter(F.col("at").isNotNull() & (controller | session)),
        at=F.col("at"),
        source=F.lit("broker"),
        kind=F.when(controller, "controller").otherwise("session"),
        who=F.lit(named(place)),
        what=F.col("what"),
        session=_hex(F.regexp_extract("what", _SESSION_ID, 1)),
    )
    counted = only(rows.agg(F.count("*"), F.count_if(F.col("at").isNull())))
    return found, int(counted[0]), int(counted[1])


def zookeeper_events(input: Input, begin: float, end: float) -> DataFrame:
    """The writes under the chroot, summed by the second, and the beginnings and ends of sessions between two
    times; of source's log and, if it was named, of dest's."""
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
    written = log.filter(under(F.col("path"), request.chroot) & ~F.col("type").isin(*sessions))
    by_second = written.groupBy(F.date_trunc("second", "time").alias("at"))
    writes = _events(
        by_second.agg(F.max("zxid").alias("zxid"), F.count("*").alias("count")),
        at=F.col("at"),
        source=F.lit("zookeeper"),
        kind=F.lit("write"),
        who=F.lit(request.chroot),
        what=F.concat(F.col("count").cast("string"), F.lit(" writes in this second")),
        zxid=F.col("zxid"),
        path=F.lit(request.chroot),
        count=F.col("count"),
    )
    timeout = F.concat(F.lit("session begins, timeout "), F.col("timeout_ms").cast("string"), F.lit(" ms"))
    ended = _events(
        log.filter(F.col("type").isin(*sessions) & (F.col("sequence") == 0)),
        at=F.col("time"),
        source=F.lit("zookeeper"),
        kind=F.lit("session"),
        who=F.lit(""),
        what=F.when(F.col("type") == OPENS, timeout).otherwise("session closed"),
        zxid=F.col("zxid"),
        session=F.col("session"),
    )
    return writes.unionByName(ended)


def _events(frame: DataFrame, **columns: Column) -> DataFrame:
    """Rows of EVENTS. columns: null if absent, `count` 1."""
    absent = {"count": F.lit(1)}
    return frame.select(
        *(
            columns.get(field.name, absent.get(field.name, F.lit(None)))
            .cast(field.dataType)
            .alias(field.name)
            for field in from_arrow_schema(EVENTS)
        )
    )


def _hex(text: Column) -> Column:
    """Hexadecimal text as a signed long; null for another text."""
    digits = F.regexp_extract(text, r"^0x([0-9a-f]{1,16})$", 1)
    return F.when(digits != "", F.conv(digits, 16, -10).cast("long"))
