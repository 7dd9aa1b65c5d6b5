"""partitions: how large each partition's replicas are and how fast they grow, by broker, from the brokers'
log directories: the base for planning a removal of brokers or a rebalance. With the cluster's free bytes it
also tells when disks are full."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from zkmigrate.errors import UsageError
from zkmigrate.kafka.disks.days import newest
from zkmigrate.runbook.model.report import size
from zkmigrate.spark.charts import Bar, bars
from zkmigrate.spark.forecast import ALL, HOURS_OF_A_DAY, Disk, Held, Hour, disks, hours
from zkmigrate.spark.input import Input, only, seconds
from zkmigrate.spark.plain_rows import Cell, moment, plain, table
from zkmigrate.spark.reading import local_frame, task_reader
from zkmigrate.spark.request import Place, parse_place
from zkmigrate.spark.section import Picture, Section
from zkmigrate.zookeeper.disks.manifest import DAY, MANIFEST, load

_WINDOWS = {"hour": 3600, "day": 86400}
"""In seconds, up to the newest data."""
_HOURS_SEEN = 7 * 24
"""Hours up to the newest data of which the hours of the day are told."""
_UNEVEN, _UNEVEN_BYTES = 0.1, 1 << 20
"""Replicas differ a lot from this share of the largest on, and at least by this many bytes."""
_REPLICA = ("broker", "topic", "partition")


def run(input: Input) -> Section:
    """The job. Sizes are of segments without indexes, as kafka-log-dirs.sh counts them. Raises UsageError if
    no broker's directory was named."""
    places = [parse_place(text) for text in input.request.broker_dirs]
    if not places:
        raise UsageError(
            "partitions reads brokers' log directories. Needed: --broker-dir [NAME=]DIR, of each"
        )
    collected = [(place, _newest_days(place)) for place in places]
    # Each answer below reads all of it again otherwise.
    rows = reduce(DataFrame.unionByName, _tables(input, collected)).persist()
    found = rows.filter(F.col("base_offset").isNotNull())
    ends = _ends(found)
    segments = _segments(found)
    frame = _replicas(segments, ends).persist()
    older = _older([day for _, days in collected for day in days])
    return _section(input, rows, frame, ends, _hours(segments, ends), older)


def _tables(input: Input, collected: Sequence[tuple[Place, list[str]]]) -> Iterator[DataFrame]:
    """The segments. collected: places with the files of collect there; without any it is a log directory."""
    by_name: dict[str, list[str]] = {}
    for place, days in collected:
        if days:
            yield input.spark.read.parquet(*days)
        else:
            by_name.setdefault(place.server, []).append(place.path)
    reader = task_reader(input.spark, "kafkalogdir")
    for name, paths in by_name.items():
        yield reader.option("broker", name).load(paths)


def _newest_days(place: Place) -> list[str]:
    """The newest file of each broker in a folder that collect has filled; a file that is one itself. Raises
    UsageError for a name, since each file has its brokers' own."""
    path = Path(place.path)
    days = [place.path] if DAY.fullmatch(path.name) else []
    if (path / MANIFEST).is_file():
        manifest = load(path)
        days = [str(manifest.path(*entry.key)) for entry in newest(manifest).values()]
        if not days:
            raise UsageError(f"{path} has no broker's segments. Needed: collect --broker-dirs --out {path}")
    if days and place.server:
        raise UsageError(f"{place.server}={path} has the names of its brokers. Needed: {path} without a name")
    return days


def _older(days: Sequence[str]) -> dict[str, str]:
    """The files of collect that are older than its newest, with their day: a broker failed since then."""
    by_path = {day: Path(day).stem for day in days}
    return {path: day for path, day in by_path.items() if day != max(by_path.values())}


