"""Compare a mirror's topics from the log directories of both sides, for the job ``mirror``.

Both logs are in the order of offsets, so a task reads the same offsets of both logs side by side, and Spark
shuffles nothing. A first pass reads only the batch headers: it finds transaction markers, and the place where
each task begins. A second pass reads the records to compare. Records never leave a task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from zkmigrate.errors import UsageError
from zkmigrate.spark.input import Input
from zkmigrate.spark.plain_rows import Cell, table
from zkmigrate.spark.reading import local_frame, task_reader
from zkmigrate.spark.request import Request
from zkmigrate.spark.section import Section
from zkmigrate.spark.sources.files import File
from zkmigrate.topics.mirror.clients.codecs import KafkaCodecs
from zkmigrate.topics.mirror.rules.batch import BatchError
from zkmigrate.topics.mirror.rules.compared import CLAIM, ComparedLogs, bounds, code, kinds, total, verdict
from zkmigrate.topics.mirror.rules.join import Joined, join
from zkmigrate.topics.mirror.rules.log import Log, LogError, Segment, chained, committed, slices
from zkmigrate.topics.mirror.rules.scan import scan
from zkmigrate.zookeeper.data.reader import RandomReader

T = TypeVar("T")
U = TypeVar("U")
Part = tuple[str, int]
Pair = tuple[Log, Log]

_TASKS = 2000
"""The largest number of tasks of one step."""
SIDES = ("source", "target")

_SCHEMA = pa.schema([
    ("topic", pa.string()), ("partition", pa.int32()), ("state", pa.string()), ("records", pa.int64()),
    ("begun", pa.int64()), ("end", pa.int64()), ("why", pa.string()),
    ("differing", pa.map_(pa.string(), pa.int64())), ("notes", pa.list_(pa.string())),
])  # fmt: skip
"""The columns of the table of results, which has a row for each partition; see `ComparedLogs`."""


def run(input: Input) -> Section:
    """Run the job. Raises the errors of `compared`."""
    found = compared(input.spark, input.request)
    exit_code = code(found)
    unequal = [one for one in found if one.state != "equal"]
    first = f" First: {_name(unequal[0])}: {unequal[0].why or unequal[0].state}." if unequal else ""
    answer = f"{total(found)}.{first}"
    rows = [*unequal, *(one for one in found if one.state == "equal")]
    figures = {"partitions": [body(one) for one in found]}
    shown = table("partitions", "Partitions", rows[: input.request.top], _COLUMNS, wide=(5, 6))
    values = [{**body(one), "differing": list(one.differing.items())} for one in found]
    frames = {"partitions": local_frame(input.spark, pa.Table.from_pylist(values, _SCHEMA))}
    held = None if exit_code and exit_code != CLAIM else not exit_code
    return Section("Mirror", answer, figures, (shown,), frames=frames, held=held, proves=True)


def body(one: ComparedLogs) -> dict[str, object]:
    """Return the result of a partition as JSON values."""
    return {**vars(one), "differing": dict(one.differing), "notes": list(one.notes)}


def _name(one: ComparedLogs) -> str:
    return f"{one.topic}-{one.partition}"


_COLUMNS: list[tuple[str, Cell]] = [
    ("partition", _name), ("state", lambda one: one.state), ("equal records", lambda one: one.records),
    ("from", lambda one: one.begun), ("to", lambda one: one.end), ("first difference", lambda one: one.why),
    ("differing", lambda one: kinds(one.differing)),
]  # fmt: skip


def compared(spark: SparkSession, request: Request) -> list[ComparedLogs]:
    """Compare the topics, and return the result of each partition, with its first difference.

    Raises UsageError if directories or topics are missing, and for a topic that source's directories do not
    hold.
    """
    if not (request.source_logs and request.target_logs and request.topics):
        raise UsageError(
            "mirror compares log directories. Needed: --source-logs DIR, --target-logs DIR and --topic "
            "TOPIC, each at least once"
        )
    replicas = [
        _replicas(spark, paths, request.topics) for paths in (request.source_logs, request.target_logs)
    ]
    if missing := [topic for topic in request.topics if not any(part[0] == topic for part in replicas[0])]:
        raise UsageError(f"source's directories have no partition of topic {', '.join(missing)}")
    logs = [_logs(spark, side, found) for side, found in zip(SIDES, replicas, strict=True)]
    found = _joined(spark, *logs)
    return sorted(found, key=lambda one: (request.topics.index(one.topic), one.partition))


@dataclass(frozen=True)
class _Replica:
    """A partition in one log directory.

    segments: the path and base offset of each segment. checkpoint: the log's start offset. watermark: the
    high watermark; None if unknown. unread: why some segments could not be listed.
    """

    broker: str
    segments: Sequence[tuple[str, int]]
    checkpoint: int
    watermark: int | None
    unread: str = ""


def _replicas(spark: SparkSession, paths: Sequence[str], topics: Sequence[str]) -> dict[Part, _Replica]:
    """Return for each partition the replica with the highest high watermark."""
    rows = (
        task_reader(spark, "kafkalogdir")
        .load(list(dict.fromkeys(paths)))
        .filter(F.col("topic").isin(list(topics)) & (F.col("state") == "current"))
        .collect()
    )
    by_place: dict[tuple[Part, str, str], list[Row]] = {}
    for row in rows:
        by_place.setdefault(((row.topic, row.partition), row.broker, row.dir), []).append(row)
    found: dict[Part, _Replica] = {}
    for (part, broker, _), own in sorted(by_place.items()):
        one = _replica(broker, own)
        if part not in found or _reach(one) > _reach(found[part]):
            found[part] = one
    return found


def _replica(broker: str, rows: Sequence[Row]) -> _Replica:
    segments = [
        (f"{row.dir.rstrip('/')}/{row.folder}/{row.file}", row.base_offset)
        for row in rows
        if row.base_offset is not None
    ]
    unread = "" if segments else next((row.corrupt for row in rows if row.corrupt), "no segment")
    first = rows[0]
    return _Replica(broker, segments, first.log_start_offset or 0, first.high_watermark, unread)


def _reach(one: _Replica) -> tuple[int, int]:
    """Return the sort key of a replica: its high watermark, then its newest segment."""
    newest = max((base for _, base in one.segments), default=-1)
    return -1 if one.watermark is None else one.watermark, newest


def _logs(spark: SparkSession, side: str, replicas: Mapping[Part, _Replica]) -> dict[Part, Log | str]:
    """Return the log of each partition, or the reason why the log cannot be read."""
    places = [(part, path, base) for part, one in replicas.items() for path, base in one.segments]
    scanned: dict[Part, list[Segment | str]] = {part: [] for part in replicas}
    for part, found in _mapped(spark, _scanned, places):
        scanned[part].append(found)
    return {part: _log(side, replicas[part], found) for part, found in scanned.items()}


def _scanned(place: tuple[Part, str, int]) -> tuple[Part, Segment | str]:
    part, path, base_offset = place
    try:
        return part, Segment(path, scan(_open(path), base_offset, KafkaCodecs()))
    except BatchError as error:
        return part, str(LogError(path, error.at, error))
    except OSError as error:
        return part, f"{path}: cannot be read: {error.strerror or error}"


def _open(path: str) -> RandomReader:
    return File("", path, 0).reader()


def _log(side: str, replica: _Replica, found: Sequence[Segment | str]) -> Log | str:
    unread = replica.unread or next((one for one in found if isinstance(one, str)), "")
    if unread:
        return f"{side}: {unread}"
    segments = [one for one in found if isinstance(one, Segment)]
    try:
        return chained(segments, replica.checkpoint, replica.watermark)
    except LogError as error:
        return f"{side}: {error}"


def _joined(
    spark: SparkSession, source: Mapping[Part, Log | str], target: Mapping[Part, Log | str]
) -> list[ComparedLogs]:
    pairs: dict[Part, Pair] = {}
    unknown: dict[Part, str] = {}
    for part in source.keys() | target.keys():
        here, there = (
            side.get(part, f"{name}'s directories have no such partition")
            for name, side in zip(SIDES, (source, target), strict=True)
        )
        if isinstance(here, Log) and isinstance(there, Log):
            pairs[part] = here, there
        else:
            unknown[part] = "; ".join(one for one in (here, there) if isinstance(one, str))
    shares: list[tuple[Part, int, int, int]] = []
    for part, (here, there) in pairs.items():
        begin, end = bounds(here, there)
        shares += [(part, begin, stop, end) for begin, stop in slices(here, begin, end)]
    shared = spark.sparkContext.broadcast(pairs)

    def one(share: tuple[Part, int, int, int]) -> tuple[Part, int, Joined | str]:
        part, begin, stop, end = share
        return part, begin, _part(shared.value[part], begin, stop, end)

    found: dict[Part, dict[int, Joined | str]] = {part: {} for part in pairs}
    for part, begin, result in _mapped(spark, one, shares):
        found[part][begin] = result
    shared.destroy()
    verdicts = {
        part: verdict(*part, *pairs[part], [result for _, result in sorted(own.items())])
        for part, own in found.items()
    }
    verdicts |= {part: ComparedLogs(*part, "unknown", 0, 0, 0, why) for part, why in unknown.items()}
    return list(verdicts.values())


def _part(pair: Pair, begin: int, stop: int, end: int) -> Joined | str:
    """Compare the records from offset ``begin`` up to ``stop``, or return why records cannot be read."""
    source, target = (committed(log, begin, end, _open) for log in pair)
    try:
        return join(source, target, begin, stop, end, KafkaCodecs())
    except (LogError, BatchError) as error:
        return str(error)
    except OSError as error:
        return f"cannot be read: {error}"


def _mapped(spark: SparkSession, one: Callable[[T], U], items: Sequence[T]) -> Iterable[U]:
    """Return the results of `one` for each item, computed in tasks."""
    if not items:
        return []
    return spark.sparkContext.parallelize(items, min(len(items), _TASKS)).map(one).collect()
