"""When disks are full, and which hours of a day are quiet: plain functions of what Spark has summed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from zkmigrate.cluster.placement.cluster import Broker, Cluster

HOURS_OF_A_DAY = 24
ALL = "all"
"""The name of all brokers together."""
_FAR = timedelta(days=3650)
"""A disk that is full only after that is not forecast."""


@dataclass(frozen=True, slots=True)
class Held:
    """What one log directory holds. per_second: bytes written in the newest day; kept_per_second: of replicas
    that still have their first record, from which retention has removed nothing."""

    broker: str
    dir: str
    bytes: int
    per_second: float
    kept_per_second: float


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk, or with an empty ``dir`` all disks of a broker. free: None when nobody told. full: when it is
    full if nothing is removed. full_kept: when it is if retention removes as much as the other replicas grow.
    Both None when that is years away, or free is not known."""

    broker: str
    dir: str
    bytes: int
    per_second: float
    free: int | None
    full: datetime | None
    full_kept: datetime | None


def disks(held: Iterable[Held], cluster: Cluster, at_s: float) -> list[Disk]:
    """The first to be full comes first. at_s: when the directories were as they are, in seconds.

    A broker whose directories the cluster does not name alike is forecast as a whole.
    """
    by_broker: dict[str, list[Held]] = defaultdict(list)
    for one in held:
        by_broker[one.broker].append(one)
    found = []
    for name, dirs in by_broker.items():
        broker = cluster.brokers.get(int(name)) if name.isascii() and name.isdigit() else None
        free = _free_by_dir(broker, dirs)
        if free is None:
            dirs = [_together(name, dirs)]
            free = {dirs[0].dir: broker.free if broker else None}
        found += [_disk(one, free[one.dir], at_s) for one in dirs]
    never = datetime.max.replace(tzinfo=UTC)
    return sorted(found, key=lambda one: (one.full or never, one.full_kept or never, one.broker, one.dir))


def _free_by_dir(broker: Broker | None, held: Iterable[Held]) -> dict[str, int | None] | None:
    free: dict[str, int | None] = {one.path: one.free for one in broker.dirs} if broker else {}
    return free if all(one.dir in free for one in held) else None


def _together(name: str, held: Iterable[Held]) -> Held:
    every = list(held)
    path = every[0].dir if len(every) == 1 else ""
    rates = ((one.per_second, one.kept_per_second) for one in every)
    written, kept = (math.fsum(values) for values in zip(*rates, strict=True))
    return Held(name, path, sum(one.bytes for one in every), written, kept)


def _disk(one: Held, free: int | None, at_s: float) -> Disk:
    full, kept = (_full(free, rate, at_s) for rate in (one.per_second, one.kept_per_second))
    return Disk(one.broker, one.dir, one.bytes, one.per_second, free, full, kept)


def _full(free: int | None, per_second: float, at_s: float) -> datetime | None:
    if free is None or free >= per_second * _FAR.total_seconds():
        return None
    return datetime.fromtimestamp(at_s, UTC) + timedelta(seconds=free / per_second)


@dataclass(frozen=True, slots=True)
class Hour:
    """An hour of the day in UTC. mean, p95: bytes written per second, of `seen` such hours; p95 by nearest
    rank."""

    broker: str
    hour: int
    seen: int
    mean: float
    p95: float


def hours(written: Mapping[str, Mapping[int, float]], first: int, last: int) -> list[Hour]:
    """The hours of the day for each broker and for ``ALL``, by broker, the quietest first; none where nothing
    was written.

    written: bytes by broker and number of the hour since the epoch, 0 if absent. first, last: the hours that
    the data covers whole, inclusive.
    """
    if not written:
        return []
    together: dict[int, float] = defaultdict(float)
    for by_hour in written.values():
        for number, count in by_hour.items():
            together[number] += count
    found = []
    for broker, by_hour in {ALL: together, **dict(sorted(written.items()))}.items():
        rates: dict[int, list[float]] = defaultdict(list)
        for number in range(first, last + 1):
            rates[number % HOURS_OF_A_DAY].append(by_hour.get(number, 0.0) / 3600)
        of_broker = [_hour(broker, hour, values) for hour, values in rates.items()]
        found += sorted(of_broker, key=lambda one: (one.p95, one.mean, one.hour))
    return found


def _hour(broker: str, hour: int, rates: list[float]) -> Hour:
    p95 = sorted(rates)[math.ceil(0.95 * len(rates)) - 1]
    return Hour(broker, hour, len(rates), round(math.fsum(rates) / len(rates), 3), round(p95, 3))