def _ends(found: DataFrame) -> Row:
    """oldest, newest: of the data, in seconds; None without any. ahead: how many segments are dated more than
    a minute after their last change; newest ignores them."""
    last, changed = seconds("last_timestamp"), seconds("modified")
    row = found.filter("state = 'current'").agg(
        F.min(F.coalesce(seconds("first_timestamp"), last)).alias("oldest"),
        F.max(F.least(last, changed)).alias("newest"),
        F.count_if(last > changed + 60).alias("ahead"),
    )
    return only(row)


def _segments(found: DataFrame) -> DataFrame:
    """Segments in use with the seconds of their first and last record, and the bytes written between."""
    order = Window.partitionBy(*_REPLICA, "dir").orderBy("base_offset")
    last = seconds("last_timestamp")
    # A segment whose headers have no time begins where the one before it ends.
    first = F.least(last, F.coalesce(seconds("first_timestamp"), F.lag(last).over(order), last))
    return found.filter("state = 'current'").withColumns(
        {"first": first, "last": last, "written": F.coalesce("record_bytes", "bytes")}
    )


def _replicas(segments: DataFrame, ends: Row) -> DataFrame:
    """A row for each replica in use: its size, and its growth in the newest hour and day."""
    until = None if ends.newest is None else datetime.fromtimestamp(ends.newest, UTC)
    grouped = segments.groupBy(*_REPLICA).agg(
        F.count("*").alias("segments"),
        F.sum("bytes").alias("bytes"),
        F.sum("written").alias("record_bytes"),
        F.count_distinct("dir").alias("dirs"),
        F.min("dir").alias("dir"),
        F.min("first").alias("since"),
        F.min("first_timestamp").alias("first_timestamp"),
        F.max("last_timestamp").alias("last_timestamp"),
        F.min("base_offset").alias("first_offset"),
        F.max("next_offset").alias("next_offset"),
        F.max("high_watermark").alias("high_watermark"),
        F.max("log_start_offset").alias("log_start_offset"),
        F.count_if(F.col("evidence") == "modified").alias("dated_by_file"),
        *(
            F.sum(_share(ends, window) * F.col("written")).alias(f"bytes_{name}")
            for name, window in _WINDOWS.items()
        ),
    )
    rates = {f"per_second_{name}": _rate(ends, name, window) for name, window in _WINDOWS.items()}
    return grouped.withColumns({**rates, "until": F.lit(until).cast("timestamp")}).drop("since")


def _hours(segments: DataFrame, ends: Row) -> list[Hour]:
    """The hours of the day that the newest week covers, each written evenly from segment to segment."""
    if ends.newest is None:
        return []
    first = math.ceil(max(ends.oldest, ends.newest - _HOURS_SEEN * 3600) / 3600)
    last = math.floor(ends.newest / 3600) - 1
    if last < first:
        return []
    begin, end = F.lit(float(first * 3600)), F.lit(float((last + 1) * 3600))
    number = F.sequence(
        F.floor(F.greatest("first", begin) / 3600).cast("long"),
        F.floor(F.least("last", end - 1) / 3600).cast("long"),
    )
    inside = segments.filter((F.col("last") >= begin) & (F.col("first") < end))
    start, span = F.col("hour") * 3600, F.col("last") - F.col("first")
    covered = F.least("last", start + 3600) - F.greatest("first", start)
    share = F.when(span > 0, F.greatest(F.lit(0.0), covered) / span).otherwise(1.0)
    by_hour = (
        inside.withColumn("hour", F.explode(number))
        .groupBy("broker", "hour")
        .agg(F.sum(share * F.col("written")).alias("written"))
    )
    written: dict[str, dict[int, float]] = {}
    for row in by_hour.collect():
        written.setdefault(row.broker, {})[int(row.hour)] = float(row.written)
    return hours(written, first, last)


