"""Count how many sessions open and close, how long they live and how they end, for the job ``sessions``.

The job also finds T, the smallest timeout of the sessions that own ephemerals at or under the chroot. A
rollback has to let these clients back within T.

An expiry shows in the cxid of a closeSession, the number of the client's request. Clients count from 1; a
server that closes a session by itself writes cxid 0. The logs of real servers of 3.4 to 3.9, which our tests
read, show both. A server also closes a session by itself when an operator ends the session through JMX. The
job reports an expiry in both cases, unless the session was younger than its timeout: then the cause is
reported as unknown.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from zkmigrate.runbook.model.report import Table, length
from zkmigrate.spark.charts import Bar, bars, over_time
from zkmigrate.spark.input import Input, only
from zkmigrate.spark.open_sessions import Extent, ephemerals, events, extent, open_sessions
from zkmigrate.spark.operation_kinds import CLOSES, OPENS
from zkmigrate.spark.plain_rows import Cell, plain, table
from zkmigrate.spark.section import Picture, Section
from zkmigrate.spark.sources.files import File
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.snapname import snapshot_zxid
from zkmigrate.zookeeper.data.zxid import format_zxid

CLIENT, EXPIRED, UNTOLD = "closed by its client", "expired", "unknown"
_QUANTILES = (0.0, 0.1, 0.5, 0.9, 0.99, 1.0)
_COLUMNS = 500
"""The largest number of columns of a plot over time."""
_RECONNECTS = "A client that reconnects keeps its session and leaves no record in a log."


@dataclass(frozen=True)
class _Now:
    """The open sessions at the end of log and snapshot.

    open: the number of open sessions. owners: the sessions with the smallest timeouts that own ephemerals,
    each with session, timeout_ms, znodes and first path. owning: the number of all sessions that own
    ephemerals. unknown: the number of such sessions with an unknown timeout. smallest_ms: the smallest known
    timeout.
    """

    open: int
    owners: list[Row]
    owning: int
    unknown: int
    smallest_ms: int | None


def run(input: Input) -> Section:
    """Run the job."""
    began = input.snapshot if input.snapshots else None
    start = 0 if began is None else snapshot_zxid(began.name) or 0
    seen = events(input).persist()
    covered = extent(input.log("zxid", "epoch", "sequence", "time"), start)
    lives = _lives(seen).persist()
    opened = open_sessions(None if began is None else input.sessions, seen, start).persist()
    owned = ephemerals(input, seen, start)
    owners = _owners(owned, opened).persist()
    now = None if covered.missing else _now(opened, owners, input.request.top)
    frames = {"sessions": lives}
    if now is not None:
        frames |= {"open": opened, "owners": owners}
    timeouts = _timeouts(lives, opened)
    return _section(input, began, covered, lives, now, timeouts, _rates(seen, covered), frames)


def _lives(seen: DataFrame) -> DataFrame:
    """Return a row for each session that the log opens or closes; a value that the log lacks is null.

    If a session is closed twice, only the first closing is used.
    """
    opens, closes = F.col("type") == OPENS, F.col("type") == CLOSES
    found = seen.groupBy("session").agg(
        F.min(F.when(opens, F.struct("zxid", "time", "timeout_ms"))).alias("o"),
        F.min(F.when(closes, F.struct("zxid", "time", "cxid"))).alias("c"),
    )
    lived = F.unix_millis("c.time") - F.unix_millis("o.time")
    end = (
        F.when(F.col("c").isNull(), F.lit(None))
        .when(F.col("c.cxid") != 0, F.lit(CLIENT))
        .when(lived < F.col("o.timeout_ms"), F.lit(UNTOLD))
        .otherwise(F.lit(EXPIRED))
    )
    return found.select(
        "session",
        F.col("o.timeout_ms").alias("timeout_ms"),
        F.col("o.time").alias("opened"),
        F.col("c.time").alias("closed"),
        lived.alias("lived_ms"),
        end.alias("end"),
    )


def _owners(owned: DataFrame, opened: DataFrame) -> DataFrame:
    """Return the sessions that own ephemerals, the smallest timeout first, unknown timeouts last."""
    found = owned.groupBy("session").agg(F.count("*").alias("znodes"), F.min("path").alias("path"))
    joined = found.join(opened, "session", "left").select("session", "timeout_ms", "znodes", "path")
    return joined.orderBy(F.asc_nulls_last("timeout_ms"), "session")


def _now(opened: DataFrame, owners: DataFrame, top: int) -> _Now:
    unknown = F.count_if(F.col("timeout_ms").isNull())
    sums = only(owners.agg(F.count("*"), unknown, F.min("timeout_ms")))
    return _Now(opened.count(), owners.limit(top).collect(), *sums)


def _timeouts(lives: DataFrame, opened: DataFrame) -> DataFrame:
    """Return a row for each known timeout, with the number of sessions that have this timeout."""
    both = lives.select("session", "timeout_ms").unionByName(opened)
    each = both.groupBy("session").agg(F.max("timeout_ms").alias("timeout_ms"))
    return each.filter("timeout_ms IS NOT NULL").groupBy("timeout_ms").agg(F.count("*").alias("sessions"))


@dataclass(frozen=True)
class _Rates:
    """How many sessions were opened and closed per minute.

    step_s: the seconds of a step, a whole number of minutes. per_minute: for each step its start in seconds
    since 1970, and the sessions opened and closed per minute in the step.
    """

    step_s: int
    per_minute: list[tuple[float, float, float]]


def _rates(seen: DataFrame, covered: Extent) -> _Rates:
    step = 60 * max(1, math.ceil(covered.seconds / 60 / _COLUMNS))
    at = (F.floor(F.unix_millis("time") / (1000 * step)) * step).alias("at")
    rows = seen.groupBy(at).agg(
        F.count_if(F.col("type") == OPENS).alias("opened"),
        F.count_if(F.col("type") == CLOSES).alias("closed"),
    )
    minutes = step / 60
    found = sorted((float(row.at), row.opened / minutes, row.closed / minutes) for row in rows.collect())
    return _Rates(step, found)


def _section(
    input: Input,
    began: File | None,
    covered: Extent,
    lives: DataFrame,
    now: _Now | None,
    timeouts: DataFrame,
    rates: _Rates,
    frames: dict[str, DataFrame],
) -> Section:
    request = input.request
    counts = _counts(lives)
    histogram = timeouts.orderBy(F.desc("sessions"), "timeout_ms").limit(request.top).collect()
    lived = _lived(lives)
    figures = {
        "server": input.reference,
        "snapshot": None if began is None else began.name,
        "zxid": format_zxid(covered.zxid),
        "minutes": round(covered.seconds / 60, 3),
        **counts,
        "open": None if now is None else now.open,
        "lived_ms": lived,
        "timeouts": [plain(row) for row in histogram],
        **request.chroot.body(),
        "owners": None if now is None else now.owning,
        "owners_of_unknown_timeout": None if now is None else now.unknown,
        "smallest_timeout_ms": None if now is None or now.unknown else now.smallest_ms,
        "first_owners": None if now is None else [plain(row) for row in now.owners],
        "missing": covered.missing,
        "reconnects": "unknown",
    }
    churn, now_open = _churn(input, covered, counts, lived), _now_open(request.chroot, covered, now, began)
    tables = _tables(now, histogram, lived, request.chroot, lives, request.top)
    answer = f"{churn} {now_open} {_RECONNECTS}"
    return Section("Sessions", answer, figures, tables, _pictures(rates, histogram), frames)


def _counts(lives: DataFrame) -> dict[str, int]:
    counts = lives.agg(
        F.count("opened").alias("opened"),
        F.count("closed").alias("closed"),
        F.count_if(F.col("opened").isNull()).alias("opened_before_the_log"),
        F.count_if(F.col("end") == CLIENT).alias("closed_by_client"),
        F.count_if(F.col("end") == EXPIRED).alias("expired"),
        F.count_if(F.col("end") == UNTOLD).alias("end_untold"),
    )
    return dict(only(counts).asDict())


def _lived(lives: DataFrame) -> dict[str, int]:
    """Return quantiles of the lifetimes of sessions in milliseconds; empty if there are none.

    Only sessions whose opening and closing are both in the log are included.
    """
    values = only(lives.agg(F.percentile_approx("lived_ms", list(_QUANTILES), 10_000)))[0]
    return {} if values is None else {f"{q:g}": v for q, v in zip(_QUANTILES, values, strict=True)}


def _churn(input: Input, covered: Extent, counts: dict[str, int], lived: dict[str, int]) -> str:
    if covered.begin is None:
        return f"The log of {input.reference} has no transaction."
    ends = f"{counts['closed_by_client']} by their clients, {counts['expired']} expired"
    if counts["end_untold"]:
        ends += f", {counts['end_untold']} by a server before they could expire, for an unknown reason"
    found = (
        f"In the {length(covered.seconds)} that the log of {input.reference} covers, {counts['opened']} "
        f"sessions were opened and {counts['closed']} closed: {ends}."
    )
    if counts["opened_before_the_log"]:
        found += f" {counts['opened_before_the_log']} of these sessions were opened before the log begins."
    if lived:
        found += (
            f" Half of the sessions that the log covers completely lived {length(lived['0.5'] / 1000)} or "
            "less."
        )
    return found


def _now_open(chroot: Chroot, covered: Extent, now: _Now | None, began: File | None) -> str:
    if now is None:
        base = "without a snapshot" if began is None else f"from {began.name} of {began.server}"
        return (
            f"Open sessions and the rollback deadline are unknown {base}: {covered.missing}. Needed: a "
            "snapshot, and the log after it without a gap."
        )
    found = f"{now.open} sessions are open at {format_zxid(covered.zxid)}."
    if not now.owning:
        return f"{found} No session owns an ephemeral at or under {chroot}, so there is no rollback deadline."
    found += f" {now.owning} sessions own ephemerals at or under {chroot}"
    if now.unknown:
        return f"{found}. The timeout of {now.unknown} sessions is unknown, and so is the rollback deadline."
    assert now.smallest_ms is not None
    return f"{found}. Their smallest timeout, the rollback deadline, is {now.smallest_ms} ms."


def _tables(
    now: _Now | None, histogram: list[Row], lived: dict[str, int], chroot: Chroot, lives: DataFrame, top: int
) -> tuple[Table, ...]:
    ended = lives.filter(F.col("end").isin(EXPIRED, UNTOLD)).orderBy(F.desc("closed"), "session").limit(top)
    session: tuple[str, Cell] = ("session", "session")
    timeout: tuple[str, Cell] = ("timeout ms", _known("timeout_ms"))
    lifetime: tuple[str, Cell] = ("lived ms", _known("lived_ms"))
    found = [
        table("owners", f"Owners of ephemerals at or under {chroot}", now.owners if now else (),
              [session, timeout, ("ephemerals", "znodes"), ("first", "path")],
              "The smallest timeout first.", (3,)),
        table("timeouts", "Timeouts", histogram, [("timeout ms", "timeout_ms"), ("sessions", "sessions")]),
        Table("lived", "How long sessions lived", ("quantile", "ms"),
              tuple((quantile, str(ms)) for quantile, ms in lived.items())),
        table("ended", "Ended by a server", ended.collect(),
              [session, timeout, ("opened", "opened"), ("closed", "closed"), lifetime, ("end", "end")],
              "The newest first."),
    ]  # fmt: skip
    return tuple(one for one in found if one.rows)


def _known(column: str) -> Cell:
    return lambda row: "unknown" if row[column] is None else row[column]


def _pictures(rates: _Rates, histogram: list[Row]) -> tuple[Picture, ...]:
    if not rates.per_minute:
        return ()
    step = rates.step_s
    caption = f"Each value is the mean of {step // 60} minutes." if step > 60 else "Minute by minute."
    opened = [(at, value) for at, value, _ in rates.per_minute]
    closed = [(at, value) for at, _, value in rates.per_minute]
    by_timeout = sorted(histogram, key=lambda row: row.timeout_ms)
    each = [Bar(f"{row.timeout_ms} ms", float(row.sessions)) for row in by_timeout]
    return (
        Picture(over_time("Sessions opened per minute", opened, step), caption),
        Picture(over_time("Sessions closed per minute", closed, step), caption),
        Picture(bars("Sessions by their timeouts", each), "Sessions whose timeout is known."),
    )
