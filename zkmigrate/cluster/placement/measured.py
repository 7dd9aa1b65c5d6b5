"""Sizes and rates as ``analyze partitions`` measures them, for a cluster of another source.

The table has a row per replica. It knows no order of sets, no racks and no free bytes: those are the
cluster's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from zkmigrate.cluster.placement.cluster import Cluster, Name, Partition
from zkmigrate.cluster.placement.cluster_file import mistakes
from zkmigrate.cluster.placement.plan import Notice, Refused
from zkmigrate.cluster.placement.validation import SHOWN
from zkmigrate.errors import UsageError

COLUMNS = ("broker", "topic", "partition", "bytes", "per_second_day", "until")
"""What is read of the table. until: when the newest data was written, the same in each row."""

_MOST = 2**63 - 1
_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class Row:
    """A replica as it stands in the file. place: for errors. broker: its id as text. rate: bytes per second
    of the newest day. until_ms: milliseconds since the epoch. ``table`` refuses None in any of them."""

    place: str
    broker: Any
    topic: Any
    partition: Any
    bytes: Any
    rate: Any
    until_ms: Any


@dataclass(frozen=True)
class Measured:
    """replicas: bytes and rate by partition and broker. until_ms: when the newest data was written."""

    replicas: Mapping[Name, Mapping[int, tuple[int, float]]]
    until_ms: int


def table(rows: Iterable[Row], origin: str) -> Measured:
    """The table of these rows. origin: names it in errors. Raises UsageError, a line per mistake."""
    replicas: dict[Name, dict[int, tuple[int, float]]] = defaultdict(dict)
    dates: set[int] = set()
    wrong: list[str] = []
    for row in rows:
        found = next(_faults(row, replicas), "")
        if found:
            wrong.append(f"{row.place}: {found}")
            if len(wrong) > SHOWN:
                break
            continue
        replicas[row.topic, row.partition][int(row.broker)] = row.bytes, row.rate
        dates.add(row.until_ms)
    if wrong:
        raise UsageError(mistakes(origin, wrong))
    if not replicas:
        raise UsageError(f"{origin}: seen no row; needed: a row for each replica")
    return Measured(replicas, min(dates))


def _faults(row: Row, known: Mapping[Name, Mapping[int, object]]) -> Iterator[str]:
    """What is wrong with a row. known: the rows before it."""
    if not row.broker or not (row.broker.isascii() and row.broker.isdigit() and len(row.broker) <= 10):
        yield f"broker: seen {row.broker!r}; needed: an id, as by --broker-dir ID=DIR"
        return
    if not row.topic:
        yield f"topic: seen {row.topic!r}; needed: a name"
    if row.partition is None or row.partition < 0:
        yield f"partition: seen {row.partition}; needed: a number from 0 on"
    name = f"{row.topic}-{row.partition} on broker {row.broker}"
    if row.bytes is None or row.bytes < 0:
        yield f"{name}: bytes: seen {row.bytes}; needed: bytes from 0 on"
    if row.rate is None or not 0 <= row.rate <= _MOST:
        yield f"{name}: per_second_day: seen {row.rate}; needed: bytes per second from 0 on"
    if row.until_ms is None:
        yield f"{name}: until: seen nothing; needed: when the newest data was written"
    if int(row.broker) in known.get((row.topic, row.partition), ()):
        yield f"{name}: seen a second time; needed: each replica once"


def too_old(measured: Measured, now_ms: int, minutes: int) -> Refused | None:
    """The refusal of a table whose newest data is older than so many minutes, or as far ahead of now."""
    age_ms = now_ms - measured.until_ms
    if abs(age_ms) <= minutes * _MINUTE_MS:
        return None
    seen = f"{abs(age_ms) // _MINUTE_MS} minutes {'old' if age_ms > 0 else 'ahead of the clock here'}"
    text = (
        f"the newest data in the table of partitions is {seen}; needed: at most {minutes} minutes. "
        "Next: run analyze partitions again, or raise --metrics-age"
    )
    return Refused((Notice("placement.table-old", text),))


def completed(cluster: Cluster, measured: Measured) -> tuple[Cluster, tuple[Notice, ...]] | Refused:
    """The cluster with sizes and rates of the table, and what the two do not share.

    Size and rate of a partition are the largest of its replicas; those on brokers outside its set do not
    count. A partition that the table lacks keeps its own. Refused when it lacks all of them.
    """
    partitions: list[Partition] = []
    lacking: list[Partition] = []
    for one in cluster.partitions:
        at = measured.replicas.get(one.name, {})
        held = [at[broker] for broker in one.replicas if broker in at]
        if held:
            size, rate = (max(values) for values in zip(*held, strict=True))
            one = replace(one, size=int(size), rate=float(rate))
        else:
            lacking.append(one)
        partitions.append(one)
    if len(lacking) == len(partitions):
        text = (
            f"the table of partitions has none of the cluster's {len(partitions)} partitions on the brokers "
            "of their sets. Needed: a table of this cluster. Next: give its own table"
        )
        return Refused((Notice("placement.table-other-cluster", text),))
    return Cluster.of(cluster.brokers.values(), partitions), tuple(_notices(cluster, measured, lacking))


def _notices(cluster: Cluster, measured: Measured, lacking: Sequence[Partition]) -> Iterator[Notice]:
    told = {broker for at in measured.replicas.values() for broker in at}
    holding = {broker for one in cluster.partitions for broker in one.replicas}
    if foreign := sorted(told - set(cluster.brokers) - holding):
        text = f"the table of partitions has brokers that the cluster lacks: {_first(foreign)}"
        yield Notice("placement.table-broker-unknown", f"{text}. Next: give the cluster's own table", True)
    if silent := sorted(holding & set(cluster.brokers) - told):
        text = f"the table of partitions lacks brokers that hold replicas: {_first(silent)}"
        yield Notice("placement.table-broker-missing", f"{text}; sizes are those of other replicas")
    if lacking:
        names = _first(f"{one.topic}-{one.number}" for one in lacking)
        text = f"the table of partitions lacks partitions of the cluster: {names}"
        yield Notice("placement.table-partition-missing", f"{text}; their size and rate stay")
    if unknown := sorted(set(measured.replicas) - set(cluster.by_name)):
        names = _first(f"{topic}-{number}" for topic, number in unknown)
        text = f"the table of partitions has partitions that the cluster lacks: {names}"
        yield Notice("placement.table-partition-unknown", text)


def _first(names: Iterable[object]) -> str:
    """The first names, and how many more there are."""
    every = [str(name) for name in names]
    more = f" and {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return ", ".join(every[:SHOWN]) + more