def _disks(input: Input, frame: DataFrame, ends: Row) -> list[Disk]:
    """When each disk is full; none without the cluster's free bytes."""
    cluster = input.request.cluster
    if cluster is None or ends.newest is None:
        return []
    kept = F.when(F.col("first_offset") == 0, F.col("per_second_day")).otherwise(0.0)
    grouped = frame.groupBy("broker", "dir").agg(
        F.sum("bytes").alias("bytes"), F.sum("per_second_day").alias("written"), F.sum(kept).alias("kept")
    )
    held = [Held(row.broker, row.dir, row.bytes, row.written, row.kept) for row in grouped.collect()]
    return disks(held, cluster, ends.newest)


def _share(ends: Row, window: int) -> Column:
    """The share of a segment that was written in the last `window` seconds, at an even rate."""
    if ends.newest is None:
        return F.lit(0.0)
    begin, end = F.lit(ends.newest - window), F.lit(ends.newest)
    span = F.col("last") - F.col("first")
    inside = F.greatest(F.lit(0.0), F.least("last", end) - F.greatest("first", begin))
    at_once = F.when((F.col("last") >= begin) & (F.col("last") <= end), 1.0).otherwise(0.0)
    return F.coalesce(F.when(span > 0, inside / span).otherwise(at_once), F.lit(0.0))


def _rate(ends: Row, name: str, window: int) -> Column:
    """Bytes per second. A partition whose beginning was deleted counts from its oldest segment on, any other
    from the beginning of all data."""
    if ends.newest is None:
        return F.lit(0.0)
    newest = F.lit(ends.newest)
    whole = max(1.0, min(float(window), ends.newest - ends.oldest))
    own = F.greatest(F.lit(1.0), F.least(F.lit(whole), newest - F.col("since")))
    seconds = F.when(F.col("first_offset") > 0, F.coalesce(own, F.lit(whole))).otherwise(whole)
    return F.round(F.col(f"bytes_{name}") / seconds, 3)


def _brokers(rows: DataFrame, frame: DataFrame) -> DataFrame:
    held = rows.groupBy("broker").agg(
        F.count_distinct("dir").alias("dirs"),
        *(
            F.sum(F.when(F.col("state") == state, F.col("bytes")).otherwise(0)).alias(f"{state}_bytes")
            for state in ("current", "future", "deleted", "stray")
        ),
        F.count_if(F.col("rest") == "torn").alias("torn"),
        F.count("corrupt").alias("corrupt"),
    )
    copied = F.max("bytes").over(Window.partitionBy("topic", "partition"))
    grown = (
        frame.withColumn("copied", copied)
        .groupBy("broker")
        .agg(
            F.count("*").alias("partitions"),
            F.sum("copied").alias("removal_bytes"),
            F.sum("segments").alias("segments"),
            F.sum("per_second_hour").alias("per_second_hour"),
            F.sum("per_second_day").alias("per_second_day"),
            F.sum("dated_by_file").alias("dated_by_file"),
            F.count_if(F.col("dirs") > 1).alias("in_two_dirs"),
        )
    )
    numbers = [name for name in grown.columns if name != "broker"]
    return held.join(grown, "broker", "left").na.fill(0, numbers).orderBy("broker")


def _uneven(frame: DataFrame) -> DataFrame:
    """Partitions whose replicas differ a lot in size."""
    grouped = frame.groupBy("topic", "partition").agg(
        F.count("*").alias("replicas"),
        F.max("bytes").alias("largest"),
        F.min("bytes").alias("smallest"),
        F.max_by("broker", "bytes").alias("largest_at"),
        F.min_by("broker", "bytes").alias("smallest_at"),
        (F.max("next_offset") - F.min("next_offset")).alias("offsets_apart"),
        (F.max("first_offset") - F.min("first_offset")).alias("begin_apart"),
    )
    apart = F.col("largest") - F.col("smallest")
    wanted = (apart >= _UNEVEN_BYTES) & (apart > _UNEVEN * F.col("largest"))
    return grouped.filter(wanted).withColumn("apart", apart).orderBy(F.desc("apart"), "topic", "partition")


