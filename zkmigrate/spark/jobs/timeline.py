"""timeline: a run beside the records of ZooKeeper, clients and brokers: what happened in which order, and
what else happened while a client waited."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F

from zkmigrate.errors import UsageError
from zkmigrate.report import sources
from zkmigrate.report.build import build
from zkmigrate.report.timebase import Timebase
from zkmigrate.runbook.model import report as value
from zkmigrate.runbook.model.playbook import Playbook
from zkmigrate.runbook.model.report import Table, length, move_of
from zkmigrate.runbook.runs import playbook_files
from zkmigrate.spark.charts import over_time
from zkmigrate.spark.event_rows import ACK, broker_events, client_events, run_events, zookeeper_events
from zkmigrate.spark.input import Input, seconds
from zkmigrate.spark.plain_rows import Cell, plain, table
from zkmigrate.spark.request import Request, parse_place
from zkmigrate.spark.section import Picture, Section

_AROUND_S = 2.0
"""Shown to people before and after the window."""
_DRAWN_S = 30.0
_BESIDE_S = 60.0
"""Read of ZooKeeper's log before and after the run."""
_COLUMNS = 900
_ORDERED = 10
"""Times --top: a table in order of time cannot be cut to its largest rows, so it has more of them."""


def run(input: Input) -> Section:
    """The job. Raises UsageError if --run names no run, JournalError for a journal of another version."""
    request = input.request
    if request.run is None:
        raise UsageError("timeline lays a run beside its clients and brokers. Needed: --run DIR, its folder")
    _check_zone(request.broker_log_zone)
    read = sources.read(request.run)
    report = build(read, _playbook(read))
    events, remarks = _joined(input, report, Timebase(read.entries))
    window = move_of(report.windows) or (report.windows[-1] if report.windows else None)
    return _section(request, report, window, events.persist(), remarks)


def _check_zone(zone: str) -> None:
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(f"no time zone {zone!r}. Needed: a name such as UTC or Europe/Berlin") from None


def _playbook(read: sources.Sources) -> Playbook | None:
    """The run's own; None if it is not on this machine."""
    try:
        return playbook_files.load(str(read.entries[0].body.get("playbook", "")))
    except UsageError:
        return None


def _joined(input: Input, report: value.Report, times: Timebase) -> tuple[DataFrame, list[str]]:
    """All rows, and remarks about what was read."""
    request, spark = input.request, input.spark
    frames, remarks = [run_events(spark, report)], list(report.remarks)
    for place in map(parse_place, request.client_history):
        frame, bad, own = client_events(spark, place, times)
        frames.append(frame)
        clock = "the operator's monotonic clock" if own else "its own wall clock"
        remarks.append(f"{place.path} is timed by {clock}")
        if bad:
            remarks.append(f"{place.path}: {bad} lines are no events, or have no time: left out")
    for place in map(parse_place, request.broker_logs):
        frame, count, undated = broker_events(spark, place, request.broker_log_zone)
        frames.append(frame)
        note = f", {undated} of them without a time: left out" if undated else ""
        remarks.append(f"{place.path}: {count} lines, taken as {request.broker_log_zone}{note}")
    if request.source or request.dest:
        of = input if request.source else Input(spark, request, request.dest)
        frames.append(zookeeper_events(of, report.start - _BESIDE_S, report.end + _BESIDE_S))
    return reduce(DataFrame.unionByName, frames), remarks


def _gaps(events: DataFrame, begin: float, end: float, top: int) -> list[Row]:
    """The longest times between two acknowledgements of one client that overlap a window, longest first. An
    open one lasted until the client stopped, or its history ends."""
    clients = events.filter("source = 'client'").withColumn("at_s", seconds("at"))
    stopping = F.min(F.when(F.col("what").startswith("stopping"), F.col("at_s")))
    ends = clients.groupBy("who").agg(F.coalesce(stopping, F.max("at_s")).alias("end_s"))
    acks = clients.filter(F.col("kind") == ACK).select("who", "at_s", F.lit(False).alias("open"))
    stops = ends.select("who", F.col("end_s").alias("at_s"), F.lit(True).alias("open"))
    order = Window.partitionBy("who").orderBy("at_s", "open")
    both = acks.unionByName(stops).withColumn("start_s", F.lag("at_s").over(order))
    overlap = (F.col("at_s") > begin) & (F.col("start_s") < end)
    return (
        both.filter(overlap)
        .withColumn("seconds", F.col("at_s") - F.col("start_s"))
        .orderBy(F.desc("seconds"), "who")
        .limit(top)
        .collect()
    )


