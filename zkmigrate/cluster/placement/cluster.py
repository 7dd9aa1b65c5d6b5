"""A Kafka cluster as a placement sees it: brokers with racks and disks, partitions with replicas and
bytes.

All sizes are bytes, all rates bytes per second. The values are ordered, so that the same cluster gives the
same plan on every machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

Name = tuple[str, int]
"""A partition: its topic and number."""

Set = tuple[int, ...]
"""A replica set; the first broker is the preferred leader."""


@dataclass(frozen=True, slots=True)
class LogDir:
    """One log directory of a broker, as ``log.dirs`` names it. total: 0 when it is not known."""

    path: str
    free: int
    total: int = 0


@dataclass(frozen=True, slots=True)
class Broker:
    """A registered broker.

    rack: empty without one. free: what all its log directories have free. dirs: the directories, where they
    are known one by one. new: it holds no replica yet and came to take some. host: its address; brokers on
    one address fail together. limit: new copies may take no more bytes, None for all that is free.
    """

    id: int
    rack: str
    free: int
    new: bool = False
    dirs: tuple[LogDir, ...] = ()
    host: str = ""
    limit: int | None = None

    @property
    def room(self) -> int:
        """Bytes for new copies."""
        return self.free if self.limit is None else min(self.free, self.limit)


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition and its replicas; the first of them is the preferred leader.

    size: of one replica, the largest of them; None when it is not known. rate: what is produced to it; None
    when it is not known. dirs: the log directory of each replica, or empty when they are not known.
    """

    topic: str
    number: int
    replicas: tuple[int, ...]
    size: int | None
    rate: float | None = None
    dirs: tuple[str, ...] = ()

    @property
    def name(self) -> Name:
        """What identifies it, and its place in every order."""
        return self.topic, self.number


@dataclass(frozen=True)
class Cluster:
    """brokers: the registered ones by id, in the order of their ids. partitions: in the order of their names.

    Partitions may name brokers that are not registered: those are gone.
    """

    brokers: Mapping[int, Broker]
    partitions: tuple[Partition, ...]

    @classmethod
    def of(cls, brokers: Iterable[Broker], partitions: Iterable[Partition]) -> Cluster:
        """A cluster whose values stand in their order."""
        ordered = {broker.id: broker for broker in sorted(brokers, key=lambda broker: broker.id)}
        return cls(ordered, tuple(sorted(partitions, key=lambda partition: partition.name)))

    @cached_property
    def free(self) -> dict[int, int]:
        """The free bytes of the registered brokers."""
        return {broker.id: broker.free for broker in self.brokers.values()}

    @cached_property
    def by_name(self) -> dict[Name, Partition]:
        """The partitions by topic and number."""
        return {partition.name: partition for partition in self.partitions}

    @cached_property
    def in_dir(self) -> Counter[tuple[int, str]]:
        """How many replicas each known log directory holds, by broker and path."""
        return Counter(
            place for one in self.partitions for place in zip(one.replicas, one.dirs, strict=bool(one.dirs))
        )

    def rack(self, broker: int) -> str:
        """The rack of a broker, for comparison: one without a rack, or gone, is a rack of its own."""
        found = self.brokers.get(broker)
        return f"rack {found.rack}" if found and found.rack else f"broker {broker}"

    def racks(self, replicas: Iterable[int]) -> int:
        """How many racks a replica set spans."""
        return len({self.rack(broker) for broker in replicas})

    @cached_property
    def rack_count(self) -> int:
        """How many racks the registered brokers stand in."""
        return self.racks(self.brokers)


@dataclass(frozen=True)
class Assigned:
    """What Kafka says without sizes: racks by registered broker, the sets, hosts by broker."""

    racks: Mapping[int, str]
    sets: Mapping[Name, Set]
    hosts: Mapping[int, str]

    @cached_property
    def holding(self) -> set[int]:
        """The brokers that hold a replica; any other registered one is new."""
        return {broker for replicas in self.sets.values() for broker in replicas}