def _section(
    input: Input,
    rows: DataFrame,
    frame: DataFrame,
    ends: Row,
    by_hour: list[Hour],
    older: Mapping[str, str],
) -> Section:
    top = input.request.top
    by_disk = _disks(input, frame, ends)
    brokers, uneven = _brokers(rows, frame), _uneven(frame)
    by_broker, differing = brokers.collect(), uneven.limit(top).collect()
    ordered = frame.orderBy(F.desc("bytes"), "topic", "partition", "broker")
    largest = ordered.limit(top).collect()
    busiest = frame.orderBy(F.desc("per_second_hour"), "topic", "partition", "broker").limit(top).collect()
    double = frame.filter("dirs > 1").limit(top).collect() if _sum(by_broker, "in_two_dirs") else []
    unread = rows.filter(F.col("corrupt").isNotNull()).select("broker", "dir", "folder", "corrupt")
    not_read = unread.orderBy("broker", "dir", "folder").limit(top)
    bad = not_read.collect() if _sum(by_broker, "corrupt") else []
    skew = {
        name: _skew([float(row[f"current_{name}" if name == "bytes" else name]) for row in by_broker])
        for name in ("bytes", "partitions", "per_second_hour", "per_second_day")
    }
    quiet = [hour for hour in by_hour if hour.broker == ALL]
    busiest_broker = {
        one.hour: max(
            (other for other in by_hour if other.hour == one.hour and other.broker != ALL), key=_p95
        )
        for one in quiet
    }
    sentences = _sentences(by_broker, largest, skew, uneven.count(), double, ends, older)
    answer = " ".join([*sentences, *_forecast(by_disk, quiet)])
    figures = {
        "brokers": [plain(row) for row in by_broker],
        "disks": [
            asdict(disk) | {"full": _iso(disk.full), "full_kept": _iso(disk.full_kept)} for disk in by_disk
        ],
        "hours": [asdict(hour) for hour in by_hour],
        "skew": skew,
        "largest": [plain(row) for row in largest],
        "busiest": [plain(row) for row in busiest],
        "unlike": [plain(row) for row in differing],
        "in_two_dirs": [plain(row) for row in double],
        "unread": [plain(row) for row in bad],
        "newest_s": ends.newest,
        "oldest_s": ends.oldest,
        "dated_after_change": ends.ahead,
        "dated_by_file": _sum(by_broker, "dated_by_file"),
        "older": dict(older),
    }
    tables = [
        table("brokers", "Brokers", by_broker, _BROKER_COLUMNS,
              "torn: segments whose last batch is cut off, or was being written. to move: what a removal of "
              "the broker copies."),
        table("disks", "Disks", by_disk[:top], _DISK_COLUMNS,
              "full: at the day's rate if nothing is removed. with retention: only replicas that still have "
              "their first record grow."),
        table("hours", "Quietest hours of the day (UTC)", quiet, _hour_columns(busiest_broker),
              f"In bytes per second, of the newest {_HOURS_SEEN // 24} days at most. Hours look quieter "
              "where retention removed data."),
        table("largest", "Largest partitions", largest, _REPLICA_COLUMNS, wide=(0,)),
        table("busiest", "Fastest growing partitions", busiest, _REPLICA_COLUMNS, wide=(0,)),
        table("unlike", "Replicas that differ in size", differing, _UNEVEN_COLUMNS,
              "In offsets. Ends apart: a replica is behind. Beginnings apart: retention removed more of one.",
              (0,)),
        table("unread", "What could not be read", bad,
              [("broker", "broker"), ("dir", "dir"), ("what", lambda row: f"{row.folder}: {row.corrupt}")],
              wide=(2,)),
    ]  # fmt: skip
    pictures = tuple(
        Picture(bars(title, [Bar(row.broker, float(row[column])) for row in by_broker]), caption)
        for title, column, caption in (
            ("Bytes", "current_bytes", "Segments of partitions in use, by broker."),
            ("Bytes per second", "per_second_hour", "In the last hour of the data, by broker."),
        )
    )  # fmt: skip
    frames = {"partitions": ordered, "brokers": brokers, "unlike": uneven, "segments": rows}
    for name, values in (("disks", by_disk), ("hours", by_hour)):
        if values:
            made = pa.Table.from_pylist([asdict(value) for value in values], _SCHEMAS[name])
            frames[name] = local_frame(input.spark, made)
    shown = tuple(one for one in tables if one.rows or one.id in ("brokers", "largest", "busiest"))
    return Section("Partitions", answer, figures, shown, pictures, frames)