def _longest(report: value.Report, found: Sequence[Row]) -> list[value.Gap]:
    """The longest gap of each client and of the produce canary, longest first."""
    gaps = [
        value.Gap(row.who, row.start_s, None if row.open else row.at_s, "", (), row.seconds) for row in found
    ]
    gaps += [one.window for one in report.produced if one.window is not None]
    best: dict[str, value.Gap] = {}
    for gap in sorted(gaps, key=lambda gap: -gap.seconds):
        best.setdefault(gap.client, gap)
    return list(best.values())


def _between(events: DataFrame, begin: float, end: float, most: int) -> list[Row]:
    """The rows between two times, in order; acknowledgements summed by the second."""
    near = events.filter((seconds("at") >= begin) & (seconds("at") <= end))
    single = near.filter(F.col("kind") != ACK)
    acks = (
        near.filter(F.col("kind") == ACK)
        .groupBy(F.date_trunc("second", "at").alias("at"), "source", "kind", "who")
        .agg(F.count("*").alias("count"))
        .withColumn(
            "what", F.concat(F.col("count").cast("string"), F.lit(" acknowledgements in this second"))
        )
    )
    both = single.unionByName(acks, allowMissingColumns=True).withColumn("at_s", seconds("at")).drop("at")
    return both.orderBy("at_s", "source", "who", "what").limit(most).collect()


def _section(
    request: Request, report: value.Report, window: value.Window | None, events: DataFrame, remarks: list[str]
) -> Section:
    counts = {row.source: row["count"] for row in events.groupBy("source").count().collect()}
    begin, end = (report.start, report.end) if window is None else (window.start, window.end or report.end)
    most = _ORDERED * request.top
    around = _between(events, begin - _AROUND_S, end + _AROUND_S, most + 1)
    cut = f"The first {most} rows; events.parquet has all." if len(around) > most else ""
    title = "The run" if window is None else "Around the window"
    tables = [_order("window", title, around[:most], begin, window is not None, cut)]
    gaps = [] if window is None else _longest(report, _gaps(events, begin, end, request.top))
    beside: list[Row] = []
    if gaps:
        first = gaps[0]
        rows = _between(events, first.start, first.start + first.seconds, most)
        beside = [row for row in rows if row.kind != ACK or row.who != first.client]
        tables.append(_gap_table(gaps, begin))
        tables.append(_order("meanwhile", f"While {first.client} waited", beside[: request.top], begin, True))
    if remarks:
        tables.append(Table("material", "The material", ("remark",), tuple((r,) for r in remarks), wide=(0,)))
    figures = {
        "run": report.run,
        "state": report.state,
        "events": counts,
        "window": window and {
            "stage": window.stage, "start": _iso(window.start), "end": _iso(window.end),
            "seconds": None if window.seconds is None else round(window.seconds, 3),
            "outcome": window.outcome,
        },
        "gaps": [
            {"client": g.client, "start": _iso(g.start), "end": _iso(g.end), "seconds": round(g.seconds, 3)}
            for g in gaps
        ],
        "meanwhile": [_figure(row) for row in beside[: request.top]],
        "remarks": remarks,
    }  # fmt: skip
    answer = " ".join(_sentences(report, window, counts, gaps, beside))
    ordered = events.orderBy("at", "source", "who", "what")
    drawn = _pictures(events, report, begin - _DRAWN_S, end + _DRAWN_S)
    return Section("Timeline", answer, figures, tuple(tables), drawn, {"events": ordered})


