"""Find when to cut over, by the transactions under the chroot in every minute of the log (job ``quiet``)."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC

from pyspark.sql import functions as F

from zkmigrate.errors import UsageError
from zkmigrate.runbook.model.report import Table
from zkmigrate.spark.charts import over_time, week
from zkmigrate.spark.input import Input, only_under, under
from zkmigrate.spark.plain_rows import Cell, moment, table
from zkmigrate.spark.quiet_windows import MINUTES_OF_A_WEEK, Hour, hours
from zkmigrate.spark.section import Picture, Section

_SHORT_MS = 6 * 3_600_000
"""A log shorter than this is counted by seconds."""
_BUSIEST = 5


def run(input: Input) -> Section:
    """Run the job. A transaction is counted once, however many znodes under the chroot it changes."""
    request = input.request
    covered = input.log("time").agg(F.min("time"), F.max("time")).first()
    if covered is None or covered[0] is None:
        raise UsageError(f"the log of {input.reference} has no transaction, so quiet times are unknown")
    begin_ms, end_ms = (round(at.replace(tzinfo=UTC).timestamp() * 1000) for at in covered)
    step_s = 60 if end_ms - begin_ms > _SHORT_MS else 1
    first, last = begin_ms // (1000 * step_s), end_ms // (1000 * step_s)
    frame = input.once(
        input.effects("zxid", "time", "path", **only_under(request.chroot))
        .filter(under(F.col("path"), request.chroot))
        .groupBy(F.floor(F.unix_millis("time") / (1000 * step_s)).alias("step"))
        .agg(F.count_distinct("zxid").alias("transactions"))
        .select(F.timestamp_seconds(F.col("step") * step_s).alias("at"), "step", "transactions")
        .orderBy("step")
    )
    counts = {int(row.step): int(row.transactions) for row in frame.collect()}
    # The log covers only a part of the first and of the last step.
    found = hours(counts, first + 1, last - 1, request.window_s, step_s)
    span = f"from {moment(covered[0])} to {moment(covered[1])}"
    counted = f"{sum(counts.values())} transactions under {request.chroot} {span}"
    weeks = (end_ms - begin_ms) / 60_000 / MINUTES_OF_A_WEEK
    figures = {
        **request.chroot.body(),
        "server": input.reference,
        "window_s": request.window_s,
        "transactions": sum(counts.values()),
        "since_ms": begin_ms,
        "until_ms": end_ms,
        "step_s": step_s,
        "weeks": round(weeks, 4),
        "hours": [{"name": hour.name, **asdict(hour)} for hour in found],
    }
    busiest = found[: -min(_BUSIEST, len(found)) - 1 : -1]
    tables = (
        _table("quietest", "Quietest hours of the week", found[: request.top], request.window_s),
        _table("busiest", "Busiest hours of the week", busiest, request.window_s),
    )
    points = [(float(n * step_s), float(counts.get(n, 0))) for n in range(first, last + 1)]
    per = "minute" if step_s == 60 else "second"
    pictures = (
        Picture(
            over_time(f"Transactions per {per}", points, float(step_s)),
            f"Under {request.chroot}.",
        ),
        Picture(
            week(
                f"Transactions to expect in {request.window_s} s",
                {(hour.hour // 24, hour.hour % 24): hour.expected for hour in found},
            ),
            "By the hour (UTC) in which the window begins. A cell is empty if the log does not cover "
            "that hour.",
        ),
    )
    answer = _answer(counted, found, weeks, request.window_s)
    return Section("Quiet times", answer, figures, tables, pictures, {"rate": frame})


def _answer(counted: str, found: list[Hour], weeks: float, window_s: int) -> str:
    if not found:
        return f"{counted}. The log is shorter than a window of {window_s} s, so quiet times are unknown."
    best = found[0]
    words = (
        f"{counted}. Best hour to begin a window of {window_s} s: {best.name} UTC, {best.expected:.3g} "
        f"transactions expected, at worst {best.worst:.3g}, none in {best.none:.0%} of {best.seen} windows; "
        f"best at minute {best.minute} ({best.at_minute:.3g})."
    )
    if weeks < 1:
        words += (
            f" Only {len(found)} of the 168 hours of a week are in the log. The others may be quieter or "
            "busier."
        )
    return words


def _table(id: str, title: str, found: list[Hour], window_s: int) -> Table:
    columns: list[tuple[str, Cell]] = [
        ("begins in (UTC)", lambda hour: hour.name),
        (f"expected in {window_s} s", lambda hour: f"{hour.expected:.3g}"),
        ("worst", lambda hour: f"{hour.worst:.3g}"), ("none in", lambda hour: f"{hour.none:.0%}"),
        ("windows", lambda hour: hour.seen),
        ("best minute", lambda hour: f":{hour.minute:02} ({hour.at_minute:.3g})"),
    ]  # fmt: skip
    return table(id, title, found, columns)