def _sum(rows: list[Row], name: str) -> int:
    return int(sum(row[name] for row in rows))


def _skew(values: list[float]) -> float | None:
    """The largest by the mean; None where there is nothing."""
    mean = sum(values) / len(values) if values else 0.0
    return round(max(values) / mean, 3) if mean else None


def _sentences(
    brokers: list[Row],
    largest: list[Row],
    skew: dict[str, float | None],
    uneven: int,
    double: list[Row],
    ends: Row,
    older: Mapping[str, str],
) -> list[str]:
    sentences = [
        f"{len(brokers)} broker{'s' * (len(brokers) != 1)} ({', '.join(row.broker for row in brokers)}), "
        f"{_sum(brokers, 'partitions')} replicas, {size(_sum(brokers, 'current_bytes'))}."
    ]
    if largest:
        one = largest[0]
        sentences.append(f"The largest is {_name(one)} at {one.broker}, {size(one.bytes)}.")
    if len(brokers) > 1 and skew["bytes"] is not None:
        most = max(brokers, key=lambda row: row.current_bytes)
        sentences.append(f"{most.broker} holds {skew['bytes']:g} times the mean.")
        sentences.append(
            f"Replicas of {uneven} partitions differ by more than {_UNEVEN:.0%} and {size(_UNEVEN_BYTES)}."
            if uneven
            else "No partition's replicas differ a lot in size."
        )
    if older:
        path, day = next(iter(older.items()))
        sentences.append(
            f"Files of {len(older)} brokers are older than the newest, such as {path}: "
            f"its figures are of {day}."
        )
    if ends.newest is None:
        sentences.append("There is no record yet, so there are no rates.")
    else:
        rate = sum(row.per_second_hour for row in brokers)
        sentences.append(
            f"In the hour up to {_clock(ends.newest)} UTC, the newest data, replicas grew by {size(rate)} a "
            "second in all. Rates come from the times in the headers of record batches; a segment counts as "
            "written evenly between its first and its newest. They leave out what compaction removed."
        )
    if dated_by_file := _sum(brokers, "dated_by_file"):
        sentences.append(f"{dated_by_file} segments have no times: the last change of their files counts.")
    if ends.ahead:
        sentences.append(
            f"{ends.ahead} segments are dated after their own last change: producers' clocks are off."
        )
    if leftover := _sum(brokers, "deleted_bytes") + _sum(brokers, "stray_bytes"):
        sentences.append(f"{size(leftover)} more wait for deletion or are stray.")
    if moving := _sum(brokers, "future_bytes"):
        sentences.append(f"{size(moving)} are being moved between directories of one broker.")
    if double:
        one = double[0]
        sentences.append(
            f"{one.broker} holds {_name(one)} in {one.dirs} directories: Kafka does not start with that."
        )
    if unread := _sum(brokers, "corrupt"):
        sentences.append(f"{unread} files or folders could not be read, or are not Kafka's; see the table.")
    return sentences