def _sentences(
    report: value.Report,
    window: value.Window | None,
    counts: dict[str, int],
    gaps: list[value.Gap],
    beside: list[Row],
) -> list[str]:
    joined = ", ".join(f"{count} of {source}" for source, count in sorted(counts.items()))
    sentences = [f"Run {report.run}, {report.state}: {sum(counts.values())} events, {joined}."]
    if report.state == "damaged":
        sentences.append(f"{report.headline}.".capitalize())
    if window is None:
        sentences.append("It has no window: FENCE was not sent.")
        return sentences
    took = "is not over" if window.seconds is None else f"took {length(window.seconds)}"
    kind = "rehearsed window" if window.rehearsal else "window"
    sentences.append(f"The {kind} from {_clock(window.start)} UTC {took} ({window.outcome}).")
    if not gaps:
        sentences.append("No client's acknowledgements were given for it.")
        return sentences
    gap = gaps[0]
    until = f"to {_clock(gap.end)}" if gap.end is not None else "and was not over when its history ends"
    sentences.append(
        f"In it {gap.client} waited longest for an acknowledgement: {length(gap.seconds)}, from "
        f"{_clock(gap.start)} {until}."
    )
    steps = [row.who for row in beside if row.kind == "step" and row.what.startswith("begins")]
    lost = [row for row in beside if row.kind == "session"]
    begun = f"{', '.join(steps) or 'no step'} began"
    sentences.append(f"Meanwhile {begun}; of {len(beside)} rows {len(lost)} concern sessions.")
    sentences.append("The order between machines depends on their clocks.")
    return sentences


def _order(id: str, title: str, rows: Sequence[Row], zero: float, fenced: bool, intro: str = "") -> Table:
    columns: list[tuple[str, Cell]] = [
        ("at", lambda row: _clock(row.at_s)),
        ("from FENCE" if fenced else "from the start", lambda row: f"{row.at_s - zero:+.3f}"),
        ("source", "source"), ("who", "who"), ("what", "what"), ("where", _where),
    ]  # fmt: skip
    return table(id, title, rows, columns, intro, (4,))


def _where(row: Row) -> str:
    """The zxid, the session and the path, if it has any."""
    values = plain(row)
    return " ".join(values[name] for name in ("zxid", "session", "path") if values[name])


def _gap_table(gaps: Sequence[value.Gap], zero: float) -> Table:
    columns: list[tuple[str, Cell]] = [
        ("client", lambda gap: gap.client), ("without", lambda gap: length(gap.seconds)),
        ("from", lambda gap: _clock(gap.start)), ("from FENCE", lambda gap: f"{gap.start - zero:+.3f}"),
        ("to", lambda gap: "not over" if gap.end is None else _clock(gap.end)),
    ]  # fmt: skip
    return table("gaps", "Longest time without an acknowledgement in the window", gaps, columns)


def _pictures(events: DataFrame, report: value.Report, begin: float, end: float) -> tuple[Picture, ...]:
    """Counts over time around the window, with the steps marked: one picture for each kind."""
    step = max(1, math.ceil((end - begin) / _COLUMNS))
    first = math.floor(begin / step)
    slot = F.floor(seconds("at") / step).cast("long").alias("slot")
    near = events.filter((seconds("at") >= begin) & (seconds("at") <= end))
    rows = near.groupBy(slot, "kind").agg(F.sum("count").alias("count")).collect()
    marks = [
        (visit.start, f"{visit.step}{' back' if visit.back else ''}")
        for visit in report.visits
        if begin <= visit.start <= end
    ]
    out = []
    for kind, title in (
        (ACK, "Acknowledgements of clients"),
        ("write", "Writes to ZooKeeper under the chroot"),
        ("controller", "Lines of the controller"),
        ("session", "ZooKeeper sessions: lines and transactions"),
    ):
        by_slot = {row.slot: row["count"] for row in rows if row.kind == kind}
        if by_slot:
            slots = range(first, math.floor(end / step) + 1)
            points = [(float(n * step), float(by_slot.get(n, 0))) for n in slots]
            unit = "a second" if step == 1 else f"in {step} s"
            drawn = over_time(f"{title}, {unit}", points, step, marks)
            out.append(Picture(drawn, "A line marks the start of a step."))
    return tuple(out)


def _figure(row: Row) -> dict[str, Any]:
    found = {"at": _iso(row.at_s), "source": row.source, "who": row.who, "what": row.what}
    return found | ({"where": where} if (where := _where(row)) else {})


def _iso(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(round(at, 6), UTC).isoformat()


def _clock(at: float) -> str:
    return datetime.fromtimestamp(round(at, 3), UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
