"""timeline: a run laid beside what ZooKeeper, clients and brokers wrote down meanwhile: what happened in
which order, and what else while a client had to wait."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import reduce
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F

from zkmigrate.errors import UsageError
from zkmigrate.model import report as value
from zkmigrate.model.playbook import Playbook
from zkmigrate.model.report import Table, length, move_of
from zkmigrate.report import sources
from zkmigrate.report.build import build
from zkmigrate.report.timebase import Timebase
from zkmigrate.runs import playbook_files
from zkmigrate.spark.charts import over_time
from zkmigrate.spark.event_rows import ACK, broker_events, client_events, run_events, zookeeper_events
from zkmigrate.spark.input import Input, seconds
from zkmigrate.spark.request import Request, parse_place
from zkmigrate.spark.section import Picture, Section
from zkmigrate.zookeeper.data.session import format_session
from zkmigrate.zookeeper.data.zxid import format_zxid

_AROUND_S = 2.0
"""So much before and after the window is shown to people."""
_DRAWN_S = 30.0
_BESIDE_S = 60.0
"""ZooKeeper's log is read so much beyond the run."""
_COLUMNS = 900
_ORDERED = 10
"""An order cannot be cut to its largest rows, so it has more of them than other tables."""


def run(input: Input) -> Section:
    """The job. Raises UsageError where no run was named, or what was named is none; JournalError for a
    journal of another version."""
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
    """The run's own; None where it is not to be had here."""
    try:
        return playbook_files.load(str(read.entries[0].body.get("playbook", "")))
    except UsageError:
        return None


def _joined(input: Input, report: value.Report, times: Timebase) -> tuple[DataFrame, list[str]]:
    """All rows, and what is to be said of the material."""
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
    """The longest times between two acknowledgements of one client that overlap a window, longest first; one
    that was still waited for when the client stopped, or its history ends, is open."""
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
    """Gaps of clients and of the produce canary, longest first, one for each."""
    gaps = [
        value.Gap(row.who, row.start_s, None if row.open else row.at_s, "", (), row.seconds) for row in found
    ]
    gaps += [one.window for one in report.produced if one.window is not None]
    best: dict[str, value.Gap] = {}
    for gap in sorted(gaps, key=lambda gap: -gap.seconds):
        best.setdefault(gap.client, gap)
    return list(best.values())


def _between(events: DataFrame, begin: float, end: float, most: int) -> list[Row]:
    """What happened then, acknowledgements summed up by the second, in order."""
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
    cut = _between(events, begin - _AROUND_S, end + _AROUND_S, _ORDERED * request.top + 1)
    gaps = [] if window is None else _longest(report, _gaps(events, begin, end, request.top))
    beside: list[Row] = []
    if gaps:
        beside = [
            row
            for row in _between(
                events, gaps[0].start, gaps[0].start + gaps[0].seconds, _ORDERED * request.top
            )
            if row.kind != ACK or row.who != gaps[0].client
        ]
    title = "The run" if window is None else "Around the window"
    tables = [_order("window", title, cut[: _ORDERED * request.top], begin, window is not None)]
    if len(cut) > _ORDERED * request.top:
        intro = f"The first {_ORDERED * request.top} rows; events.parquet has all."
        tables[0] = replace(tables[0], intro=intro)
    if gaps:
        tables.append(_gap_table(gaps, begin))
        tables.append(
            _order("meanwhile", f"While {gaps[0].client} waited", beside[: request.top], begin, True)
        )
    if remarks:
        tables.append(Table("material", "The material", ("remark",), tuple((r,) for r in remarks), wide=(0,)))
    figures = {
        "run": report.run,
        "state": report.state,
        "events": counts,
        "window": None if window is None else _window(window),
        "gaps": [
            {"client": g.client, "start": _iso(g.start), "end": _iso(g.end), "seconds": round(g.seconds, 3)}
            for g in gaps
        ],
        "meanwhile": [_figure(row) for row in beside[: request.top]],
        "remarks": remarks,
    }
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
    told = [f"Run {report.run}, {report.state}: {sum(counts.values())} events, {joined}."]
    if report.state == "damaged":
        told.append(f"{report.headline}.".capitalize())
    if window is None:
        told.append("It has no window: FENCE was not sent.")
        return told
    took = "is not over" if window.seconds is None else f"took {length(window.seconds)}"
    kind = "rehearsed window" if window.rehearsal else "window"
    told.append(f"The {kind} from {_clock(window.start)} UTC {took} ({window.outcome}).")
    if not gaps:
        told.append("No client's acknowledgements were given for it.")
        return told
    gap = gaps[0]
    until = f"to {_clock(gap.end)}" if gap.end is not None else "and was not over when its history ends"
    told.append(
        f"The longest time without an acknowledgement in it had {gap.client}: {length(gap.seconds)}, from "
        f"{_clock(gap.start)} {until}."
    )
    steps = [row.who for row in beside if row.kind == "step" and row.what.startswith("begins")]
    lost = [row for row in beside if row.kind == "session"]
    begun = f"began {', '.join(steps)}" if steps else "no step began"
    told.append(f"Meanwhile {begun}, and there were {len(lost)} rows about sessions, {len(beside)} in all.")
    told.append("The order between machines is as good as their clocks agree.")
    return told


def _window(window: value.Window) -> dict[str, Any]:
    return {
        "stage": window.stage,
        "start": _iso(window.start),
        "end": _iso(window.end),
        "seconds": None if window.seconds is None else round(window.seconds, 3),
        "outcome": window.outcome,
    }


def _order(id: str, title: str, rows: Sequence[Row], zero: float, fenced: bool) -> Table:
    head = ("at", "from FENCE" if fenced else "from the start", "source", "who", "what", "where")
    cells = tuple(
        (_clock(row.at_s), f"{row.at_s - zero:+.3f}", row.source, row.who, row.what, _where(row))
        for row in rows
    )
    return Table(id, title, head, cells, wide=(4,))


def _where(row: Row) -> str:
    """The zxid, the session, the path, as far as there are any."""
    parts = [
        format_zxid(row.zxid) if row.zxid is not None else "",
        format_session(row.session) if row.session is not None else "",
        row.path or "",
    ]
    return " ".join(part for part in parts if part)


def _gap_table(gaps: Sequence[value.Gap], zero: float) -> Table:
    cells = tuple(
        (
            gap.client, length(gap.seconds), _clock(gap.start), f"{gap.start - zero:+.3f}",
            "not over" if gap.end is None else _clock(gap.end),
        )
        for gap in gaps
    )  # fmt: skip
    head = ("client", "without", "from", "from FENCE", "to")
    return Table("gaps", "Longest time without an acknowledgement in the window", head, cells)


def _pictures(events: DataFrame, report: value.Report, begin: float, end: float) -> tuple[Picture, ...]:
    """Counts over time around the window, with the steps marked: one picture for each sort of count."""
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
            drawn = over_time(f"timeline-{kind}", f"{title}, {unit}", points, step, marks)
            out.append(Picture(drawn, "Lines: where a step of the run begins."))
    return tuple(out)


def _figure(row: Row) -> dict[str, Any]:
    found = {"at": _iso(row.at_s), "source": row.source, "who": row.who, "what": row.what}
    where = _where(row)
    return {**found, "where": where} if where else found


def _iso(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(round(at, 6), UTC).isoformat()


def _clock(at: float) -> str:
    return datetime.fromtimestamp(round(at, 3), UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