def _forecast(by_disk: list[Disk], quiet: list[Hour]) -> Iterator[str]:
    """The first disk to be full, and the hours to move in."""
    if by_disk and by_disk[0].full:
        disk = by_disk[0]
        yield (
            f"The first full disk is {disk.dir or 'all'} of broker {disk.broker}, on {moment(disk.full)} UTC "
            "at the day's rate if nothing is removed."
        )
    elif any(disk.free is not None for disk in by_disk):
        yield "No disk is full within ten years at the day's rate."
    if unknown := sorted({disk.broker for disk in by_disk if disk.free is None}):
        yield f"The cluster's file has no free bytes of {', '.join(unknown)}."
    if len(quiet) == HOURS_OF_A_DAY and quiet[0].p95 < quiet[-1].p95:
        least, most = quiet[0], quiet[-1]
        yield (
            f"The quietest hour begins at {least.hour:02}:00 UTC ({size(least.p95)} a second at the 95th "
            f"percentile), the busiest at {most.hour:02}:00 ({size(most.p95)})."
        )


def _p95(hour: Hour) -> float:
    return hour.p95


def _iso(at: datetime | None) -> str | None:
    return at.isoformat() if at else None


def _clock(at: float) -> str:
    return moment(datetime.fromtimestamp(at, UTC))


def _hour_columns(busiest: Mapping[int, Hour]) -> list[tuple[str, Cell]]:
    return [
        ("hour", lambda hour: f"{hour.hour:02}:00"), ("p95", lambda hour: size(hour.p95)),
        ("mean", lambda hour: size(hour.mean)), ("busiest broker", lambda hour: busiest[hour.hour].broker),
        ("its p95", lambda hour: size(busiest[hour.hour].p95)), ("days", lambda hour: hour.seen),
    ]  # fmt: skip


def _size(column: str) -> Cell:
    return lambda row: size(row[column])


def _name(row: Row) -> str:
    return f"{row.topic}-{row.partition}"


_RATES: list[tuple[str, Cell]] = [
    ("per second, hour", _size("per_second_hour")), ("per second, day", _size("per_second_day")),
]  # fmt: skip
_BROKER_COLUMNS: list[tuple[str, Cell]] = [
    ("broker", "broker"), ("dirs", "dirs"), ("replicas", "partitions"), ("segments", "segments"),
    ("held", _size("current_bytes")), ("to move", _size("removal_bytes")), *_RATES,
    ("future", _size("future_bytes")), ("deleted", _size("deleted_bytes")),
    ("stray", _size("stray_bytes")), ("torn", "torn"), ("not read", "corrupt"),
]  # fmt: skip
_DISK_COLUMNS: list[tuple[str, Cell]] = [
    ("broker", lambda disk: disk.broker), ("dir", lambda disk: disk.dir or "all"),
    ("held", lambda disk: size(disk.bytes)), ("per second, day", lambda disk: size(disk.per_second)),
    ("free", lambda disk: "?" if disk.free is None else size(disk.free)),
    ("full (UTC)", lambda disk: moment(disk.full)), ("with retention", lambda disk: moment(disk.full_kept)),
]  # fmt: skip
_TIME = pa.timestamp("us", "UTC")
_SCHEMAS = {
    "disks": pa.schema([
        ("broker", pa.string()), ("dir", pa.string()), ("bytes", pa.int64()), ("per_second", pa.float64()),
        ("free", pa.int64()), ("full", _TIME), ("full_kept", _TIME),
    ]),
    "hours": pa.schema([
        ("broker", pa.string()), ("hour", pa.int32()), ("seen", pa.int32()), ("mean", pa.float64()),
        ("p95", pa.float64()),
    ]),
}  # fmt: skip
_REPLICA_COLUMNS: list[tuple[str, Cell]] = [
    ("partition", _name), ("broker", "broker"), ("held", _size("bytes")), ("segments", "segments"), *_RATES,
    ("offsets", lambda row: f"{row.first_offset} to {'?' if row.next_offset is None else row.next_offset}"),
    ("newest", "last_timestamp"),
]  # fmt: skip
_UNEVEN_COLUMNS: list[tuple[str, Cell]] = [
    ("partition", _name), ("replicas", "replicas"), ("largest", _size("largest")), ("at", "largest_at"),
    ("smallest", _size("smallest")), ("at", "smallest_at"), ("ends apart", "offsets_apart"),
    ("beginnings apart", "begin_apart"),
]  # fmt: skip
